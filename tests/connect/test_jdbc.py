"""JDBC connectors on a broker and Spark: from one database through a topic to another, with the configuration of
docs/connect.md."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.connect.connectors.jdbc.sink import JdbcSink
from ottla.connect.connectors.jdbc.source import JdbcSource
from ottla.testing import LocalBroker
from tests.connect.jdbc_databases import Database
from tests.connect.runs import count_records, read_offsets, running, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[2] / "docs" / "connect.md"


def read_configs() -> list[dict[str, str]]:
    """The two configurations of the section, source and sink."""
    section = DOCS.read_text(encoding="utf-8").partition("## Tables of PostgreSQL and SQLite (JDBC)")[2]
    return [json.loads(each) for each in re.findall(r"```json\n(.*?)```", section, re.DOTALL)[:2]]


def test_rows_are_copied_from_database_to_database(spark: "SparkSession", broker: LocalBroker, tmp_path: Path) -> None:
    """Each row once, over a restart of both; deleted rows stay, because polling does not see deletes."""
    files = [tmp_path / "shop.db", tmp_path / "copy.db"]
    shop, copy = (Database(f"jdbc:sqlite:{file}") for file in files)
    shop.run("CREATE TABLE orders (id integer NOT NULL PRIMARY KEY, item text, price decimal(8,2))")
    changes = {"name": None, "connector.class": None}
    configs = []
    for config, file in zip(read_configs(), files, strict=True):
        kept = {key: value for key, value in config.items() if key not in changes}
        given = {**kept, "connection.url": f"jdbc:sqlite:{file}", "value.converter": config["value.converter"]}
        given.pop("connection.user", None)
        given.pop("connection.password", None)
        configs.append({key.replace(".", "_"): value for key, value in given.items()})
    source, sink = configs
    for first in (0, 50):
        rows = ", ".join(f"({n}, 'item {n}', {n}.25)" for n in range(first, first + 50))
        shop.run(f"INSERT INTO orders VALUES {rows}")
        with running(spark, broker, JdbcSource, "orders", **source) as run:
            wait_until(lambda last=first + 50: count_records(broker, "shop-orders") == last, lambda: run.status)  # type: ignore[misc]
        with running(spark, broker, JdbcSink, "copies", **sink) as run:

            def is_copied(last: int = first + 50) -> bool:
                tables = copy.query("SELECT name FROM sqlite_master WHERE name = 'orders'")
                return bool(tables) and copy.query("SELECT count(*) FROM orders") == [(last,)]

            wait_until(is_copied, lambda: run.status)
    assert copy.query("SELECT id, item, price FROM orders ORDER BY id") == [
        (n, f"item {n}", n + 0.25) for n in range(100)
    ]
    assert read_offsets(broker, "orders") == [({"protocol": "1", "table": "orders"}, {"incrementing": 99})]
