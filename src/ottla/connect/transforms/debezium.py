"""ExtractNewRecordState: the rows out of Debezium's envelopes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from ottla.connect.data.record import Header, Record
from ottla.connect.data.schema import Field, Schema, Type
from ottla.connect.data.schema_cache import SchemaCache
from ottla.connect.errors import RecordError
from ottla.connect.settings.checks import one_of
from ottla.connect.settings.definition import Kind, Setting, Settings
from ottla.connect.transforms.transformation import Transformation, with_value

DELETED: Final = "__deleted"
_ENVELOPE: Final = frozenset(("before", "after", "op"))
_MODES: Final = {
    "drop": ("drop", True),
    "tombstone": ("drop", False),
    "rewrite": ("rewrite", True),
    "rewrite-with-tombstone": ("rewrite", False),
    "delete-to-tombstone": ("none", True),
}
"""By delete.tombstone.handling.mode: delete.handling.mode and drop.tombstones."""
_HARMLESS: Final = {"operation.header": ("false",), "replace.null.with.default": ("true",)}
_PREFIXES: Final = ("drop.fields.",)
"""What Debezium's transformation has besides, and is not obeyed."""
_DELETED_SCHEMA: Final = Schema(Type.STRING, optional=True)


class ExtractNewRecordState(Transformation):
    doc: ClassVar[str] = (
        "Extracts the row after a change out of the envelope that change capture writes, as Debezium's transformation."
    )
    settings: ClassVar[Settings] = Settings(
        (
            Setting("drop.tombstones", Kind.BOOLEAN, True, "Whether tombstones are dropped."),
            Setting(
                "delete.handling.mode",
                Kind.STRING,
                "drop",
                "What becomes of deletions: drop, rewrite (the row before with __deleted), or none (a tombstone).",
                check=one_of("drop", "rewrite", "none"),
            ),
            Setting(
                "delete.tombstone.handling.mode",
                Kind.STRING,
                None,
                "Instead of the two settings above, by Debezium's names.",
                check=one_of(*_MODES),
            ),
            Setting("add.fields", Kind.LIST, [], "Fields of the envelope to add, such as op or source.ts_ms[:name]."),
            Setting("add.fields.prefix", Kind.STRING, "__", "The beginning of the names of added fields."),
            Setting("add.headers", Kind.LIST, [], "Fields of the envelope to add as headers, named like add.fields."),
            Setting("add.headers.prefix", Kind.STRING, "__", "The beginning of the names of added headers."),
            Setting("route.by.field", Kind.STRING, "", "The field of the row that names the topic of the record."),
        ),
        harmless=_HARMLESS,
        refused_prefixes=_PREFIXES,
    )

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._deletion: str = config["delete.handling.mode"]
        self._drops_tombstones: bool = config["drop.tombstones"]
        mode = config["delete.tombstone.handling.mode"]
        if mode is not None:
            self._deletion, self._drops_tombstones = _MODES[mode]
        self._added = [_split(each, config["add.fields.prefix"]) for each in config["add.fields"]]
        self._headers = [_split(each, config["add.headers.prefix"]) for each in config["add.headers"]]
        self._topic_field: str = config["route.by.field"]
        self._schemas = SchemaCache(self._make_schema)

    def apply(self, record: Record) -> Record | None:
        value = record.value
        if value is None:
            return None if self._drops_tombstones else record
        if not isinstance(value, dict) or not value.keys() >= _ENVELOPE:
            return record  # a heartbeat, for example
        row, is_deleted = value["after"], value["op"] == "d"
        if value["op"] == "t":
            return None
        if is_deleted:
            row = value["before"]
            if self._deletion == "drop":
                return None
            if self._deletion == "none":
                return self._address(with_value(record, None, None), record, row)
        if row is None:
            return None
        changed = dict(row)
        if self._deletion == "rewrite":
            changed[DELETED] = "true" if is_deleted else "false"
        for path, name in self._added:
            changed[name] = _find(value, path)
        schema = record.value_schema
        found = with_value(record, None if schema is None else self._schemas.find(schema), changed)
        return self._address(found, record, row)

    def _address(self, changed: Record, record: Record, row: Mapping[str, Any] | None) -> Record:
        """Adds the headers, and goes to the topic that the row names."""
        if self._headers:
            added = [
                Header(name, _find(record.value, path), record.value_schema and _find_schema(record.value_schema, path))
                for path, name in self._headers
            ]
            changed.headers = [*record.headers, *added]
        if self._topic_field:
            named = (row or {}).get(self._topic_field)
            if named is None:
                raise RecordError(f"the row has no {self._topic_field} that names its topic (route.by.field)")
            changed.topic = str(named)
        return changed

    def _make_schema(self, schema: Schema) -> Schema:
        after = schema.find_field("after")
        assert after is not None
        fields = list(after.schema.fields)
        if self._deletion == "rewrite":
            fields.append(Field(DELETED, _DELETED_SCHEMA))
        for path, name in self._added:
            fields.append(Field(name, _find_schema(schema, path)))
        return replace(after.schema, optional=False, fields=tuple(fields))


def _split(text: str, prefix: str) -> tuple[Sequence[str], str]:
    """The way to a field and its new name: `source.ts_ms:time` is `__time`, `source.ts_ms` is `__source_ts_ms`."""
    path, _, name = text.partition(":")
    return path.split("."), prefix + (name or path.replace(".", "_"))


def _find(value: Any, path: Sequence[str]) -> Any:
    """A field that stands neither there nor in `source` is null."""
    if len(path) == 1 and path[0] not in value:
        value = value.get("source")
    for each in path:
        value = value.get(each) if isinstance(value, dict) else None
    return value


def _find_schema(schema: Schema, path: Sequence[str]) -> Schema:
    """Of a field that may be null."""
    if len(path) == 1 and schema.find_field(path[0]) is None:
        path = ["source", *path]
    for each in path:
        found = schema.find_field(each)
        if found is None:
            return Schema(Type.STRING, optional=True)
        schema = found.schema
    return replace(schema, optional=True)
