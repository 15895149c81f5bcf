"""Settings of change capture: what Debezium obeys and this connector does not is refused by name."""

import pytest

from ottla.connect.connectors.postgresql.source import PostgresConnector
from ottla.connect.errors import BadConfig
from ottla.connect.settings.parsing import parse

RIGHT = {"database.hostname": "db", "database.user": "u", "database.dbname": "shop", "topic.prefix": "shop"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("column.mask.with.10.chars", "public.customers.email"),
        ("column.mask.hash.SHA-256.with.salt.x", "public.customers.email"),
        ("column.truncate.to.10.chars", "public.customers.email"),
        ("message.key.columns", "public.customers:email"),
        ("snapshot.select.statement.overrides", "public.customers"),
        ("signal.data.collection", "public.signals"),
        ("provide.transaction.metadata", "true"),
        ("binary.handling.mode", "base64"),
        ("topic.naming.strategy", "com.example.MyStrategy"),
        ("table.whitelist", "public.customers"),
        ("snapshot.mode", "when_needed"),
    ],
)
def test_what_cannot_be_obeyed_is_refused(name: str, value: str) -> None:
    """Above all masks: a column that was to be hidden must not be written because a setting is not known."""
    with pytest.raises(BadConfig, match=name.replace(".", r"\.")):
        parse(PostgresConnector.settings, {**RIGHT, name: value})


def test_what_only_tunes_debezium_passes() -> None:
    tuning = {"max.batch.size": "2048", "poll.interval.ms": "500", "snapshot.fetch.size": "10", "slot.max.retries": "6"}
    defaults = {"binary.handling.mode": "bytes", "schema.name.adjustment.mode": "none", "topic.delimiter": "."}
    assert parse(PostgresConnector.settings, {**RIGHT, **tuning, **defaults})["plugin.name"] == "pgoutput"
