"""The settings of JdbcSink, by Confluent's names, and what is wrong with them together."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.connect.connectors.jdbc.connection_settings import CONNECTION_SETTINGS, refuse_connection
from ottla.connect.settings.checks import OptionalAtLeast, at_least, non_empty, one_of
from ottla.connect.settings.definition import Importance, Kind, Setting, Settings

_HARMLESS: Final = {
    "date.timezone": ("UTC",),
    "replace.null.with.default": ("false",),
    "table.types": ("TABLE",),
}
"""Settings of Confluent's that change what is written, and the values that change nothing here."""


def _refuse(config: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    errors = refuse_connection(config)
    pk_mode, insert_mode = config.get("pk.mode"), config.get("insert.mode")
    if insert_mode in ("upsert", "update") and pk_mode == "none":
        errors["pk.mode"] = [f"insert.mode={insert_mode} needs a primary key: kafka, record_key or record_value"]
    if config.get("delete.enabled") and pk_mode != "record_key":
        errors["delete.enabled"] = ["deletes need pk.mode=record_key, because a tombstone has a key only"]
    fields = config.get("pk.fields") or []
    if pk_mode == "none" and fields:
        errors["pk.fields"] = ["there is no primary key with pk.mode=none"]
    if pk_mode == "kafka" and len(fields) not in (0, 3):
        errors["pk.fields"] = ["pk.mode=kafka has three fields: for the topic, the partition and the offset"]
    return errors


SINK_SETTINGS: Final = Settings(
    (
        *CONNECTION_SETTINGS,
        Setting(
            "insert.mode",
            Kind.STRING,
            "insert",
            "insert, upsert (insert, or update by the primary key) or update.",
            Importance.HIGH,
            one_of("insert", "upsert", "update"),
        ),
        Setting("batch.size", Kind.INT, 10_000, "Rows that one statement writes.", check=at_least(1)),
        Setting("delete.enabled", Kind.BOOLEAN, False, "Whether a tombstone deletes the row of its key."),
        Setting(
            "table.name.format",
            Kind.STRING,
            "${topic}",
            "The table's name, `schema.table` or `table`; ${topic} is the topic's.",
            check=non_empty,
        ),
        Setting(
            "pk.mode",
            Kind.STRING,
            "none",
            "Where the primary key comes from: none, kafka (topic, partition, offset), record_key or record_value.",
            Importance.HIGH,
            one_of("none", "kafka", "record_key", "record_value"),
        ),
        Setting("pk.fields", Kind.LIST, (), "The fields of the primary key; empty: all of the key or value."),
        Setting("fields.whitelist", Kind.LIST, (), "The fields of the value that are written; empty: all."),
        Setting("auto.create", Kind.BOOLEAN, False, "Whether a missing table is created."),
        Setting("auto.evolve", Kind.BOOLEAN, False, "Whether missing columns are added."),
        Setting(
            "max.retries",
            Kind.INT,
            None,
            "How often a batch is tried again while the database is away or busy; not set: until it succeeds.",
            check=OptionalAtLeast(0),
        ),
        Setting(
            "ledger.table",
            Kind.STRING,
            "ottla_connect_ledger",
            "The table that says how far each topic partition has been written.",
            check=non_empty,
        ),
    ),
    _refuse,
    _HARMLESS,
)
