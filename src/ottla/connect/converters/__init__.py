"""Converters: between the bytes of a topic and the values of records, by Kafka Connect's and Confluent's names.

choice.py                   makes the converter that a setting names
converter.py                what a converter is
primitives.py               strings, bytes, booleans and numbers
json_converter.py           JSON, with or without its schema in each message
json_schemas.py             schemas as JSON
json_values.py              values as JSON, one by one
json_columns.py             values as JSON, a column at once
registered.py               what converters with a schema registry share
avro_converter.py           Avro with a schema registry
avro_schemas.py             Connect's schemas as Avro's and back
json_schema_converter.py    JSON with a schema registry
protobuf_converter.py       Protobuf with a schema registry
protobuf_schemas.py         Connect's schemas as Protobuf's
headers.py                  headers that carry no schema: the type is read out of the text
"""
