"""Values as JSON, one by one. For each schema a function is made once, which encodes or decodes its values.

Kafka reads a value that is not of its schema's type as zero, false or null. That silently loses data, so here it is an
error. NaN and the infinities are written as strings, as Kafka does, and are read from them again.
"""

import json
import math
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import orjson

from ottla.connect.data.java_text import format_float, narrow_to_float
from ottla.connect.data.logical import from_logical, to_logical
from ottla.connect.data.schema import DECIMAL, LOGICAL_NAMES, Schema, Type
from ottla.connect.data.schema_cache import SchemaCache
from ottla.connect.errors import RecordError

Function = Callable[[Any], Any]

PYTHON_TYPES: Final[dict[Type, type]] = {
    Type.INT8: int,
    Type.INT16: int,
    Type.INT32: int,
    Type.INT64: int,
    Type.FLOAT32: float,
    Type.FLOAT64: float,
    Type.BOOLEAN: bool,
    Type.STRING: str,
    Type.BYTES: bytes,
    Type.ARRAY: list,
    Type.MAP: dict,
    Type.STRUCT: dict,
}
INTEGER_LIMITS: Final = {Type.INT8: 1 << 7, Type.INT16: 1 << 15, Type.INT32: 1 << 31, Type.INT64: 1 << 63}
_NOT_JSON: Final = "Converting byte[] to Kafka Connect data failed due to serialization error: "
_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class Inexact(Exception):
    """A decimal was parsed as a float, which may have lost digits. The text has to be parsed again."""


