"""Single keys and values as JSON documents, read and written with the schemas of a schema registry.

    registered.py    reads and writes values that begin with the id of a schema
    avro.py          Avro values as documents and back
    json_schema.py   checks documents against a JSON Schema

The web console and the command line show records with this package. It works without pyarrow; Protobuf needs the
package `protobuf`. Whole columns are read by `ottla.pipeline.formats`.
"""
