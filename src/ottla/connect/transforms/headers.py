"""Transformations of headers: DropHeaders, HeaderFrom, InsertHeader."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from ottla.connect.data.record import Header, Record
from ottla.connect.data.schema import Schema, read_field
from ottla.connect.data.schema_cache import SchemaCache
from ottla.connect.data.values import parse_text
from ottla.connect.errors import BadConfig, RecordError
from ottla.connect.settings.checks import one_of
from ottla.connect.settings.definition import REQUIRED, Importance, Kind, Setting, Settings
from ottla.connect.transforms.transformation import (
    REPLACE_NULL_SETTING,
    CopiedField,
    KeyOrValueTransformation,
    StructCopy,
    Transformation,
    make_fields_setting,
    make_struct_schema,
    require_map,
    require_struct,
    with_headers,
)

MOVE: Final = "move"
COPY: Final = "copy"


class DropHeaders(Transformation):
    doc: ClassVar[str] = "Removes one or more headers from each record."
    settings: ClassVar[Settings] = Settings((make_fields_setting("headers", "The name of the headers to be removed."),))

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._names = frozenset(config["headers"])

    def apply(self, record: Record) -> Record | None:
        return with_headers(record, [each for each in record.headers if each.key not in self._names])


class InsertHeader(Transformation):
    doc: ClassVar[str] = "Add a header to each record."
    settings: ClassVar[Settings] = Settings(
        (
            Setting("header", Kind.STRING, REQUIRED, "The name of the header.", Importance.HIGH),
            Setting(
                "value.literal",
                Kind.STRING,
                REQUIRED,
                "The literal value that is to be set as the header value on all records.",
                Importance.HIGH,
            ),
        )
    )

    def __init__(self, config: Mapping[str, Any]) -> None:
        schema, value = parse_text(config["value.literal"])
        self._header = Header(config["header"], value, schema)

    def apply(self, record: Record) -> Record | None:
        return with_headers(record, [*record.headers, self._header])


class HeaderFrom(KeyOrValueTransformation):
    doc: ClassVar[str] = (
        "Moves or copies fields in the key/value of a record into that record's headers. Corresponding elements of "
        "<code>fields</code> and <code>headers</code> together identify a field and the header it should be moved or "
        "copied to."
    )
    settings: ClassVar[Settings] = Settings(
        (
            make_fields_setting(
                "fields", "Field names in the record whose values are to be copied or moved to headers."
            ),
            make_fields_setting(
                "headers",
                "Header names, in the same order as the field names listed in the fields configuration property.",
            ),
            Setting(
                "operation",
                Kind.STRING,
                REQUIRED,
                "Either <code>move</code> if the fields are to be moved to the headers (removed from the key/value), "
                "or <code>copy</code> if the fields are to be copied to the headers (retained in the key/value).",
                Importance.HIGH,
                check=one_of(MOVE, COPY),
            ),
            REPLACE_NULL_SETTING,
        )
    )

    def __init__(self, config: Mapping[str, Any], is_key: bool) -> None:
        super().__init__(config, is_key)
        fields, headers = config["fields"], config["headers"]
        if len(fields) != len(headers):
            raise BadConfig("'fields' config must have the same number of elements as 'headers' config.")
        self._fields: dict[str, None] = dict.fromkeys(fields)
        self._pairs = list(zip(fields, headers, strict=True))
        self._moves = config["operation"] == MOVE
        self._purpose = f"header {config['operation']}"
        self._plans = SchemaCache(self._make_plan)

    def apply(self, record: Record) -> Record | None:
        schema, value = (record.key_schema, record.key) if self.is_key else (record.value_schema, record.value)
        changed = super().apply(record)
        assert changed is not None
        changed.headers = [*record.headers, *self._make_headers(schema, value)]
        return changed

    def change(self, record: Record, schema: Schema | None, value: Any) -> tuple[Schema | None, Any]:
        if schema is None:
            found = require_map(value, self._purpose)
            if self._moves:
                found = {name: each for name, each in found.items() if name not in self._fields}
            return None, found
        require_struct(schema, value, self._purpose)
        if not self._moves:
            return schema, value
        changed, plan = self._plans.find(schema)
        return changed, plan.copy(value)

    def _make_headers(self, schema: Schema | None, value: dict[str, Any]) -> list[Header]:
        if schema is None:
            return [Header(header, value.get(field)) for field, header in self._pairs]
        return [self._make_header(schema, value, field, header) for field, header in self._pairs]

    def _make_header(self, schema: Schema, value: dict[str, Any], name: str, header: str) -> Header:
        field = schema.find_field(name)
        if field is None:
            raise RecordError(f"Field does not exist: {name}")
        return Header(header, read_field(schema, value, name, with_default=self.replaces_null), field.schema)

    def _make_plan(self, schema: Schema) -> tuple[Schema, StructCopy]:
        kept = [each for each in schema.fields if each.name not in self._fields]
        copied = [CopiedField(each.name, each.name, each.schema) for each in kept]
        return make_struct_schema(schema, kept), StructCopy(copied, replaces_null=self.replaces_null)