class JsonValues:
    """Encodes and decodes values of any schema."""

    def __init__(self, numeric_decimals: bool = False, replace_null: bool = True) -> None:
        self._numeric_decimals = numeric_decimals
        self._replace_null = replace_null
        self._encoders = SchemaCache(self._make_encoder)
        self._decoders = SchemaCache(self._make_decoder)
        self.find_encoder = self._encoders.find
        self.find_decoder = self._decoders.find

    def __reduce__(self) -> tuple[Any, ...]:
        return JsonValues, (self._numeric_decimals, self._replace_null)

    def encode(self, schema: Schema, value: Any) -> Any:
        """What orjson writes as the JSON of the value."""
        return self._encoders.find(schema)(value)

    def decode(self, schema: Schema, found: Any) -> Any:
        """The value of parsed JSON."""
        return self._decoders.find(schema)(found)

    def load(self, schema: Schema, data: bytes) -> Any:
        """The value of JSON text. Decimals that are written as numbers keep all their digits."""
        try:
            return self.decode(schema, load(data))
        except Inexact:
            return self.decode(schema, load_exactly(data))

    def _make_encoder(self, schema: Schema) -> Function:
        encode = self._make_present_encoder(schema)
        expected = PYTHON_TYPES[schema.type]
        is_logical = schema.name in LOGICAL_NAMES
        is_plain = encode is None

        def encode_or_null(value: Any) -> Any:
            if type(value) is expected and is_plain:
                return value
            if value is None:
                return self._encode_null(schema)
            if not is_logical and type(value) is not expected:
                raise RecordError(f"Invalid type for {schema.type.name}: {type(value).__name__}")
            return encode(value) if encode else value

        return encode_or_null

    def _encode_null(self, schema: Schema) -> Any:
        if schema.default is not None and self._replace_null:
            return self.encode(schema, schema.default)
        if schema.optional:
            return None
        raise RecordError("Conversion error: null value for field that is required and has no default value")

    def _make_present_encoder(self, schema: Schema) -> Function | None:
        """Encodes a value of the right type that is not null. None: JSON has the type."""
        if schema.name == DECIMAL:
            return (
                _encode_number if self._numeric_decimals else lambda value: _encode_bytes(from_logical(schema, value))
            )
        if schema.name in LOGICAL_NAMES:
            return lambda value: from_logical(schema, value)
        if schema.type in (Type.FLOAT32, Type.FLOAT64):
            return _encode_float32 if schema.type is Type.FLOAT32 else _encode_float
        if schema.type is Type.BYTES:
            return _encode_bytes
        if schema.type is Type.ARRAY:
            element = _encode_without_schema if schema.value_schema is None else self.find_encoder(schema.value_schema)
            return lambda value: [element(each) for each in value]
        if schema.type is Type.MAP:
            return self._make_map_encoder(schema)
        if schema.type is Type.STRUCT:
            encoders = [(each.name, self.find_encoder(each.schema)) for each in schema.fields]
            return lambda value: {name: encode(value.get(name)) for name, encode in encoders}
        return None

    def _make_map_encoder(self, schema: Schema) -> Function:
        """A map is an object if its keys are strings, otherwise an array of pairs."""
        key = _encode_without_schema if schema.key_schema is None else self.find_encoder(schema.key_schema)
        element = _encode_without_schema if schema.value_schema is None else self.find_encoder(schema.value_schema)
        if schema.key_schema is not None and schema.key_schema.type is Type.STRING:
            return lambda value: {key(name): element(each) for name, each in value.items()}
        return lambda value: [[key(name), element(each)] for name, each in value.items()]

    def _make_decoder(self, schema: Schema) -> Function:
        decode = self._make_logical_decoder(schema) or self._make_present_decoder(schema)

        def decode_or_null(found: Any) -> Any:
            if found is not None:
                return decode(found)
            if schema.default is not None and self._replace_null:
                return schema.default
            if schema.optional:
                return None
            raise RecordError(f"Invalid null value for required {schema.type.name} field")

        return decode_or_null

    def _make_logical_decoder(self, schema: Schema) -> Function | None:
        if schema.name == DECIMAL:
            return lambda found: _decode_decimal(schema, found)
        if schema.name in LOGICAL_NAMES:
            decode = _make_integer_decoder(schema.type)
            return lambda found: to_logical(schema, decode(found))
        return None

    def _make_present_decoder(self, schema: Schema) -> Function:
        kind = schema.type
        if kind in INTEGER_LIMITS:
            return _make_integer_decoder(kind)
        if kind in (Type.FLOAT32, Type.FLOAT64):
            return _decode_float32 if kind is Type.FLOAT32 else _decode_float
        if kind is Type.BYTES:
            return _decode_bytes
        if kind is Type.ARRAY and schema.value_schema:
            element = self.find_decoder(schema.value_schema)
            return lambda found: [element(each) for each in _check_json(found, list, "an array")]
        if kind is Type.MAP and schema.key_schema and schema.value_schema:
            return self._make_map_decoder(schema.key_schema, schema.value_schema)
        if kind is Type.STRUCT:
            decoders = [(each.name, self.find_decoder(each.schema)) for each in schema.fields]

            def decode_struct(found: Any) -> Any:
                if type(found) is not dict:
                    raise RecordError(f"Structs should be encoded as JSON objects, but found {_name(found)}")
                return {name: decode(found.get(name)) for name, decode in decoders}

            return decode_struct
        expected = PYTHON_TYPES[kind]
        return lambda found: _check_json(found, expected, kind.name)

    def _make_map_decoder(self, key_schema: Schema, value_schema: Schema) -> Function:
        key, element = self.find_decoder(key_schema), self.find_decoder(value_schema)
        if key_schema.type is Type.STRING:

            def decode_object(found: Any) -> Any:
                if type(found) is not dict:
                    raise RecordError(
                        f"Maps with string fields should be encoded as JSON objects, but found {_name(found)}"
                    )
                return {key(name): element(each) for name, each in found.items()}

            return decode_object

        def decode_pairs(found: Any) -> Any:
            if type(found) is not list:
                raise RecordError(
                    f"Maps with non-string fields should be encoded as JSON array of tuples, but found {_name(found)}"
                )
            for each in found:
                if type(each) is not list or len(each) != 2:
                    raise RecordError(f"Found invalid map entry instead of an array of two: {_name(each)}")
            try:
                return {key(name): element(each) for name, each in found}
            except TypeError:
                raise RecordError("A map with arrays, maps or structs as keys cannot be read") from None

        return decode_pairs


