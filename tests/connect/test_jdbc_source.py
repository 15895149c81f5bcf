"""JdbcSource on SQLite and PostgreSQL, without a broker: modes, offsets, types, and commits that come late."""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.postgresql import PostgreSqlServer
from ottla.connect.connector import SourceOffset, partition_key
from ottla.connect.connectors.jdbc.source import JdbcSource
from ottla.connect.data.conversion import columns_to_records
from ottla.connect.data.record import Record
from ottla.connect.data.schema import Type
from ottla.connect.errors import ConnectError
from tests.connect.jdbc_databases import Database, create_database, postgresql_server

NUMBERED = {"mode": "incrementing", "incrementing_column_name": "id", "topic_prefix": "db-", "poll_interval_ms": 0}
TIMED = {"timestamp_column_name": "changed", "topic_prefix": "db-", "poll_interval_ms": 0}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSqlServer]:
    with postgresql_server() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "sqlite":
        return Database(f"jdbc:sqlite:{tmp_path / 'test.db'}")
    running: PostgreSqlServer = request.getfixturevalue("server")
    return create_database(running, f"db_{abs(hash(request.node.name)) % 10**9}")


class Stepped:
    """Does what a worker does with a source, one round at a time."""

    def __init__(self, source: JdbcSource) -> None:
        self.source = source
        self.offsets: dict[str, SourceOffset] = {}
        self.partitions: list[Any] = []

    def run_round(self) -> list[Record]:
        found: list[Record] = []
        for part in self.source.plan(dict(self.offsets)):
            self.partitions.append(part.partition)
            key = partition_key(part.partition)
            for batch in self.source.read(part, self.offsets.get(key)):
                for rows in batch.rows:
                    assert not isinstance(rows, list)
                    found += columns_to_records(rows)  # type: ignore[arg-type]
                if batch.offset is not None:
                    self.offsets[key] = batch.offset
        return found

    def read_ids(self) -> list[int]:
        return [each.value["id"] for each in self.run_round()]


def make_source(database: Database, **config: Any) -> Stepped:
    return Stepped(database.make(JdbcSource, **config))


def test_rows_with_higher_numbers_are_new(database: Database) -> None:
    database.run("CREATE TABLE people (id bigint NOT NULL PRIMARY KEY, name text)")
    source = make_source(database, batch_max_rows=3, **NUMBERED)
    assert source.run_round() == []
    database.run("INSERT INTO people VALUES (1, 'a'), (2, NULL), (3, 'c'), (5, 'e')")
    first = source.run_round()
    assert [(each.topic, each.value) for each in first[:2]] == [
        ("db-people", {"id": 1, "name": "a"}),
        ("db-people", {"id": 2, "name": None}),
    ]
    schema = first[0].value_schema
    assert schema is not None
    assert (schema.name, [(each.name, each.schema.optional) for each in schema.fields]) == (
        "people",
        [("id", False), ("name", True)],
    )
    assert source.read_ids() == [5]
    assert source.read_ids() == []
    database.run("INSERT INTO people VALUES (4, 'late'), (6, 'f')")
    assert source.read_ids() == [6]
    assert list(source.offsets.values()) == [{"incrementing": 6}]
    name = "public.people" if "postgresql" in database.config["connection.url"] else "people"
    assert source.partitions[0] == {"protocol": "1", "table": name}


def test_rows_of_one_time_stay_together(database: Database) -> None:
    """More rows of a moment than a page has come in one piece; the offset is after the whole moment."""
    database.run("CREATE TABLE people (id bigint NOT NULL, changed timestamp NOT NULL)")
    rows = ", ".join(f"({n}, '2024-03-01 10:00:0{n // 4}.250')" for n in range(12))
    database.run(f"INSERT INTO people VALUES {rows}")
    source = make_source(database, mode="timestamp", batch_max_rows=6, **TIMED)
    assert source.read_ids() == [0, 1, 2, 3]
    at = datetime(2024, 3, 1, 10, 0, 0, 250_000, UTC)
    assert list(source.offsets.values()) == [{"timestamp": int(at.timestamp() * 1000), "timestamp_nanos": 250_000_000}]
    small = make_source(database, mode="timestamp", batch_max_rows=2, **TIMED)
    assert [small.read_ids() for _ in range(4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], []]


def test_time_and_number_together(database: Database) -> None:
    database.run("CREATE TABLE people (id bigint NOT NULL, changed timestamp NOT NULL)")
    database.run("INSERT INTO people VALUES (1, '2024-03-01 10:00:00'), (2, '2024-03-01 10:00:00')")
    both = {"mode": "timestamp+incrementing", "incrementing_column_name": "id", **TIMED}
    source = make_source(database, batch_max_rows=1, **both)
    assert [source.read_ids(), source.read_ids(), source.read_ids()] == [[1], [2], []]
    database.run("UPDATE people SET changed = '2024-03-01 10:00:01' WHERE id = 1")
    assert source.read_ids() == [1]
    database.run("INSERT INTO people VALUES (3, '2999-01-01 00:00:00')")
    assert source.read_ids() == []
    delayed = make_source(database, timestamp_delay_interval_ms=10**13, **both)
    assert delayed.read_ids() == []
    started = make_source(database, timestamp_initial=1709287200000, **both)
    assert started.read_ids() == [1]


