"""Requests that the brokers of a cluster send each other with more than Kafka's fields.

write_txn_markers.py   which leadership a marker is for, and the order of the requests

What is added are tagged fields, which other programs skip. The modules are named like those in `ottla.wire.messages`,
whose API they belong to.
"""
