"""SetSchemaMetadata: another name or version for the schema of keys or values."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from ottla.connect.data.record import Record
from ottla.connect.data.schema import Schema, Type
from ottla.connect.data.schema_cache import SchemaCache
from ottla.connect.errors import BadConfig, RecordError
from ottla.connect.settings.definition import Importance, Kind, Setting, Settings
from ottla.connect.transforms.transformation import (
    REPLACE_NULL_SETTING,
    KeyOrValueTransformation,
    StructCopy,
    copy_all,
)


class SetSchemaMetadata(KeyOrValueTransformation):
    doc: ClassVar[str] = "Set the schema name, version or both on the record's key or value schema."
    settings: ClassVar[Settings] = Settings(
        (
            Setting("schema.name", Kind.STRING, None, "Schema name to set.", Importance.HIGH),
            Setting("schema.version", Kind.INT, None, "Schema version to set.", Importance.HIGH),
            REPLACE_NULL_SETTING,
        )
    )

    def __init__(self, config: Mapping[str, Any], is_key: bool) -> None:
        super().__init__(config, is_key)
        self._name: str | None = config["schema.name"]
        self._version: int | None = config["schema.version"]
        if self._name is None and self._version is None:
            raise BadConfig("Neither schema name nor version configured")
        self._plans = SchemaCache(self._make_plan)

    def change(self, record: Record, schema: Schema | None, value: Any) -> tuple[Schema | None, Any]:
        if schema is None:
            if value is None:
                return None, None
            raise RecordError("Schema required for [updating schema metadata]")
        changed, plan = self._plans.find(schema)
        return changed, plan.copy(value) if plan and value is not None else value

    def _make_plan(self, schema: Schema) -> tuple[Schema, StructCopy | None]:
        changed = replace(
            schema,
            name=schema.name if self._name is None else self._name,
            version=schema.version if self._version is None else self._version,
        )
        is_struct = schema.type is Type.STRUCT
        return changed, copy_all(schema, replaces_null=self.replaces_null) if is_struct else None
