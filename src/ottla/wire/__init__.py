"""Kafka's protocol: messages to bytes and back.

messages/       generated: one module of message classes per API
extended/       requests between brokers with fields that Kafka's do not have
message.py      the base class of messages, and the description of a field
schema.py       readers and writers for every message class and version, compiled on first use
readers.py      the compiler of readers
writers.py      the compiler of writers
source.py       what both compilers share
frames.py       headers of requests and responses, and the list of APIs
shapes.py       turns old versions of a request into the newest shape, and responses back
refusals.py     the response to a request that is refused as a whole
substitutes.py  error codes that old versions do not know, and what is sent instead
error_codes.py  finds the error codes in a response
primitives.py   primitive types, for the hand-written codecs
produce.py      Produce, by hand
fetch/          Fetch, by hand
receiving.py    cuts frames out of the bytes that arrive on a connection
peer.py         a connection to another broker
malformed.py    the exception for bytes that break the protocol
"""