def test_bulk_reads_everything_again(database: Database) -> None:
    database.run("CREATE TABLE a (id bigint)", "CREATE TABLE b (id bigint)", "INSERT INTO a VALUES (1), (2)")
    source = make_source(database, mode="bulk", topic_prefix="db-", poll_interval_ms=0, table_blacklist="b")
    assert [source.read_ids(), source.read_ids()] == [[1, 2], [1, 2]]
    assert source.partitions == [{"table": "a"}, {"table": "a"}]
    more = make_source(database, mode="bulk", topic_prefix="db-", poll_interval_ms=10**8)
    database.run("INSERT INTO b VALUES (3)")
    assert [more.read_ids(), more.read_ids(), more.read_ids()] == [[1, 2], [3], []]
    rare = make_source(database, mode="bulk", topic_prefix="db-", poll_interval_ms=10**8, table_whitelist="a")
    assert [rare.read_ids(), rare.read_ids()] == [[1, 2], []]


def test_a_query(database: Database) -> None:
    database.run("CREATE TABLE a (id bigint, kind text)", "INSERT INTO a VALUES (1, 'x'), (2, 'y'), (3, 'x')")
    query = {"query": "SELECT id, kind AS what FROM a WHERE kind = 'x'", **NUMBERED, "topic_prefix": "chosen"}
    source = make_source(database, **query)
    found = source.run_round()
    assert [(each.topic, each.value) for each in found] == [
        ("chosen", {"id": 1, "what": "x"}),
        ("chosen", {"id": 3, "what": "x"}),
    ]
    assert source.partitions == [{"query": "query"}]


def test_types(database: Database) -> None:
    database.run(
        "CREATE TABLE a (id integer, price numeric(10,2), part real, is_new boolean, day date, at timestamp, data %s)"
        % ("bytea" if "postgresql" in database.config["connection.url"] else "blob"),
        "INSERT INTO a VALUES (1, 12.50, 0.5, true, '2024-02-29', '2024-02-29 01:02:03.004', NULL)",
    )
    source = make_source(database, mode="bulk", topic_prefix="db-", poll_interval_ms=0)
    (record,) = source.run_round()
    assert record.value == {
        "id": 1,
        "price": Decimal("12.50"),
        "part": 0.5,
        "is_new": True,
        "day": date(2024, 2, 29),
        "at": datetime(2024, 2, 29, 1, 2, 3, 4_000, UTC),
        "data": None,
    }
    fitted = make_source(database, mode="bulk", topic_prefix="db-", numeric_mapping="best_fit")
    (record,) = fitted.run_round()
    assert record.value_schema is not None
    assert record.value_schema.fields[1].schema.type is Type.FLOAT64
    assert record.value["price"] == 12.5


def test_what_cannot_be_polled_is_named(database: Database) -> None:
    database.run("CREATE TABLE people (id bigint, name text)")
    with pytest.raises(ConnectError, match=r"people: id may be null, and validate\.non\.null is true"):
        make_source(database, **NUMBERED).run_round()
    with pytest.raises(ConnectError, match="people has no column nr to poll by"):
        make_source(database, **{**NUMBERED, "incrementing_column_name": "nr"}).run_round()
    with pytest.raises(ConnectError, match=r"table\.whitelist: there is no table nobody"):
        make_source(database, table_whitelist="nobody", **NUMBERED).run_round()


def test_a_late_commit_is_not_passed_by(server: PostgreSqlServer) -> None:
    """A transaction has taken a number or a time, and another one that began later commits before it."""
    database = create_database(server, "late")
    database.run(
        "CREATE TABLE people (id bigserial PRIMARY KEY, changed timestamptz NOT NULL DEFAULT now())",
        "INSERT INTO people DEFAULT VALUES",
    )
    numbers = make_source(database, **NUMBERED)
    times = make_source(database, mode="timestamp", **TIMED)
    assert (numbers.read_ids(), times.read_ids()) == ([1], [1])
    with database.open() as slow:
        slow.execute("INSERT INTO people DEFAULT VALUES")
        database.run("INSERT INTO people DEFAULT VALUES")
        assert (numbers.read_ids(), times.read_ids()) == ([], [])
        slow.commit()
    assert (numbers.read_ids(), times.read_ids()) == ([2, 3], [2, 3])
