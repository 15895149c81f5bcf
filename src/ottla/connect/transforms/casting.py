"""Cast: fields, or the whole key or value, as another type, with Java's rules for what does not fit."""

import math
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, time
from decimal import Decimal
from typing import Any, ClassVar, Final

from ottla.connect.data.java_text import format_date, format_number, narrow_to_float, wrap_integer
from ottla.connect.data.logical import from_logical
from ottla.connect.data.record import Record
from ottla.connect.data.schema import DATE, TIME, TIMESTAMP, Field, Schema, Type
from ottla.connect.data.schema_cache import SchemaCache
from ottla.connect.data.values import INTEGER_BITS
from ottla.connect.errors import RecordError
from ottla.connect.settings.definition import REQUIRED, Importance, Kind, Setting, Settings
from ottla.connect.transforms.transformation import (
    REPLACE_NULL_SETTING,
    KeyOrValueTransformation,
    StructCopy,
    copy_all,
    make_struct_schema,
    require_map,
    require_struct,
)

_PURPOSE: Final = "cast types"
_OUTPUT_TYPES: Final = (
    Type.INT8,
    Type.INT16,
    Type.INT32,
    Type.INT64,
    Type.FLOAT32,
    Type.FLOAT64,
    Type.BOOLEAN,
    Type.STRING,
)
_INPUT_TYPES: Final = (*_OUTPUT_TYPES, Type.BYTES)
_WITHOUT_SCHEMA: Final = {
    bool: Type.BOOLEAN,
    int: Type.INT64,
    float: Type.FLOAT64,
    str: Type.STRING,
    bytes: Type.BYTES,
    list: Type.ARRAY,
    dict: Type.MAP,
}
_INTEGER: Final = re.compile(r"[+-]?\d+", re.ASCII)
_FLOAT: Final = re.compile(r"([+-]?)((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|NaN|Infinity)[fFdD]?", re.ASCII)


def parse_spec(mappings: Sequence[str]) -> dict[str | None, Type]:
    """`field:type,...`, or one type for the whole: its field is None. ValueError says what is wrong."""
    if not mappings:
        raise ValueError("Must specify at least one field to cast.")
    found: dict[str | None, Type] = {}
    for mapping in mappings:
        parts = [each.strip() for each in mapping.split(":")]
        if len(parts) > 2:
            raise ValueError(f"Invalid rename mapping: {mapping}")
        kind = Type.__members__.get(parts[-1].upper())
        if kind is None:
            raise ValueError(f"Invalid type found in casting spec: {parts[-1]}")
        if kind not in _OUTPUT_TYPES:
            raise ValueError(_refuse_type(kind, _OUTPUT_TYPES))
        found[parts[0] if len(parts) == 2 else None] = kind
    if None in found and len(mappings) > 1:
        raise ValueError(
            "Cast transformations that specify a type to cast the entire value to may only specify a single cast in "
            "their spec"
        )
    return found


def _check_spec(name: str, value: Sequence[str]) -> None:
    parse_spec(value)


