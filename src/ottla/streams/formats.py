"""How keys and values of records become columns and back: the choice of the user, and what is made of it.

canonical keys   string, binary, int, long, double and bool: the same bytes as Kafka's serializers write, so that a
                 stream that is keyed by such a column is in the same partitions as a topic keyed with it
other formats    json, avro and protobuf: decoded by `ottla.pipeline.formats`, encoded here
"""

from dataclasses import dataclass

import pyarrow as pa

CANONICAL = ("string", "binary", "int", "long", "double", "bool")
KINDS = (*CANONICAL, "json", "avro", "protobuf")


@dataclass(frozen=True)
class RecordFormat:
    """The format of a key or a value. Small and picklable: schemas of a registry are resolved when an app is built."""

    kind: str = "binary"
    schema: str | bytes | None = None
    """Fields in SQL syntax or a JSON Schema for json, a schema for avro, a descriptor set for protobuf."""
    message: str = ""
    """The message of a descriptor set."""
    registry: str | None = None
    """The address of a schema registry: values carry the id of their schema."""
    subject: str = ""
    type: pa.DataType | None = None
    """The type of the decoded value: a struct, whose fields become columns, or one value."""

    @property
    def is_canonical(self) -> bool:
        return self.kind in CANONICAL
