"""Settings of the JDBC connectors: URLs, contradictions and settings that are not supported."""

from typing import Any

import pytest

from ottla.connect.connectors.jdbc.connection_settings import read_url
from ottla.connect.connectors.jdbc.numbers import find_number
from ottla.connect.connectors.jdbc.sink import JdbcSink
from ottla.connect.connectors.jdbc.source import JdbcSource
from ottla.connect.connectors.postgresql.connecting import Server
from ottla.connect.data.schema import Type
from ottla.connect.errors import BadConfig
from ottla.connect.settings.parsing import parse

SQLITE = "jdbc:sqlite:some.db"


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("jdbc:postgresql://db:5433/shop", Server("db", 5433, "shop")),
        (
            "jdbc:postgresql://db/shop?user=u&password=p&sslmode=require",
            Server("db", 5432, "shop", "u", "p", "require"),
        ),
        ("jdbc:postgresql:shop", Server("localhost", 5432, "shop")),
        ("jdbc:postgresql:shop?stringtype=unspecified&reWriteBatchedInserts=true", Server("localhost", 5432, "shop")),
        (
            "jdbc:postgresql:shop?ssl=true&sslrootcert=/ca.pem&currentSchema=a,b%20c&ApplicationName=x",
            Server(
                "localhost",
                5432,
                "shop",
                sslmode="verify-full",
                more=(
                    ("sslrootcert", "/ca.pem"),
                    ("application_name", "x"),
                    ("options", r"-c search_path=a,b\ c"),
                ),
            ),
        ),
        ("jdbc:postgresql://[::1]:1/shop", Server("::1", 1, "shop")),
        ("jdbc:sqlite:/data/a.db", "/data/a.db"),
    ],
)
def test_urls(url: str, place: Server | str) -> None:
    assert read_url(url) == place


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("jdbc:mysql://db/shop", "the database mysql is not supported"),
        ("postgresql://db/shop", "it is no JDBC URL"),
        ("jdbc:sqlite::memory:", "must be a file"),
        ("jdbc:postgresql://db/", "names no database"),
        ("jdbc:postgresql://db/shop?socketFactory=x", "the options socketFactory of the URL are not supported"),
    ],
)
def test_urls_that_are_refused(url: str, reason: str) -> None:
    with pytest.raises(BadConfig, match=reason):
        read_url(url)


def find_error(kind: Any, **config: Any) -> str:
    given = {"connection.url": SQLITE, **{name.replace("_", "."): str(value) for name, value in config.items()}}
    with pytest.raises(BadConfig) as caught:
        parse(kind.settings, given)
    return str(caught.value)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"insert_mode": "upsert"}, "pk.mode"),
        ({"insert_mode": "update"}, "pk.mode"),
        ({"delete_enabled": True, "pk_mode": "record_value"}, "delete.enabled"),
        ({"pk_fields": "id"}, "pk.fields"),
        ({"pk_mode": "kafka", "pk_fields": "a,b"}, "pk.fields"),
        ({"dialect_name": "PostgreSqlDatabaseDialect"}, "dialect.name"),
        ({"db_timezone": "Europe/Prague"}, "db.timezone"),
        ({"date_timezone": "DB_TIMEZONE"}, "date.timezone"),
    ],
)
def test_settings_of_a_sink_that_are_refused(config: dict[str, Any], name: str) -> None:
    assert find_error(JdbcSink, **config).startswith((f"{name}: ", f"{name}="))


def test_settings_that_only_tune_confluents_connectors_pass() -> None:
    """Whoever has them in a configuration need not take them out."""
    tuning = {"retry.backoff.ms": "3000", "connection.attempts": "3", "connection.backoff.ms": "10000"}
    defaults = {"table.types": "TABLE", "date.timezone": "UTC"}
    assert parse(JdbcSink.settings, {"connection.url": SQLITE, **tuning, **defaults})["insert.mode"] == "insert"
    source = {"mode": "bulk", "topic.prefix": "p", "numeric.precision.mapping": "false"}
    assert parse(JdbcSource.settings, {"connection.url": SQLITE, **tuning, **source})["mode"] == "bulk"


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"mode": "timestamp"}, "timestamp.column.name"),
        ({"mode": "incrementing"}, "incrementing.column.name"),
        ({"mode": "bulk", "query": "SELECT 1", "table_whitelist": "a"}, "table.whitelist"),
        ({"mode": "bulk", "table_blacklist": "b", "table_whitelist": "a"}, "table.blacklist"),
        ({"mode": "bulk", "table_types": "SYNONYM"}, "table.types"),
        ({"mode": "bulk", "query_suffix": "FOR UPDATE"}, "query.suffix"),
        ({"mode": "bulk", "topic_prefix": ""}, "topic.prefix"),
    ],
)
def test_settings_of_a_source_that_are_refused(config: dict[str, Any], name: str) -> None:
    assert find_error(JdbcSource, **{"topic_prefix": "db-", **config}).startswith((f"{name}: ", f"{name}="))


@pytest.mark.parametrize(
    ("mapping", "declared", "kind"),
    [
        ("none", "numeric(4,0)", Type.BYTES),
        ("precision_only", "numeric(2)", Type.INT8),
        ("precision_only", "numeric(4,0)", Type.INT16),
        ("precision_only", "numeric(4,2)", Type.BYTES),
        ("best_fit", "numeric(9)", Type.INT32),
        ("best_fit", "numeric(18)", Type.INT64),
        ("best_fit", "numeric(19)", Type.BYTES),
        ("best_fit", "numeric(10,2)", Type.FLOAT64),
        ("best_fit", "numeric(30,2)", Type.BYTES),
        ("best_fit_eager_double", "numeric(30,2)", Type.FLOAT64),
        ("best_fit", "numeric", Type.BYTES),
    ],
)
def test_numeric_mapping(mapping: str, declared: str, kind: Type) -> None:
    assert find_number(mapping, declared).type is kind