class Cast(KeyOrValueTransformation):
    doc: ClassVar[str] = (
        "Cast fields or the entire key or value to a specific type, e.g. to force an integer field to a smaller width. "
        "Cast from integers, floats, boolean and string to any other type, and cast binary to string (base64 encoded)."
    )
    settings: ClassVar[Settings] = Settings(
        (
            Setting(
                "spec",
                Kind.LIST,
                REQUIRED,
                "List of fields and the type to cast them to of the form field1:type,field2:type to cast fields of "
                "Maps or Structs. A single type to cast the entire value. Valid types are int8, int16, int32, int64, "
                "float32, float64, boolean, and string. Note that binary fields can only be cast to string.",
                Importance.HIGH,
                check=_check_spec,
            ),
            REPLACE_NULL_SETTING,
        )
    )

    def __init__(self, config: Mapping[str, Any], is_key: bool) -> None:
        super().__init__(config, is_key)
        self._casts = parse_spec(config["spec"])
        self._whole = self._casts.get(None)
        self._whole_schemas = SchemaCache(self._make_whole_schema)
        self._plans = SchemaCache(self._make_plan)

    def change(self, record: Record, schema: Schema | None, value: Any) -> tuple[Schema | None, Any]:
        if value is None:
            return schema, None
        if self._whole is not None:
            changed = None if schema is None else self._whole_schemas.find(schema)
            return changed, cast_value(schema, value, self._whole)
        if schema is None:
            found = require_map(value, _PURPOSE)
            casts = {name: cast_value(None, found.get(name), kind) for name, kind in self._casts.items() if name}
            return None, {**found, **casts}
        require_struct(schema, value, _PURPOSE)
        struct_schema, plan, casts_of_fields = self._plans.find(schema)
        struct = plan.copy(value)
        for name, field, kind in casts_of_fields:
            struct[name] = cast_value(field, struct[name], kind)
        return struct_schema, struct

    def _make_whole_schema(self, schema: Schema) -> Schema:
        assert self._whole is not None
        return replace(
            schema,
            type=self._whole,
            default=cast_value(schema, schema.default, self._whole),
            fields=(),
            key_schema=None,
            value_schema=None,
        )

    def _make_plan(self, schema: Schema) -> tuple[Schema, StructCopy, list[tuple[str, Schema, Type]]]:
        casts = [(each.name, each.schema, self._casts[each.name]) for each in schema.fields if each.name in self._casts]
        changed = {
            name: Schema(kind, field.optional, default=cast_value(field, field.default, kind))
            for name, field, kind in casts
        }
        fields = [Field(each.name, changed.get(each.name, each.schema)) for each in schema.fields]
        struct_schema = replace(make_struct_schema(schema, fields), optional=schema.optional)
        if schema.default is not None:
            raise RecordError(_refuse_type(Type.STRUCT, _INPUT_TYPES))
        return struct_schema, copy_all(schema, replaces_null=self.replaces_null), casts


def cast_value(schema: Schema | None, value: Any, target: Type) -> Any:
    """A value as another type. RecordError if it cannot be."""
    if value is None:
        return None
    kind = _WITHOUT_SCHEMA.get(type(value)) if schema is None else schema.type
    if kind is None:
        raise RecordError(
            f"Cast transformation was passed a value of type {type(value).__name__} which is not supported by "
            "Connect's data API"
        )
    if kind not in _INPUT_TYPES:
        raise RecordError(_refuse_type(kind, _INPUT_TYPES))
    if schema is not None and schema.name in (DATE, TIME, TIMESTAMP) and target is not Type.STRING:
        value = from_logical(schema, value)
    if target is Type.STRING:
        return _to_string(schema, value)
    if isinstance(value, str):
        return _parse_string(value, target)
    if not isinstance(value, int | float | Decimal):
        raise RecordError(f"Unexpected type in Cast transformation: {type(value).__name__}")
    return _CASTS[target](value)


def _to_string(schema: Schema | None, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return format_date(value) if isinstance(value, date | time) else format_number(value, schema)


def _parse_string(text: str, target: Type) -> Any:
    if target is Type.BOOLEAN:
        return text.lower() == "true"
    if target in INTEGER_BITS:
        half = 1 << (INTEGER_BITS[target] - 1)
        if _INTEGER.fullmatch(text) and len(text) < 30 and -half <= int(text) < half:
            return int(text)
    else:
        found = _FLOAT.fullmatch(text.strip())
        if found:
            number = float(found[1] + found[2])
            return narrow_to_float(number) if target is Type.FLOAT32 else number
    raise RecordError(f"Value ({text}) was out of range for requested data type")


def _to_integer(value: int | float | Decimal, bits: int) -> int:
    """A float beyond the range becomes the end of the range, then the low bits are kept, as in Java."""
    if isinstance(value, float):
        if math.isnan(value):
            return 0
        limit = 1 << (max(bits, 32) - 1)
        value = limit - 1 if value >= limit else -limit if value < -limit else int(value)
    return wrap_integer(int(value), bits)


def _to_float32(value: int | float | Decimal) -> float:
    return narrow_to_float(float(value))


def _to_boolean(value: int | float | Decimal) -> bool:
    return _to_integer(value, 64) != 0


def _make_integer_cast(bits: int) -> Callable[[Any], int]:
    return lambda value: _to_integer(value, bits)


_CASTS: Final[dict[Type, Callable[[Any], Any]]] = {
    **{kind: _make_integer_cast(bits) for kind, bits in INTEGER_BITS.items()},
    Type.FLOAT32: _to_float32,
    Type.FLOAT64: float,
    Type.BOOLEAN: _to_boolean,
}


def _refuse_type(kind: Type, supported: Sequence[Type]) -> str:
    names = ", ".join(each.name for each in supported)
    return f"Cast transformation does not support casting to/from {kind.name}; supported types are [{names}]"
