"""InsertField: the topic, partition, offset or timestamp of a record as a field, or a fixed value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from ottla.connect.data.logical import TIMESTAMP_SCHEMA, millis_to_datetime
from ottla.connect.data.record import Record
from ottla.connect.data.schema import Field, Schema, Type
from ottla.connect.data.schema_cache import SchemaCache
from ottla.connect.errors import BadConfig, RecordError
from ottla.connect.settings.definition import Kind, Setting, Settings
from ottla.connect.transforms.transformation import (
    REPLACE_NULL_SETTING,
    KeyOrValueTransformation,
    StructCopy,
    copy_all,
    make_struct_schema,
    require_map,
    require_struct,
)

_PURPOSE: Final = "field insertion"
_OPTIONALITY: Final = (
    "Suffix with <code>!</code> to make this a required field, or <code>?</code> to keep it optional (the default)."
)


@dataclass(frozen=True)
class _Insertion:
    name: str
    schema: Schema
    read: Callable[[Record], Any]
    """What is inserted; None inserts nothing."""


class InsertField(KeyOrValueTransformation):
    doc: ClassVar[str] = "Insert field(s) using attributes from the record metadata or a configured static value."
    settings: ClassVar[Settings] = Settings(
        (
            Setting("topic.field", Kind.STRING, None, f"Field name for Kafka topic. {_OPTIONALITY}"),
            Setting("partition.field", Kind.STRING, None, f"Field name for Kafka partition. {_OPTIONALITY}"),
            Setting(
                "offset.field",
                Kind.STRING,
                None,
                f"Field name for Kafka offset - only applicable to sink connectors.<br/>{_OPTIONALITY}",
            ),
            Setting("timestamp.field", Kind.STRING, None, f"Field name for record timestamp. {_OPTIONALITY}"),
            Setting("static.field", Kind.STRING, None, f"Field name for static data field. {_OPTIONALITY}"),
            Setting("static.value", Kind.STRING, None, "Static field value, if field name configured."),
            REPLACE_NULL_SETTING,
        )
    )

    def __init__(self, config: Mapping[str, Any], is_key: bool) -> None:
        super().__init__(config, is_key)
        self._static_value: str | None = config["static.value"]
        if config["static.field"] is not None and self._static_value is None:
            raise BadConfig(f"static.value: No value specified for static field: {config['static.field']}")
        sources: tuple[tuple[str, Schema, Callable[[Record], Any]], ...] = (
            ("topic.field", Schema(Type.STRING), _read_topic),
            ("partition.field", Schema(Type.INT32), _read_partition),
            ("offset.field", Schema(Type.INT64), _read_offset),
            ("timestamp.field", TIMESTAMP_SCHEMA, _read_timestamp),
            ("static.field", Schema(Type.STRING), self._read_static_value),
        )
        self._insertions = [
            _parse_insertion(config[name], schema, read) for name, schema, read in sources if config[name] is not None
        ]
        if not self._insertions:
            raise BadConfig("No field insertion configured")
        self._plans = SchemaCache(self._make_plan)

    def change(self, record: Record, schema: Schema | None, value: Any) -> tuple[Schema | None, Any]:
        if value is None:
            return schema, None
        if schema is None:
            changed = dict(require_map(value, _PURPOSE))
            for each in self._insertions:
                found = record.timestamp if each.read is _read_timestamp else each.read(record)
                if found is not None:
                    changed[each.name] = found
            return None, changed
        require_struct(schema, value, _PURPOSE)
        changed_schema, plan = self._plans.find(schema)
        changed = plan.copy(value)
        for each in self._insertions:
            changed[each.name] = each.read(record)
        return changed_schema, changed

    def _make_plan(self, schema: Schema) -> tuple[Schema, StructCopy]:
        inserted = [Field(each.name, each.schema) for each in self._insertions]
        changed = make_struct_schema(schema, [*schema.fields, *inserted])
        return changed, copy_all(schema, replaces_null=self.replaces_null)

    def _read_static_value(self, _: Record) -> str | None:
        return self._static_value


def _parse_insertion(text: str, schema: Schema, read: Callable[[Record], Any]) -> _Insertion:
    name = text[:-1] if text.endswith(("?", "!")) else text
    return _Insertion(name, replace(schema, optional=not text.endswith("!")), read)


def _read_topic(record: Record) -> str:
    return record.topic


def _read_partition(record: Record) -> int | None:
    return record.partition


def _read_offset(record: Record) -> int:
    if record.offset is None:
        raise RecordError(f"Only records of a sink supported for [{_PURPOSE}]: others have no offset")
    return record.offset


def _read_timestamp(record: Record) -> Any:
    return None if record.timestamp is None else millis_to_datetime(record.timestamp)
