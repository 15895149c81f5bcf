"""The settings of JdbcSource, by Confluent's names, and what is wrong with them together."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.connect.connector import MAX_ROWS
from ottla.connect.connectors.jdbc.connection_settings import CONNECTION_SETTINGS, refuse_connection
from ottla.connect.connectors.jdbc.numbers import MAPPINGS
from ottla.connect.settings.checks import at_least, one_of
from ottla.connect.settings.definition import REQUIRED, Importance, Kind, Setting, Settings

BULK: Final = "bulk"
INCREMENTING: Final = "incrementing"
TIMESTAMP: Final = "timestamp"
BOTH: Final = "timestamp+incrementing"
MODES: Final = (BULK, TIMESTAMP, INCREMENTING, BOTH)
TABLE_TYPES: Final = ("TABLE", "PARTITIONED TABLE", "VIEW", "MATERIALIZED VIEW", "FOREIGN TABLE")

_HARMLESS: Final = {
    "catalog.pattern": (),
    "numeric.precision.mapping": ("false",),
    "query.suffix": (),
    "timestamp.granularity": ("connect_logical",),
    "transaction.isolation.mode": ("DEFAULT",),
}
"""Settings of Confluent's that change what is read, and the values that change nothing here."""


def _refuse(config: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    errors = refuse_connection(config)
    mode = config.get("mode")
    if mode in (TIMESTAMP, BOTH) and not config.get("timestamp.column.name"):
        errors["timestamp.column.name"] = [f"mode={mode} needs a timestamp column"]
    if mode in (INCREMENTING, BOTH) and not config.get("incrementing.column.name"):
        errors["incrementing.column.name"] = [f"mode={mode} needs the name of the incrementing column"]
    chosen = [name for name in ("query", "table.whitelist", "table.blacklist") if config.get(name)]
    for name in chosen[1:]:
        errors[name] = [f"it cannot be combined with {chosen[0]}"]
    if not config.get("query") and not config.get("topic.prefix"):
        errors["topic.prefix"] = ["the names of topics need a prefix before those of tables"]
    unknown = [each for each in config.get("table.types") or () if each.upper() not in TABLE_TYPES]
    if unknown:
        errors["table.types"] = [f"{', '.join(unknown)} is none of {', '.join(TABLE_TYPES)}"]
    return errors


SOURCE_SETTINGS: Final = Settings(
    (
        *CONNECTION_SETTINGS,
        Setting("mode", Kind.STRING, REQUIRED, f"{', '.join(MODES)}.", Importance.HIGH, one_of(*MODES)),
        Setting("incrementing.column.name", Kind.STRING, "", "A column whose value is higher in each new row."),
        Setting(
            "timestamp.column.name",
            Kind.LIST,
            (),
            "Columns with the time of the last change; the first that is not null counts.",
        ),
        Setting("validate.non.null", Kind.BOOLEAN, True, "Refuse tables whose columns to poll by may be null."),
        Setting("timestamp.initial", Kind.LONG, None, "Milliseconds since 1970 to begin after; -1 is now."),
        Setting("query", Kind.STRING, "", "A query to read instead of tables. It has no parameters."),
        Setting("table.whitelist", Kind.LIST, (), "Tables to read, `schema.table` or `table`; empty: all."),
        Setting("table.blacklist", Kind.LIST, (), "Tables not to read."),
        Setting("table.types", Kind.LIST, ("TABLE",), "Types of relations that are read if no table is named."),
        Setting("schema.pattern", Kind.STRING, None, "Schemas of the tables, with % and _ as in LIKE."),
        Setting("topic.prefix", Kind.STRING, "", "Before the table's name in that of the topic; the topic of a query."),
        Setting("poll.interval.ms", Kind.INT, 5_000, "How often is looked for new rows.", check=at_least(0)),
        Setting("table.poll.interval.ms", Kind.LONG, 60_000, "How often is looked for new tables.", check=at_least(0)),
        Setting("batch.max.rows", Kind.INT, MAX_ROWS, "Rows of a table that one transaction has.", check=at_least(1)),
        Setting(
            "timestamp.delay.interval.ms",
            Kind.LONG,
            0,
            "Rows whose timestamp is younger than this are left for later.",
            check=at_least(0),
        ),
        Setting(
            "numeric.mapping",
            Kind.STRING,
            "none",
            "What NUMERIC columns become: none (decimals), precision_only, best_fit or best_fit_eager_double.",
            check=one_of(*MAPPINGS),
        ),
    ),
    _refuse,
    _HARMLESS,
)
