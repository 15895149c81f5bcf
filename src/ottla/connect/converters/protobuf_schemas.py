"""Connect's schemas as Protobuf's: a file with one message, whose fields are numbered in their order.

A struct within a struct is a message within the message. What may be null is `optional`, so that a null is not read as
a zero. Decimals, dates and times of day have no type in Protobuf itself and are refused.
"""

import re
from base64 import b64encode
from typing import Any, Final

from ottla.connect.data.schema import LOGICAL_NAMES, TIMESTAMP, Field, Schema, Type
from ottla.connect.errors import RecordError

_UNNAMED: Final = "ConnectDefault"
_TIMESTAMP_FILE: Final = "google/protobuf/timestamp.proto"
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TYPES: Final = {
    Type.INT8: "TYPE_INT32",
    Type.INT16: "TYPE_INT32",
    Type.INT32: "TYPE_INT32",
    Type.INT64: "TYPE_INT64",
    Type.FLOAT32: "TYPE_FLOAT",
    Type.FLOAT64: "TYPE_DOUBLE",
    Type.BOOLEAN: "TYPE_BOOL",
    Type.STRING: "TYPE_STRING",
    Type.BYTES: "TYPE_BYTES",
}
_KEYS: Final = frozenset((Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.BOOLEAN, Type.STRING))


def write_protobuf_schema(schema: Schema) -> str:
    """The serialized file in base64, as registries take it. RecordError if Protobuf cannot say the schema."""
    from google.protobuf import descriptor_pb2

    if schema.type is not Type.STRUCT:
        raise RecordError(f"a value of type {schema.type.value} is no Protobuf message: it has no fields")
    *package, name = [_scrub(each) for each in (schema.name or f"{_UNNAMED}1").split(".")]
    file = descriptor_pb2.FileDescriptorProto(name="schema.proto", package=".".join(package), syntax="proto3")
    _Writer(file).fill(file.message_type.add(name=name), schema, "." + ".".join((*package, name)))
    return b64encode(file.SerializeToString(deterministic=True)).decode()


class _Writer:
    def __init__(self, file: Any) -> None:
        self._file = file

    def fill(self, message: Any, schema: Schema, path: str) -> None:
        """Add the fields of a struct to a message, whose full name is the path."""
        for number, field in enumerate(schema.fields, 1):
            if not _IDENTIFIER.fullmatch(field.name):
                raise RecordError(f"{field.name!r} cannot be the name of a Protobuf field")
            self._add_field(message, field, number, path)
        for each in message.field:  # what oneofs there are for `optional` come after all others
            if each.proto3_optional:
                each.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{each.name}")

    def _add_field(self, message: Any, field: Field, number: int, path: str) -> None:
        made = message.field.add(name=field.name, number=number, json_name=field.name)
        schema = field.schema
        if schema.type is Type.ARRAY and schema.value_schema is not None:
            made.label = made.LABEL_REPEATED
            self._set_type(made, message, schema.value_schema, path)
        elif schema.type is Type.MAP and schema.name is None:
            made.label = made.LABEL_REPEATED
            made.type, made.type_name = made.TYPE_MESSAGE, f"{path}.{self._add_entry(message, field, path)}"
        else:
            made.label = made.LABEL_OPTIONAL
            self._set_type(made, message, schema, path)
            made.proto3_optional = schema.optional and made.type != made.TYPE_MESSAGE

    def _add_entry(self, message: Any, field: Field, path: str) -> str:
        """The message of a map's entries."""
        key, value = field.schema.key_schema, field.schema.value_schema
        if key is None or value is None or key.type not in _KEYS or key.name in LOGICAL_NAMES:
            raise RecordError(f"the map {field.name} has keys that Protobuf's maps cannot have")
        words = field.name.split("_")
        entry = message.nested_type.add(name="".join(each[:1].upper() + each[1:] for each in words) + "Entry")
        entry.options.map_entry = True
        for number, (name, schema) in enumerate((("key", key), ("value", value)), 1):
            made = entry.field.add(name=name, number=number, json_name=name)
            made.label = made.LABEL_OPTIONAL
            self._set_type(made, message, schema, path)
        return str(entry.name)

    def _set_type(self, made: Any, message: Any, schema: Schema, path: str) -> None:
        if schema.name == TIMESTAMP:
            made.type, made.type_name = made.TYPE_MESSAGE, ".google.protobuf.Timestamp"
            if _TIMESTAMP_FILE not in self._file.dependency:
                self._file.dependency.append(_TIMESTAMP_FILE)
        elif schema.name in LOGICAL_NAMES:
            short = (schema.name or "").rpartition(".")[2]
            raise RecordError(f"{made.name}: Protobuf has no type for {short}; a transformation can make text of it")
        elif schema.type is Type.STRUCT:
            wanted = _scrub((schema.name or _UNNAMED).rpartition(".")[2])
            name, number = wanted, 1
            while any(each.name == name for each in message.nested_type) or (wanted == _UNNAMED and name == wanted):
                number += 1
                name = f"{wanted}{number}"
            made.type, made.type_name = made.TYPE_MESSAGE, f"{path}.{name}"
            self.fill(message.nested_type.add(name=name), schema, f"{path}.{name}")
        elif schema.type in _TYPES:
            made.type = getattr(made, _TYPES[schema.type])
        else:
            raise RecordError(f"{made.name}: Protobuf has no {schema.type.value} within a list or a map")


def _scrub(name: str) -> str:
    found = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return found if _IDENTIFIER.fullmatch(found) else f"_{found}"
