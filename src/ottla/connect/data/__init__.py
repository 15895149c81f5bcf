"""Kafka Connect's data model: what a connector, a converter and a transformation say to each other.

schema.py     types of keys, values and headers
record.py     one record, as Python values
columns.py    many records of one topic, as Arrow columns
"""
