"""Kafka Connect's data model: what a connector, a converter and a transformation say to each other.

schema.py         types of keys, values and headers
schema_cache.py   what is computed once for each schema
logical.py        decimals, dates, times and timestamps
record.py         one record, as Python values
columns.py        many records of one topic, as Arrow columns
arrow_types.py    which Arrow type a schema has
conversion.py     between records and columns
values.py         reads a value and its schema out of a text
java_text.py      numbers and values as Java writes them
"""
