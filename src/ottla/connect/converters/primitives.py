"""Converters of strings, bytes, booleans and numbers: the bytes that Kafka's own serializers write."""

import codecs
import struct
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from ottla.connect.converters.converter import Converter, Headers
from ottla.connect.data.java_text import to_java_text
from ottla.connect.data.schema import Schema, Type
from ottla.connect.errors import BadConfig, RecordError
from ottla.connect.settings.definition import Importance, Kind, Setting, Settings, Width

OPTIONAL_STRING: Final = Schema(Type.STRING, optional=True)
OPTIONAL_BYTES: Final = Schema(Type.BYTES, optional=True)
OPTIONAL_BOOLEAN: Final = Schema(Type.BOOLEAN, optional=True)

ENCODING: Final = "converter.encoding"


class StringConverter(Converter):
    """Anything to text. Values that are not strings are written as Java would show them."""

    settings: ClassVar[Settings] = Settings(
        (
            Setting(
                ENCODING,
                Kind.STRING,
                "UTF-8",
                "The name of the Java character set to use for encoding strings as byte arrays.",
                Importance.HIGH,
                width=Width.MEDIUM,
                display_name="Encoding",
            ),
        )
    )

    def __init__(self, config: Mapping[str, Any], is_key: bool) -> None:
        try:
            self._encoding = codecs.lookup(config[ENCODING]).name
        except LookupError:
            raise BadConfig(f"{ENCODING}: there is no character set {config[ENCODING]!r}") from None

    def from_bytes(self, topic: str, headers: Headers, data: bytes | None) -> tuple[Schema | None, Any]:
        """Bytes that are not of the encoding become U+FFFD, as in Java."""
        return OPTIONAL_STRING, None if data is None else data.decode(self._encoding, "replace")

    def to_bytes(self, topic: str, headers: Headers, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None
        text = value if isinstance(value, str) else to_java_text(schema, value)
        return text.encode(self._encoding, "replace")

    def columns_from_bytes(self, topic: str, data: pa.Array) -> tuple[Schema, pa.Array] | None:
        if self._encoding == "utf-8":
            try:
                return OPTIONAL_STRING, data.cast(pa.string())
            except pa.ArrowInvalid:
                pass
        return super().columns_from_bytes(topic, data)

    def columns_to_bytes(self, topic: str, schema: Schema, column: pa.Array) -> pa.Array:
        if schema.type is Type.STRING and self._encoding == "utf-8":
            return column.cast(pa.binary())
        return super().columns_to_bytes(topic, schema, column)


class ByteArrayConverter(Converter):
    """Bytes as they are."""

    def __init__(self, config: Mapping[str, Any], is_key: bool) -> None:
        """Has no settings."""

    def from_bytes(self, topic: str, headers: Headers, data: bytes | None) -> tuple[Schema | None, Any]:
        return OPTIONAL_BYTES, data

    def to_bytes(self, topic: str, headers: Headers, schema: Schema | None, value: Any) -> bytes | None:
        _refuse_other_types("ByteArrayConverter", schema, Type.BYTES)
        if value is None or isinstance(value, bytes):
            return value
        raise RecordError(f"ByteArrayConverter is not compatible with objects of type {type(value).__name__}")

    def columns_from_bytes(self, topic: str, data: pa.Array) -> tuple[Schema, pa.Array] | None:
        return OPTIONAL_BYTES, data

    def columns_to_bytes(self, topic: str, schema: Schema, column: pa.Array) -> pa.Array:
        _refuse_other_types("ByteArrayConverter", schema, Type.BYTES)
        return column if pa.types.is_binary(column.type) else super().columns_to_bytes(topic, schema, column)


class BooleanConverter(Converter):
    """One byte: 1 or 0."""

    def __init__(self, config: Mapping[str, Any], is_key: bool) -> None:
        """Has no settings."""

    def from_bytes(self, topic: str, headers: Headers, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return OPTIONAL_BOOLEAN, None
        if data not in (b"\0", b"\1"):
            raise RecordError(f"failed to deserialize boolean: {data[:20]!r} is not one byte 0 or 1")
        return OPTIONAL_BOOLEAN, data == b"\1"

    def to_bytes(self, topic: str, headers: Headers, schema: Schema | None, value: Any) -> bytes | None:
        _refuse_other_types("BooleanConverter", schema, Type.BOOLEAN)
        if value is None:
            return None
        if not isinstance(value, bool):
            raise RecordError(f"BooleanConverter is not compatible with objects of type {type(value).__name__}")
        return b"\1" if value else b"\0"


class _NumberConverter(Converter):
    """A number in its fixed number of bytes, the highest first."""

    name: ClassVar[str]
    type: ClassVar[Type]
    form: ClassVar[str]
    """Of the number, for `struct`."""

    def __init__(self, config: Mapping[str, Any], is_key: bool) -> None:
        self._struct = struct.Struct(self.form)
        self._schema = Schema(self.type, optional=True)
        self._python = float if self.type in (Type.FLOAT32, Type.FLOAT64) else int

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ({}, False)

    def from_bytes(self, topic: str, headers: Headers, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return self._schema, None
        if len(data) != self._struct.size:
            raise RecordError(f"failed to deserialize {self.name}: it has {len(data)} bytes, not {self._struct.size}")
        return self._schema, self._struct.unpack(data)[0]

    def to_bytes(self, topic: str, headers: Headers, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None
        same_type = schema is None or schema.type is self.type
        if not same_type or type(value) is not self._python:
            found = type(value).__name__ if same_type or schema is None else schema.type.value
            raise RecordError(f"failed to serialize to {self.name}: it is {found}")
        try:
            return self._struct.pack(value)
        except (struct.error, OverflowError):
            raise RecordError(f"failed to serialize to {self.name}: {value} does not fit") from None

    def columns_from_bytes(self, topic: str, data: pa.Array) -> tuple[Schema, pa.Array] | None:
        """Without nulls and with the right size everywhere, the content of the column is the numbers already."""
        if data.null_count or not len(data):
            return super().columns_from_bytes(topic, data)
        size = self._struct.size
        offsets = np.frombuffer(data.buffers()[1], np.int32)[data.offset : data.offset + len(data) + 1]
        if not pa.types.is_binary(data.type) or np.any(np.diff(offsets) != size):
            return super().columns_from_bytes(topic, data)
        content = np.frombuffer(data.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
        kind = np.dtype(_NUMPY[self.form])
        numbers = content.view(kind)
        return self._schema, pa.array(numbers.astype(kind.newbyteorder("=")))

    def columns_to_bytes(self, topic: str, schema: Schema, column: pa.Array) -> pa.Array:
        if column.null_count or schema.type is not self.type:
            return super().columns_to_bytes(topic, schema, column)
        numbers = column.to_numpy(zero_copy_only=False).astype(_NUMPY[self.form])
        size = self._struct.size
        offsets = np.arange(0, (len(column) + 1) * size, size, dtype=np.int32)
        return pa.Array.from_buffers(
            pa.binary(), len(column), [None, pa.py_buffer(offsets), pa.py_buffer(numbers.tobytes())]
        )


_NUMPY: Final = {">h": ">i2", ">i": ">i4", ">q": ">i8", ">f": ">f4", ">d": ">f8"}


class ShortConverter(_NumberConverter):
    name, type, form = "short", Type.INT16, ">h"


class IntegerConverter(_NumberConverter):
    name, type, form = "integer", Type.INT32, ">i"


class LongConverter(_NumberConverter):
    name, type, form = "long", Type.INT64, ">q"


class FloatConverter(_NumberConverter):
    name, type, form = "float", Type.FLOAT32, ">f"


class DoubleConverter(_NumberConverter):
    name, type, form = "double", Type.FLOAT64, ">d"


def _refuse_other_types(converter: str, schema: Schema | None, expected: Type) -> None:
    if schema is not None and schema.type is not expected:
        raise RecordError(f"invalid schema type for {converter}: {schema.type.name}")
