"""Flatten: the fields of nested structs and maps become fields of the outermost one, with longer names."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from ottla.connect.data.record import Record
from ottla.connect.data.schema import Field, Schema, Type
from ottla.connect.data.schema_cache import SchemaCache
from ottla.connect.errors import RecordError
from ottla.connect.settings.definition import Kind, Setting, Settings
from ottla.connect.transforms.transformation import (
    KeyOrValueTransformation,
    make_struct_schema,
    refuse_null,
    require_map,
    require_struct,
)

_PURPOSE: Final = "flattening"
Flattener = Callable[[dict[str, Any], dict[str, Any]], None]
"""Puts the fields of a struct into the flat one."""


class Flatten(KeyOrValueTransformation):
    doc: ClassVar[str] = (
        "Flatten a nested data structure, generating names for each field by concatenating the field names at each "
        "level with a configurable delimiter character. Applies to Struct when schema present, or a Map in the case of "
        "schemaless data. Array fields and their contents are not modified. The default delimiter is '.'."
    )
    settings: ClassVar[Settings] = Settings(
        (
            Setting(
                "delimiter",
                Kind.STRING,
                ".",
                "Delimiter to insert between field names from the input record when generating field names for the "
                "output record",
            ),
        )
    )

    def __init__(self, config: Mapping[str, Any], is_key: bool) -> None:
        super().__init__(config, is_key)
        self._delimiter: str = config["delimiter"]
        self._plans = SchemaCache(self._make_plan)

    def change(self, record: Record, schema: Schema | None, value: Any) -> tuple[Schema | None, Any]:
        if value is None:
            return schema, None
        flat: dict[str, Any] = {}
        if schema is None:
            self._flatten_map(require_map(value, _PURPOSE), "", flat)
            return None, flat
        require_struct(schema, value, _PURPOSE)
        changed, flatten = self._plans.find(schema)
        flatten(value, flat)
        return changed, flat

    def _join(self, prefix: str, name: str) -> str:
        return f"{prefix}{self._delimiter}{name}" if prefix else name

    def _flatten_map(self, value: dict[str, Any], prefix: str, flat: dict[str, Any]) -> None:
        for name, each in value.items():
            if isinstance(each, dict):
                self._flatten_map(each, self._join(prefix, name), flat)
            else:
                flat[self._join(prefix, name)] = each

    def _make_plan(self, schema: Schema) -> tuple[Schema, Flattener]:
        fields: list[Field] = []
        flatten = self._add_fields(schema, "", fields, optional=schema.optional, default=schema.default)
        return make_struct_schema(schema, fields), flatten

    def _add_fields(
        self, schema: Schema, prefix: str, fields: list[Field], *, optional: bool, default: Mapping[str, Any] | None
    ) -> Flattener:
        """Adds the flat fields of a struct, and returns the function that fills them. A field in a struct that may be
        absent may be absent itself, and the default of a struct has the defaults of its fields."""
        plain: list[tuple[str, str, Any, Schema]] = []
        nested: list[tuple[str, Flattener]] = []
        for each in schema.fields:
            name = self._join(prefix, each.name)
            own_default = each.schema.default
            if own_default is None and default is not None:
                own_default = default.get(each.name)
            is_optional = optional or each.schema.optional
            if each.schema.type is Type.STRUCT:
                inner = self._add_fields(each.schema, name, fields, optional=is_optional, default=own_default)
                nested.append((each.name, inner))
            elif each.schema.type is Type.MAP:
                raise RecordError(
                    f"Flatten transformation does not support MAP for record with schemas (for field {name})."
                )
            else:
                flat_schema = replace(each.schema, optional=is_optional, default=own_default)
                fields.append(Field(name, flat_schema))
                plain.append((each.name, name, each.schema.default, flat_schema))
        return _make_flattener(plain, nested)


def _make_flattener(plain: list[tuple[str, str, Any, Schema]], nested: list[tuple[str, Flattener]]) -> Flattener:
    def flatten(struct: dict[str, Any], flat: dict[str, Any]) -> None:
        for source, target, default, schema in plain:
            value = struct.get(source)
            if value is None:
                value = default
                if value is None and not schema.optional:
                    refuse_null(target, schema)
            flat[target] = value
        for name, inner in nested:
            value = struct.get(name)
            if value is not None:
                inner(value, flat)

    return flatten