def load(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise RecordError(f"{_NOT_JSON}{error}") from None


def load_exactly(data: bytes) -> Any:
    """Numbers with a fraction as decimals, with all their digits."""
    try:
        return json.loads(data, parse_float=Decimal)
    except ValueError as error:
        raise RecordError(f"{_NOT_JSON}{error}") from None


def dump_without_schema(value: Any) -> bytes:
    """The JSON of a value that has no schema. What JSON lacks is written as Kafka does, bytes in base64."""
    try:
        written = orjson.dumps(value, _encode_other, orjson.OPT_PASSTHROUGH_DATETIME)
        if b"null" not in written:
            return written
    except orjson.JSONEncodeError as error:
        if isinstance(error.__cause__, RecordError):
            raise error.__cause__ from None
    try:
        return orjson.dumps(_encode_without_schema(value))
    except orjson.JSONEncodeError as error:
        raise RecordError(f"Couldn't convert to JSON: {error}") from None


def _encode_without_schema(value: Any) -> Any:
    """Maps with keys that are not all strings become arrays of pairs, and NaN a string."""
    if isinstance(value, float):
        return _encode_float(value)
    if isinstance(value, list | tuple):
        return [_encode_without_schema(each) for each in value]
    if isinstance(value, dict):
        if all(isinstance(each, str) for each in value):
            return {name: _encode_without_schema(each) for name, each in value.items()}
        return [[_encode_without_schema(name), _encode_without_schema(each)] for name, each in value.items()]
    return value if value is None or isinstance(value, str | int | bool) else _encode_other(value)


def _encode_other(value: Any) -> Any:
    if isinstance(value, bytes):
        return _encode_bytes(value)
    raise RecordError(f"{type(value).__name__} does not have a corresponding schema type")


def _encode_bytes(value: bytes) -> str:
    return b64encode(value).decode()


def _encode_number(value: Any) -> orjson.Fragment:
    if not isinstance(value, Decimal):
        raise RecordError(f"Invalid type for Decimal, expected a decimal but was {type(value).__name__}")
    return orjson.Fragment(str(value).encode())


def _encode_float(value: float) -> float | str:
    return value if math.isfinite(value) else format_float(value)


def _encode_float32(value: float) -> Any:
    return float(format_float(value, Type.FLOAT32)) if math.isfinite(value) else format_float(value)


def _make_integer_decoder(kind: Type) -> Function:
    limit = INTEGER_LIMITS[kind]

    def decode_integer(found: Any) -> int:
        if type(found) is int and -limit <= found < limit:
            return found
        if isinstance(found, float | Decimal) and found % 1 == 0 and -limit <= found < limit:
            return int(found)
        raise RecordError(f"{_show(found)} is not {kind.name}")

    return decode_integer


def _decode_float(found: Any) -> float:
    if type(found) is float:
        return found
    if isinstance(found, int | Decimal) and not isinstance(found, bool):
        return float(found)
    if isinstance(found, str) and found in _NOT_FINITE:
        return _NOT_FINITE[found]
    raise RecordError(f"{_show(found)} is not a number")


def _decode_float32(found: Any) -> float:
    return narrow_to_float(_decode_float(found))


def _decode_bytes(found: Any) -> bytes:
    try:
        return b64decode(_check_json(found, str, "bytes in base64"), validate=True)
    except Base64Error:
        raise RecordError("Invalid bytes field: not base64") from None


def _decode_decimal(schema: Schema, found: Any) -> Decimal:
    if type(found) is float:
        raise Inexact
    if isinstance(found, int | Decimal) and not isinstance(found, bool):
        return Decimal(found)
    decoded: Decimal = to_logical(schema, _decode_bytes(found))
    return decoded


def _check_json(found: Any, expected: type, what: str) -> Any:
    if type(found) is not expected:
        raise RecordError(f"{_show(found)} is not {what}")
    return found


def _name(found: Any) -> str:
    return {dict: "OBJECT", list: "ARRAY", str: "STRING", bool: "BOOLEAN"}.get(type(found), "NUMBER")


def _show(found: Any) -> str:
    return orjson.dumps(found, str)[:60].decode(errors="replace")
