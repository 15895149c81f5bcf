"""A broker under clients that come and go: does its memory level off?

`__main__.py` runs it (`make soak MINUTES=60`), `clients.py` has the clients, `samples.py` the samples and the verdict.
"""
