"""The worker: keeps connectors running, alone or as a member of a group of workers.

herder.py     what a worker can be asked for: the protocol that the REST server is written against
runs.py       what a running connector is to the worker: the protocol that `running/` fulfils
topics.py     the compacted topics of a worker: created, read to their end, written
offsets.py    offsets of sources, in the offsets topic
"""
