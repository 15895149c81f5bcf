"""Transformations that choose, rename, wrap and copy fields: ExtractField, HoistField, ReplaceField, ValueToKey."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ottla.connect.data.record import Record
from ottla.connect.data.schema import Field, Schema, Type
from ottla.connect.data.schema_cache import SchemaCache
from ottla.connect.errors import BadConfig, RecordError
from ottla.connect.settings.definition import REQUIRED, Kind, Setting, Settings
from ottla.connect.transforms.field_path import SYNTAX_VERSION, SYNTAX_VERSION_SETTING, FieldPath
from ottla.connect.transforms.transformation import (
    REPLACE_NULL,
    REPLACE_NULL_SETTING,
    CopiedField,
    KeyOrValueTransformation,
    StructCopy,
    Transformation,
    make_fields_setting,
    make_struct_schema,
    parse_pairs,
    refuse_null,
    require_map,
    require_struct,
    with_key,
)


class ExtractField(KeyOrValueTransformation):
    doc: ClassVar[str] = (
        "Extract the specified field from a Struct when schema present, or a Map in the case of schemaless data. Any "
        "null values are passed through unmodified."
    )
    settings: ClassVar[Settings] = Settings(
        (
            Setting("field", Kind.STRING, REQUIRED, "Field name to extract."),
            REPLACE_NULL_SETTING,
            SYNTAX_VERSION_SETTING,
        )
    )
    _purpose: ClassVar[str] = "field extraction"

    def __init__(self, config: Mapping[str, Any], is_key: bool) -> None:
        super().__init__(config, is_key)
        self._path = FieldPath(config["field"], config[SYNTAX_VERSION])

    def change(self, record: Record, schema: Schema | None, value: Any) -> tuple[Schema | None, Any]:
        if schema is None:
            return None, None if value is None else self._path.read_map(require_map(value, self._purpose))
        if value is not None:
            require_struct(schema, value, self._purpose)
        field = self._path.find_field(schema)
        if field is None:
            raise RecordError(f"Unknown field: {self._path.text}")
        if value is None:
            return field.schema, None
        return field.schema, self._path.read_struct(schema, value, with_default=self.replaces_null)


class HoistField(KeyOrValueTransformation):
    doc: ClassVar[str] = (
        "Wrap data using the specified field name in a Struct when schema present, or a Map in the case of schemaless "
        "data."
    )
    settings: ClassVar[Settings] = Settings(
        (
            Setting(
                "field",
                Kind.STRING,
                REQUIRED,
                "Field name for the single field that will be created in the resulting Struct or Map.",
            ),
        )
    )

    def __init__(self, config: Mapping[str, Any], is_key: bool) -> None:
        super().__init__(config, is_key)
        self._field: str = config["field"]
        self._schemas = SchemaCache(self._make_schema)

    def change(self, record: Record, schema: Schema | None, value: Any) -> tuple[Schema | None, Any]:
        if schema is None:
            return None, {self._field: value}
        if value is None and not schema.optional:
            refuse_null(self._field, schema)
        return self._schemas.find(schema), {self._field: value}

    def _make_schema(self, schema: Schema) -> Schema:
        return Schema(Type.STRUCT, fields=(Field(self._field, schema),))


class ReplaceField(KeyOrValueTransformation):
    doc: ClassVar[str] = "Filter or rename fields."
    settings: ClassVar[Settings] = Settings(
        (
            Setting("exclude", Kind.LIST, [], "Fields to exclude. This takes precedence over the fields to include."),
            Setting("include", Kind.LIST, [], "Fields to include. If specified, only these fields will be used."),
            Setting("renames", Kind.LIST, [], "Field rename mappings, such as `foo:bar,abc:xyz`."),
            REPLACE_NULL_SETTING,
        )
    )
    _purpose: ClassVar[str] = "field replacement"

    def __init__(self, config: Mapping[str, Any], is_key: bool) -> None:
        super().__init__(config, is_key)
        self._excluded = frozenset(config["exclude"])
        self._included = frozenset(config["include"])
        self._renames = parse_pairs("renames", config["renames"])
        self._plans = SchemaCache(self._make_plan)

    def change(self, record: Record, schema: Schema | None, value: Any) -> tuple[Schema | None, Any]:
        if value is None:
            return schema, None
        if schema is None:
            renames = self._renames
            found = require_map(value, self._purpose)
            return None, {renames.get(name, name): each for name, each in found.items() if self._keeps(name)}
        require_struct(schema, value, self._purpose)
        changed, plan = self._plans.find(schema)
        return changed, plan.copy(value)

    def _keeps(self, name: str) -> bool:
        return name not in self._excluded and (not self._included or name in self._included)

    def _make_plan(self, schema: Schema) -> tuple[Schema, StructCopy]:
        fields = [
            CopiedField(each.name, self._renames.get(each.name, each.name), each.schema)
            for each in schema.fields
            if self._keeps(each.name)
        ]
        changed = make_struct_schema(schema, [Field(each.target, each.schema) for each in fields])
        return changed, StructCopy(fields, replaces_null=self.replaces_null)


class ValueToKey(Transformation):
    doc: ClassVar[str] = "Replace the record key with a new key formed from a subset of fields in the record value."
    settings: ClassVar[Settings] = Settings(
        (
            make_fields_setting("fields", "Field names on the record value to extract as the record key."),
            REPLACE_NULL_SETTING,
        )
    )
    _purpose: ClassVar[str] = "copying fields from value to key"

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._fields: list[str] = config["fields"]
        if len(set(self._fields)) < len(self._fields):
            raise BadConfig(f"fields: a name is there twice: {','.join(self._fields)}")
        self._replaces_null: bool = config[REPLACE_NULL]
        self._plans = SchemaCache(self._make_plan)

    def apply(self, record: Record) -> Record | None:
        schema = record.value_schema
        if schema is None:
            value = require_map(record.value, self._purpose)
            return with_key(record, None, {name: value.get(name) for name in self._fields})
        key_schema, plan = self._plans.find(schema)
        return with_key(record, key_schema, plan.copy(require_struct(schema, record.value, self._purpose)))

    def _make_plan(self, schema: Schema) -> tuple[Schema, StructCopy]:
        fields = []
        for name in self._fields:
            field = schema.find_field(name)
            if field is None:
                raise RecordError(f"Field does not exist: {name}")
            fields.append(field)
        copied = [CopiedField(each.name, each.name, each.schema) for each in fields]
        return Schema(Type.STRUCT, fields=tuple(fields)), StructCopy(copied, replaces_null=self._replaces_null)
