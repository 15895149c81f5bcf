"""A broker under clients that come and go: does its memory level off?

__main__.py     runs it (`make soak MINUTES=60`)
clients.py      producers and consumers that stay for a while
short_lived.py  producers that send once, which bring every partition to its bound of producer states; warm-up
topics.py       the topics of all of them
samples.py      the samples and the verdict
"""
