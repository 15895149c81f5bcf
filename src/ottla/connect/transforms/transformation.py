"""What a transformation is, and what many of them share.

A transformation returns a changed copy: the record it was given may still be needed, for the dead letters for example.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from ottla.connect.data.record import Header, Record
from ottla.connect.data.schema import Field, Schema, Type
from ottla.connect.errors import BadConfig, RecordError
from ottla.connect.settings.definition import REQUIRED, Importance, Kind, Setting, Settings

REPLACE_NULL: Final = "replace.null.with.default"
REPLACE_NULL_SETTING: Final = Setting(
    REPLACE_NULL,
    Kind.BOOLEAN,
    True,
    "Whether to replace fields that have a default value and that are null to the default value. When set to true, the "
    "default value is used, otherwise null is used.",
)


class Transformation(ABC):
    settings: ClassVar[Settings] = Settings()
    doc: ClassVar[str]

    def __init__(self, config: Mapping[str, Any]) -> None:  # noqa: B027 - some have no settings
        """`config` has the parsed value of each declared setting. BadConfig if they do not go together."""

    @abstractmethod
    def apply(self, record: Record) -> Record | None:
        """The record as it goes on; None drops it. RecordError if the record cannot be transformed."""


class KeyOrValueTransformation(Transformation):
    """Changes either the keys or the values of records, with or without schemas."""

    def __init__(self, config: Mapping[str, Any], is_key: bool) -> None:
        self.is_key = is_key
        self.replaces_null: bool = config.get(REPLACE_NULL, True)

    def apply(self, record: Record) -> Record | None:
        schema, value = (record.key_schema, record.key) if self.is_key else (record.value_schema, record.value)
        schema, value = self.change(record, schema, value)
        return with_key(record, schema, value) if self.is_key else with_value(record, schema, value)

    @abstractmethod
    def change(self, record: Record, schema: Schema | None, value: Any) -> tuple[Schema | None, Any]:
        """The new schema and the new key or value."""


def with_key(record: Record, schema: Schema | None, key: Any) -> Record:
    return Record(
        record.topic,
        record.value,
        record.value_schema,
        key,
        schema,
        record.timestamp,
        record.headers,
        record.partition,
        record.offset,
    )


def with_value(record: Record, schema: Schema | None, value: Any) -> Record:
    return Record(
        record.topic,
        value,
        schema,
        record.key,
        record.key_schema,
        record.timestamp,
        record.headers,
        record.partition,
        record.offset,
    )


def with_topic(record: Record, topic: str) -> Record:
    return Record(
        topic,
        record.value,
        record.value_schema,
        record.key,
        record.key_schema,
        record.timestamp,
        record.headers,
        record.partition,
        record.offset,
    )


def with_headers(record: Record, headers: list[Header]) -> Record:
    return Record(
        record.topic,
        record.value,
        record.value_schema,
        record.key,
        record.key_schema,
        record.timestamp,
        headers,
        record.partition,
        record.offset,
    )


def require_map(value: Any, purpose: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RecordError(
            f"Only Map objects supported in absence of schema for [{purpose}], found: {type(value).__name__}"
        )
    return value


def require_struct(schema: Schema, value: Any, purpose: str) -> dict[str, Any]:
    if schema.type is not Type.STRUCT or not isinstance(value, dict):
        found = type(value).__name__ if schema.type is Type.STRUCT else schema.type.name
        raise RecordError(f"Only Struct objects supported for [{purpose}], found: {found}")
    return value


def make_struct_schema(source: Schema, fields: Sequence[Field]) -> Schema:
    """A STRUCT with what `source` is called. It is required and has no default, whatever `source` is."""
    names = [each.name for each in fields]
    for name in names:
        if names.count(name) > 1:
            raise RecordError(f"Cannot create field because of field name duplication {name}")
    return replace(
        source,
        type=Type.STRUCT,
        optional=False,
        default=None,
        fields=tuple(fields),
        key_schema=None,
        value_schema=None,
    )


@dataclass(frozen=True, slots=True)
class CopiedField:
    source: str
    target: str
    schema: Schema


class StructCopy:
    """Copies fields of a STRUCT, as a STRUCT of Kafka Connect takes them: a null only where the field is optional."""

    def __init__(self, fields: Sequence[CopiedField], *, replaces_null: bool) -> None:
        self._fields = [
            (each.source, each.target, each.schema.default if replaces_null else None, each) for each in fields
        ]

    def copy(self, struct: Mapping[str, Any]) -> dict[str, Any]:
        copied = {}
        get = struct.get
        for source, target, default, field in self._fields:
            value = get(source)
            if value is None:
                value = default
                if value is None and not field.schema.optional:
                    refuse_null(target, field.schema)
            copied[target] = value
        return copied


def copy_all(schema: Schema, *, replaces_null: bool) -> StructCopy:
    fields = [CopiedField(each.name, each.name, each.schema) for each in schema.fields]
    return StructCopy(fields, replaces_null=replaces_null)


def refuse_null(name: str, schema: Schema) -> None:
    raise RecordError(f'Invalid value: null used for required field: "{name}", schema type: {schema.type.name}')


def require_non_empty_list(name: str, value: Any) -> None:
    if not value:
        raise ValueError("Empty list")


def parse_pairs(name: str, mappings: Sequence[str]) -> dict[str, str]:
    """`a:b,c:d` as a dict."""
    found = {}
    for mapping in mappings:
        parts = mapping.split(":")
        if len(parts) != 2 or not parts[1]:
            raise BadConfig(f"Invalid value {mapping} for configuration {name}: Invalid rename mapping: {mapping}")
        found[parts[0]] = parts[1]
    return found


def make_fields_setting(name: str, doc: str) -> Setting:
    return Setting(name, Kind.LIST, REQUIRED, doc, Importance.HIGH, check=require_non_empty_list)
