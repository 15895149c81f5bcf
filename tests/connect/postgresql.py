"""A PostgreSQL server for tests, and a capture that is driven step by step without a broker."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any

from benchmarks.peers.apache_kafka import Unavailable
from benchmarks.peers.postgresql import LOGICAL, run_postgresql
from ottla.connect.connector import ConnectorContext, Part, Source, SourceOffset, partition_key
from ottla.connect.connectors.postgresql.connecting import Server, connect, execute, query_rows
from ottla.connect.connectors.postgresql.source import PostgresConnector
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.conversion import columns_to_records
from ottla.connect.data.record import Record
from ottla.connect.settings.parsing import parse
from tests.needs import skip_without


@contextmanager
def postgresql() -> Iterator["Database"]:
    """A server with logical decoding. Without PostgreSQL the running test is skipped."""
    try:
        with run_postgresql(LOGICAL) as server:
            database = Database(Server("127.0.0.1", server.port, "postgres", "postgres"), [])
            try:
                yield database
            finally:
                for each in database.captures:
                    each.source.stop()
    except Unavailable as reason:
        skip_without("PostgreSQL", str(reason))


class Database:
    """One database of a running server."""

    def __init__(self, server: Server, captures: "list[SteppedSource]") -> None:
        self.server = server
        self.captures = captures
        """Of all databases of the server; they are stopped before it."""

    def create(self, name: str) -> "Database":
        """A database of its own for a test."""
        self.run(f"CREATE DATABASE {name}")
        return Database(Server(self.server.host, self.server.port, name, self.server.user), self.captures)

    def run(self, *statements: str) -> None:
        """Each is a transaction of its own."""
        with closing(connect(self.server)) as connection:
            for each in statements:
                execute(connection, each)

    def query(self, sql: str) -> list[dict[str, Any]]:
        with closing(connect(self.server)) as connection:
            return query_rows(connection, sql)

    def make_config(self, **config: Any) -> dict[str, str]:
        """The settings of a capture. Names have `_` for the dot."""
        return {
            "database.hostname": self.server.host,
            "database.port": str(self.server.port),
            "database.user": str(self.server.user),
            "database.dbname": self.server.database,
            "topic.prefix": "shop",
            "slot.name": f"slot_{self.server.database}",
            **{name.replace("_", "."): str(value) for name, value in config.items()},
        }

    def capture(self, **config: Any) -> "SteppedSource":
        values = parse(PostgresConnector.settings, self.make_config(**config))
        made = SteppedSource(PostgresConnector(values, ConnectorContext("capture", "workers", 1, {})))
        self.captures.append(made)
        return made


class SteppedSource:
    """Does what a worker does with a source, one round at a time."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.offsets: dict[str, SourceOffset] = {}
        self.records: list[Record] = []

    def run_round(self, batches_max: int | None = None) -> bool:
        """False if there was nothing to do."""
        parts = self.source.plan(dict(self.offsets))
        for part in parts:
            self.read(part, batches_max)
        if parts:
            self.source.after_commit(dict(self.offsets))
        return bool(parts)

    def read(self, part: Part, batches_max: int | None = None) -> None:
        """Ends early after so many batches, as a task does that has enough; None: reads to the end."""
        key = partition_key(part.partition)
        for batch in islice(self.source.read(part, self.offsets.get(key)), batches_max):
            for rows in batch.rows:
                self.records += columns_to_records(rows) if isinstance(rows, RecordColumns) else rows
            if batch.offset is not None:
                self.offsets[key] = batch.offset

    def run(self) -> list[Record]:
        """Rounds until there is nothing to do; what they have written."""
        written = len(self.records)
        while self.run_round():
            pass
        return self.records[written:]


def simplify(record: Record) -> tuple[Any, ...]:
    """Topic, key, operation, row before and row after; None instead of the last three of a tombstone."""
    value: Mapping[str, Any] | None = record.value
    if value is None:
        return record.topic, record.key, None
    return record.topic, record.key, value["op"], value["before"], value["after"]
