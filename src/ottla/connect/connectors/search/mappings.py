"""The mapping of an index from the schema of records, as Confluent's sink derives it."""

from typing import Any, Final

from ottla.connect.data.schema import Schema, Type

_TYPES: Final = {
    Type.BOOLEAN: "boolean",
    Type.INT8: "byte",
    Type.INT16: "short",
    Type.INT32: "integer",
    Type.INT64: "long",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BYTES: "binary",
}
_LOGICAL: Final = {
    "org.apache.kafka.connect.data.Timestamp": "date",
    "org.apache.kafka.connect.data.Decimal": "double",
}


def make_mapping(schema: Schema) -> dict[str, Any] | None:
    """None for a value that the cluster is to find a type for."""
    if schema.name in _LOGICAL:
        return {"type": _LOGICAL[schema.name]}
    match schema.type:
        case Type.STRING:
            return {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}
        case Type.ARRAY:
            return None if schema.value_schema is None else make_mapping(schema.value_schema)
        case Type.MAP:
            return {"type": "object"}
        case Type.STRUCT:
            found = {each.name: make_mapping(each.schema) for each in schema.fields}
            return {"properties": {name: mapping for name, mapping in found.items() if mapping is not None}}
    return {"type": _TYPES[schema.type]}
