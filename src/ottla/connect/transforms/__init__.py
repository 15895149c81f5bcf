"""Transformations of single records on their way, and predicates that choose the records, by Kafka Connect's names.

chain.py             the transformations of a connector, out of its settings
kinds.py             the table of all transformations and predicates
transformation.py    what a transformation is
predicates.py        TopicNameMatches, HasHeaderKey, RecordIsTombstone
casting.py           Cast
debezium.py          ExtractNewRecordState
fields.py            ExtractField, HoistField, ReplaceField, ValueToKey
field_path.py        the way to a nested field
filtering.py         Filter
flattening.py        Flatten
headers.py           DropHeaders, HeaderFrom, InsertHeader
inserting.py         InsertField
masking.py           MaskField
metadata.py          SetSchemaMetadata
routing.py           RegexRouter, TimestampRouter
java_regex.py        Java's regular expressions
timestamps.py        TimestampConverter
date_patterns.py     Java's date patterns
"""
