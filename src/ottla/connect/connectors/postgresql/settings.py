"""The settings of change capture, by Debezium's names."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.connect.settings.checks import at_least, between, non_empty, one_of
from ottla.connect.settings.definition import REQUIRED, Importance, Kind, Setting, Settings

_HIGH, _LOW = Importance.HIGH, Importance.LOW

SNAPSHOT_MODES: Final = ("initial", "initial_only", "no_data", "never")
CERTIFICATES: Final = ("sslrootcert", "sslcert", "sslkey", "sslpassword")
"""Options of libpq that have Debezium's names after `database.`."""
OPERATIONS: Final = frozenset(("c", "u", "d", "t", "none"))

_HARMLESS: Final[Mapping[str, Sequence[str]]] = {
    "binary.handling.mode": ("bytes",),
    "converters": (),
    "database.initial.statements": (),
    "event.processing.failure.handling.mode": ("fail",),
    "field.name.adjustment.mode": ("none",),
    "hstore.handling.mode": (),
    "interval.handling.mode": ("numeric",),
    "message.key.columns": (),
    "notification.enabled.channels": (),
    "provide.transaction.metadata": ("false",),
    "publish.via.partition.root": ("false",),
    "read.only": ("false",),
    "replica.identity.autoset.values": (),
    "schema.name.adjustment.mode": ("none",),
    "signal.data.collection": (),
    "signal.enabled.channels": ("source",),
    "slot.failover": ("false",),
    "slot.stream.params": (),
    "snapshot.include.collection.list": (),
    "snapshot.select.statement.overrides": (),
    "topic.delimiter": (".",),
    "topic.heartbeat.prefix": ("__debezium-heartbeat",),
    "topic.naming.strategy": ("io.debezium.schema.SchemaTopicNamingStrategy",),
    "unavailable.value.placeholder": ("__debezium_unavailable_value",),
}
"""Settings of Debezium's that change what is written or done, and the values that change nothing here. Others that only
tune Debezium, such as max.batch.size, have no effect."""
_PREFIXES: Final = ("column.mask.", "column.truncate.", "column.propagate.", "datatype.propagate.")
_OLD: Final = ("schema", "table", "column")
"""What Debezium 1 had a whitelist and a blacklist for."""


def _known_operations(name: str, value: Any) -> None:
    unknown = sorted(set(value) - OPERATIONS)
    if unknown:
        raise ValueError(f"c, u, d, t or none is expected, not {', '.join(unknown)}")


def _refuse(config: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    """What is not obeyed. An include list and an exclude list of the same thing do not go together."""
    errors: dict[str, Sequence[str]] = {}
    for what in _OLD:
        for old, new in (("whitelist", "include"), ("blacklist", "exclude")):
            if config.get(f"{what}.{old}"):
                errors[f"{what}.{old}"] = [f"its name is {what}.{new}.list since Debezium 2"]
        if config.get(f"{what}.include.list") and config.get(f"{what}.exclude.list"):
            errors[f"{what}.exclude.list"] = [f"{what}.include.list is set already"]
    return errors


def _list(what: str, names: str) -> tuple[Setting, Setting]:
    doc = f"Regular expressions that match the whole names of {names}."
    return (
        Setting(f"{what}.include.list", Kind.LIST, None, f"What is captured. {doc}"),
        Setting(f"{what}.exclude.list", Kind.LIST, None, f"What is not captured. {doc}"),
    )


SETTINGS: Final = Settings(
    (
        Setting("database.hostname", Kind.STRING, REQUIRED, "The host of the database.", _HIGH, non_empty),
        Setting("database.port", Kind.INT, 5432, "Its port.", _HIGH, between(1, 65535)),
        Setting("database.user", Kind.STRING, REQUIRED, "Needs the right to replicate.", _HIGH, non_empty),
        Setting("database.password", Kind.PASSWORD, None, "The user's password.", _HIGH),
        Setting("database.dbname", Kind.STRING, REQUIRED, "The database to capture.", _HIGH, non_empty),
        Setting(
            "database.sslmode",
            Kind.STRING,
            "prefer",
            "Whether the connection is encrypted, by libpq's names.",
            check=one_of("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
        ),
        Setting(
            "database.sslrootcert", Kind.STRING, None, "A PEM file of authorities that the server's is checked by."
        ),
        Setting("database.sslcert", Kind.STRING, None, "A PEM file with the certificate of the user."),
        Setting("database.sslkey", Kind.STRING, None, "A PEM file with the key of that certificate."),
        Setting("database.sslpassword", Kind.PASSWORD, None, "The password of that key."),
        Setting("topic.prefix", Kind.STRING, REQUIRED, "Topics are <prefix>.<schema>.<table>.", _HIGH, non_empty),
        Setting("plugin.name", Kind.STRING, "pgoutput", "Only pgoutput is supported.", check=one_of("pgoutput")),
        Setting("slot.name", Kind.STRING, "debezium", "The replication slot. It is created if it is not there."),
        Setting("slot.drop.on.stop", Kind.BOOLEAN, False, "Only for tests: what happens until the next start is lost."),
        Setting("publication.name", Kind.STRING, "dbz_publication", "The publication that the slot follows."),
        Setting(
            "publication.autocreate.mode",
            Kind.STRING,
            "all_tables",
            "Which publication is created if it is not there: for all_tables, the captured ones (filtered), or none "
            "(disabled).",
            check=one_of("all_tables", "filtered", "disabled"),
        ),
        *_list("schema", "schemas"),
        *_list("table", "tables, <schema>.<table>"),
        *_list("column", "columns, <schema>.<table>.<column>"),
        Setting(
            "snapshot.mode",
            Kind.STRING,
            "initial",
            "Whether the rows that are there are written first (initial), alone (initial_only), or not (no_data).",
            check=one_of(*SNAPSHOT_MODES),
        ),
        Setting("tombstones.on.delete", Kind.BOOLEAN, True, "Whether a record without a value follows each deletion."),
        Setting(
            "skipped.operations", Kind.LIST, ["t"], "Which of c, u, d and t are not written.", check=_known_operations
        ),
        Setting(
            "decimal.handling.mode",
            Kind.STRING,
            "precise",
            "How numeric columns are written.",
            check=one_of("precise", "double", "string"),
        ),
        Setting(
            "time.precision.mode",
            Kind.STRING,
            "adaptive",
            "How dates and times are written.",
            check=one_of("adaptive", "adaptive_time_microseconds", "connect"),
        ),
        Setting(
            "heartbeat.interval.ms",
            Kind.LONG,
            0,
            "How often a record is written to __debezium-heartbeat.<prefix>; 0 for never.",
            _LOW,
            at_least(0),
        ),
        Setting(
            "heartbeat.action.query", Kind.STRING, None, "A statement that is run with each of these records.", _LOW
        ),
    ),
    _refuse,
    _HARMLESS,
    _PREFIXES,
)
