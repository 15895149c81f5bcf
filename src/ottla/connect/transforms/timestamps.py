"""TimestampConverter: times as text, as Unix time or as Connect's Date, Time and Timestamp."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime, time
from typing import Any, ClassVar, Final

from ottla.connect.data.java_text import to_epoch_millis
from ottla.connect.data.logical import DATE_SCHEMA, TIME_SCHEMA, TIMESTAMP_SCHEMA, millis_to_datetime
from ottla.connect.data.record import Record
from ottla.connect.data.schema import DATE, TIME, TIMESTAMP, Field, Schema, Type
from ottla.connect.data.schema_cache import SchemaCache
from ottla.connect.errors import BadConfig, RecordError
from ottla.connect.settings.checks import one_of
from ottla.connect.settings.definition import REQUIRED, Importance, Kind, Setting, Settings
from ottla.connect.transforms.date_patterns import DatePattern
from ottla.connect.transforms.transformation import (
    REPLACE_NULL_SETTING,
    KeyOrValueTransformation,
    StructCopy,
    copy_all,
    make_struct_schema,
    require_map,
    require_struct,
)

_PURPOSE: Final = "converting timestamp formats"
_STRING, _UNIX, _DATE, _TIME, _TIMESTAMP = "string", "unix", "Date", "Time", "Timestamp"
_SCHEMAS: Final = {
    _STRING: Schema(Type.STRING),
    _UNIX: Schema(Type.INT64),
    _DATE: DATE_SCHEMA,
    _TIME: TIME_SCHEMA,
    _TIMESTAMP: TIMESTAMP_SCHEMA,
}
_BY_NAME: Final = {DATE: _DATE, TIME: _TIME, TIMESTAMP: _TIMESTAMP}
_NANOSECONDS: Final = {"nanoseconds": 1, "microseconds": 1_000, "milliseconds": 1_000_000, "seconds": 1_000_000_000}
"""Of one unit of a precision."""
_LIMIT: Final = 1 << 63
"""Unix time in nanoseconds ends in the year 2262. What is beyond becomes the end, as in Java."""
_MILLISECOND: Final = _NANOSECONDS["milliseconds"]


class TimestampConverter(KeyOrValueTransformation):
    doc: ClassVar[str] = (
        "Convert timestamps between different formats such as Unix epoch, strings, and Connect Date/Timestamp types."
        "Applies to individual fields or to the entire value."
    )
    settings: ClassVar[Settings] = Settings(
        (
            Setting(
                "field",
                Kind.STRING,
                "",
                "The field containing the timestamp, or empty if the entire value is a timestamp",
                Importance.HIGH,
            ),
            Setting(
                "target.type",
                Kind.STRING,
                REQUIRED,
                "The desired timestamp representation: string, unix, Date, Time, or Timestamp",
                Importance.HIGH,
                check=one_of(*_SCHEMAS),
            ),
            Setting(
                "format",
                Kind.STRING,
                "",
                "A SimpleDateFormat-compatible format for the timestamp. Used to generate the output when type=string "
                "or used to parse the input if the input is a string.",
            ),
            Setting(
                "unix.precision",
                Kind.STRING,
                "milliseconds",
                "The desired Unix precision for the timestamp: seconds, milliseconds, microseconds, or nanoseconds. "
                "Used to generate the output when type=unix or used to parse the input if the input is a Long. Note: "
                "This SMT will cause precision loss during conversions from, and to, values with sub-millisecond "
                "components.",
                Importance.LOW,
                check=one_of(*_NANOSECONDS),
            ),
            REPLACE_NULL_SETTING,
        )
    )

    def __init__(self, config: Mapping[str, Any], is_key: bool) -> None:
        super().__init__(config, is_key)
        self._field: str = config["field"]
        self._target: str = config["target.type"]
        self._nanoseconds = _NANOSECONDS[config["unix.precision"]]
        pattern: str = config["format"]
        if self._target == _STRING and not pattern.strip():
            raise BadConfig("TimestampConverter requires format option to be specified when using string timestamps")
        self._pattern = DatePattern(pattern) if pattern.strip() else None
        self._plans = SchemaCache(self._make_plan)

    def change(self, record: Record, schema: Schema | None, value: Any) -> tuple[Schema | None, Any]:
        if schema is None:
            if value is None or not self._field:
                return None, self._convert(None, value)
            found = require_map(value, _PURPOSE)
            return None, {**found, self._field: self._convert(None, found.get(self._field))}
        if not self._field:
            changed = replace(_SCHEMAS[self._target], optional=schema.optional)
            return changed, self._convert(_find_kind(schema), value)
        if schema.type is not Type.STRUCT:
            raise RecordError(f"Only Struct objects supported for [{_PURPOSE}], found: {schema.type.name}")
        struct_schema, plan, field = self._plans.find(schema)
        if value is None:
            return struct_schema, None
        struct = plan.copy(require_struct(schema, value, _PURPOSE))
        if field is not None:
            struct[self._field] = self._convert(_find_kind(field), struct[self._field])
        return struct_schema, struct

    def _make_plan(self, schema: Schema) -> tuple[Schema, StructCopy, Schema | None]:
        """The changed schema, what copies the fields, and the schema of the field before; None: there is no field."""
        field = schema.find_field(self._field)
        plan = copy_all(schema, replaces_null=self.replaces_null)
        if field is None:
            return replace(schema), plan, None
        target = replace(_SCHEMAS[self._target], optional=field.schema.optional)
        fields = [Field(each.name, target) if each is field else each for each in schema.fields]
        default = schema.default
        if default is not None:
            default = plan.copy(default)
            default[self._field] = self._convert(_find_kind(field.schema), default[self._field])
        changed = replace(make_struct_schema(schema, fields), optional=schema.optional, default=default)
        return changed, plan, field.schema

    def _convert(self, kind: str | None, value: Any) -> Any:
        """`kind` says how the value is kept; None: the value shows it."""
        if value is None:
            return None
        moment = self._read(kind or _infer_kind(value), value)
        if self._target == _STRING:
            assert self._pattern is not None
            return self._pattern.format(moment)
        if self._target == _UNIX:
            units = _divide(to_epoch_millis(moment) * _MILLISECOND, self._nanoseconds)
            return max(-_LIMIT, min(units, _LIMIT - 1))
        if self._target == _DATE:
            return moment.date()
        return moment.time() if self._target == _TIME else moment

    def _read(self, kind: str, value: Any) -> datetime:
        if kind == _STRING:
            if self._pattern is None:
                raise RecordError("TimestampConverter requires format option to be specified to read string timestamps")
            return self._pattern.parse(value)
        millis = _divide(value * self._nanoseconds, _MILLISECOND) if kind == _UNIX else to_epoch_millis(value)
        try:
            return millis_to_datetime(millis)
        except OverflowError:
            raise RecordError(f"the timestamp {value} is not between the years 1 and 9999") from None


def _divide(value: int, unit: int) -> int:
    """Towards zero, as Java divides."""
    return -(-value // unit) if value < 0 else value // unit


def _find_kind(schema: Schema) -> str:
    if schema.name in _BY_NAME:
        return _BY_NAME[schema.name]
    if schema.type is Type.STRING:
        return _STRING
    if schema.type is Type.INT64:
        return _UNIX
    shown = f"{schema.name}:{schema.type.name}" if schema.name else schema.type.name
    raise RecordError(f"Schema {shown} does not correspond to a known timestamp type format")


def _infer_kind(value: Any) -> str:
    if isinstance(value, date | time):
        return _TIMESTAMP
    if isinstance(value, str):
        return _STRING
    if isinstance(value, int) and not isinstance(value, bool):
        return _UNIX
    raise RecordError(f"TimestampConverter does not support {type(value).__name__} objects as timestamps")
