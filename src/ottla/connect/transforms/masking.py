"""MaskField: replaces the values of fields with empty ones, or with a given one."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, ClassVar, Final

from ottla.connect.data.logical import find_scale, parse_decimal, unscaled_to_decimal
from ottla.connect.data.record import Record
from ottla.connect.data.schema import DATE, DECIMAL, LOGICAL_NAMES, TIME, Schema, Type
from ottla.connect.data.schema_cache import SchemaCache
from ottla.connect.data.values import convert_to_number
from ottla.connect.errors import RecordError
from ottla.connect.settings.checks import non_empty
from ottla.connect.settings.definition import Importance, Kind, Setting, Settings
from ottla.connect.transforms.transformation import (
    REPLACE_NULL_SETTING,
    KeyOrValueTransformation,
    StructCopy,
    copy_all,
    make_fields_setting,
    require_map,
    require_struct,
)

_PURPOSE: Final = "mask fields"
_EMPTY: Final[dict[Type, Any]] = {
    Type.INT8: 0,
    Type.INT16: 0,
    Type.INT32: 0,
    Type.INT64: 0,
    Type.FLOAT32: 0.0,
    Type.FLOAT64: 0.0,
    Type.BOOLEAN: False,
    Type.STRING: "",
}
_NUMBERS: Final = frozenset(_EMPTY) - {Type.BOOLEAN, Type.STRING}
_WITHOUT_SCHEMA: Final = {
    bool: Schema(Type.BOOLEAN),
    int: Schema(Type.INT64),
    float: Schema(Type.FLOAT64),
    str: Schema(Type.STRING),
    list: Schema(Type.ARRAY),
    dict: Schema(Type.MAP),
    bytes: Schema(Type.BYTES),
}


class MaskField(KeyOrValueTransformation):
    doc: ClassVar[str] = (
        "Mask specified fields with a valid null value for the field type (i.e. 0, false, empty string, and so on)."
        "<p/>For numeric and string fields, an optional replacement value can be specified that is converted to the "
        "correct type."
    )
    settings: ClassVar[Settings] = Settings(
        (
            make_fields_setting("fields", "Names of fields to mask."),
            Setting(
                "replacement",
                Kind.STRING,
                None,
                "Custom value replacement, that will be applied to all 'fields' values (numeric or non-empty string "
                "values only).",
                Importance.LOW,
                check=non_empty,
            ),
            REPLACE_NULL_SETTING,
        )
    )

    def __init__(self, config: Mapping[str, Any], is_key: bool) -> None:
        super().__init__(config, is_key)
        self._fields = frozenset(config["fields"])
        self._replacement: str | None = config["replacement"]
        self._plans = SchemaCache(self._make_plan)

    def change(self, record: Record, schema: Schema | None, value: Any) -> tuple[Schema | None, Any]:
        if schema is None:
            found = require_map(value, _PURPOSE)
            return None, {**found, **{name: self._mask(None, found.get(name)) for name in self._fields}}
        require_struct(schema, value, _PURPOSE)
        plan, masked = self._plans.find(schema)
        changed = plan.copy(value)
        for name, field in masked:
            changed[name] = self._mask(field, changed[name])
        return schema, changed

    def _make_plan(self, schema: Schema) -> tuple[StructCopy, list[tuple[str, Schema]]]:
        masked = [(each.name, each.schema) for each in schema.fields if each.name in self._fields]
        return copy_all(schema, replaces_null=self.replaces_null), masked

    def _mask(self, schema: Schema | None, value: Any) -> Any:
        if value is None:
            return None
        if schema is None:
            schema = _WITHOUT_SCHEMA.get(type(value))
            if schema is None:
                return _mask_without_schema(value, self._replacement)
        return _make_empty(schema) if self._replacement is None else _make_replacement(schema, self._replacement)


def _mask_without_schema(value: Any, replacement: str | None) -> Any:
    """What only a transformation before this one can have left in a value without a schema."""
    if isinstance(value, Decimal):
        return Decimal(0) if replacement is None else parse_decimal(replacement)
    for kind, empty in ((datetime, _EPOCH), (date, _EPOCH.date()), (time, time())):
        if isinstance(value, kind) and replacement is None:
            return empty
    raise RecordError(f"Cannot mask value of type: {type(value).__name__}")


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _make_empty(schema: Schema) -> Any:
    if schema.name == DECIMAL:
        return unscaled_to_decimal(0, find_scale(schema))
    if schema.name in LOGICAL_NAMES:
        return _EPOCH.date() if schema.name == DATE else time() if schema.name == TIME else _EPOCH
    if schema.type is Type.ARRAY:
        return []
    if schema.type is Type.MAP:
        return {}
    if schema.type not in _EMPTY:
        raise RecordError(f"Cannot mask value of type: {schema.type.name}")
    return _EMPTY[schema.type]


def _make_replacement(schema: Schema, replacement: str) -> Any:
    if schema.name == DECIMAL:
        return parse_decimal(replacement)
    if schema.name not in LOGICAL_NAMES and schema.type is Type.STRING:
        return replacement
    if schema.name not in LOGICAL_NAMES and schema.type in _NUMBERS:
        return convert_to_number(schema.type, replacement)
    raise RecordError(f"Cannot mask value of type {schema.name or schema.type.name} with custom replacement.")
