"""Decodes Protobuf messages to structs, with a field for each field of the message.

The descriptor set is the file that `protoc --include_imports --descriptor_set_out=` writes. Enums are decoded to their
names, maps to maps and repeated fields to lists. Messages, and fields with presence, are null if they are not set.
google.protobuf parses the messages; it is installed with the `spark` extra.
"""

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ottla.pipeline.formats import Decoded
from ottla.pipeline.formats.protobuf_messages import find_message_class

_TIMESTAMP = "google.protobuf.Timestamp"
_MICROSECONDS = 1_000_000

_UNSIGNED_32, _UNSIGNED_64 = pa.int64(), pa.decimal128(20, 0)
"""Spark has no unsigned types. These signed ones hold all unsigned numbers of 32 and 64 bits."""


class Protobuf:
    """`descriptors` are serialized FileDescriptorProtos, each after those it imports. `message` is the full name of the
    message to decode."""

    def __init__(self, descriptors: Iterable[bytes], message: str) -> None:
        self._given = list(descriptors), message
        self.message_class: Any = find_message_class(self._given[0], message)
        self.type, self._value = _struct(self.message_class.DESCRIPTOR, ())

    @classmethod
    def of_set(cls, descriptor_set: bytes, message: str) -> "Protobuf":
        """Makes the format from a serialized FileDescriptorSet. ValueError if it is not one, or lacks the message."""
        from google.protobuf import descriptor_pb2
        from google.protobuf.message import DecodeError

        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file
        except DecodeError:
            raise ValueError("Protobuf: not the descriptor set that protoc writes") from None
        return cls([each.SerializeToString() for each in files], message)

    @property
    def files(self) -> list[bytes]:
        """The serialized FileDescriptorProtos, each after those it imports."""
        return self._given[0]

    def __reduce__(self) -> tuple[type["Protobuf"], tuple[list[bytes], str]]:
        return Protobuf, self._given

    def decode(self, values: pa.Array) -> Decoded:
        from google.protobuf.message import DecodeError

        bad: dict[int, str] = {}
        found: list[Any] = []
        for row, value in enumerate(values.to_pylist()):
            if value is None:
                found.append(None)
                continue
            try:
                found.append(self._value(self.message_class.FromString(value)))
            except (DecodeError, ValueError) as error:
                bad[row] = f"not the Protobuf that the schema says: {error}"
                found.append(None)
        return Decoded(pa.array(found, self.type), bad)


Convert = Callable[[Any], Any]
"""Converts a Protobuf value to the value that an Arrow column takes."""


def _struct(descriptor: Any, inside: tuple[str, ...]) -> tuple[pa.DataType, Convert]:
    """The type and the conversion for a message. `inside` has the names of the messages around it."""
    name = descriptor.full_name
    if name == _TIMESTAMP:
        return pa.timestamp("us", "UTC"), lambda each: each.seconds * _MICROSECONDS + each.nanos // 1000
    if name in inside:
        raise ValueError(f"Protobuf: {name} contains itself, which no column can hold")
    fields, steps = [], []
    for field in descriptor.fields:
        kind, convert = _field(field, (*inside, name))
        fields.append(pa.field(field.name, kind))
        steps.append((field.name, not is_repeated(field) and field.has_presence, convert))

    def value(message: Any) -> dict[str, Any]:
        return {
            name: None if presence and not message.HasField(name) else convert(getattr(message, name))
            for name, presence, convert in steps
        }

    return pa.struct(fields), value


def is_repeated(field: Any) -> bool:
    """Newer versions of google.protobuf have the attribute is_repeated and warn about the use of `label`."""
    found = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED) if found is None else bool(found)


def _field(field: Any, inside: tuple[str, ...]) -> tuple[pa.DataType, Convert]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, _ = _single(field.message_type.fields_by_name["key"], inside)
        entry = field.message_type.fields_by_name["value"]
        kind, convert = _single(entry, inside)
        return pa.map_(key, kind), lambda pairs: [(name, convert(pairs[name])) for name in pairs]
    kind, convert = _single(field, inside)
    if is_repeated(field):
        return pa.list_(kind), lambda items: [convert(each) for each in items]
    return kind, convert


def _single(field: Any, inside: tuple[str, ...]) -> tuple[pa.DataType, Convert]:
    if field.message_type is not None:
        return _struct(field.message_type, inside)
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return pa.string(), lambda number: names.get(number, str(number))
    if field.type == field.TYPE_BYTES:
        return pa.binary(), _same
    if field.cpp_type == field.CPPTYPE_UINT64:
        return _UNSIGNED_64, Decimal
    return _SIMPLE[field.cpp_type], _same


def _same(value: Any) -> Any:
    return value


# By FieldDescriptor.CPPTYPE_*: int32, int64, uint32, double, float, bool, string.
_SIMPLE = {
    1: pa.int32(),
    2: pa.int64(),
    3: _UNSIGNED_32,
    5: pa.float64(),
    6: pa.float32(),
    7: pa.bool_(),
    9: pa.string(),
}
