"""Databases for tests of the JDBC connectors: a file of SQLite, and a server of PostgreSQL where it is installed."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import pyarrow as pa

from benchmarks.peers.apache_kafka import Unavailable
from benchmarks.peers.postgresql import PostgreSqlServer, run_postgresql
from ottla.connect.connector import Connector, ConnectorContext, SinkBatch
from ottla.connect.connectors.jdbc.connection_settings import make_dialect
from ottla.connect.connectors.jdbc.session import Session
from ottla.connect.data.record import Record
from ottla.connect.data.schema import Field, Schema, Type
from ottla.connect.settings.parsing import parse
from tests.needs import skip_without

T = TypeVar("T", bound=Connector)

ROW = Schema(
    Type.STRUCT,
    fields=(
        Field("id", Schema(Type.INT64)),
        Field("name", Schema(Type.STRING, optional=True)),
        Field("amount", Schema(Type.FLOAT64, optional=True)),
    ),
)
KEY = Schema(Type.INT64)


class Database:
    """A database by its URL."""

    def __init__(self, url: str, user: str | None = None) -> None:
        self.config = {"connection.url": url, **({"connection.user": user} if user else {})}
        values = {"connection.user": user, "connection.password": None, "db.timezone": "UTC"}
        self._dialect = make_dialect({"connection.url": url, **values})

    def open(self) -> AbstractContextManager[Session]:
        return self._dialect.open()

    def run(self, *statements: str) -> None:
        with self._dialect.open() as session:
            for each in statements:
                session.execute(each)
            session.commit()

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with self._dialect.open() as session:
            found: pa.Table = session.query(sql)
            return [tuple(row.values()) for row in found.to_pylist()]

    def make(self, kind: type[T], name: str = "jdbc", **config: Any) -> T:
        """A connector that has started. Names of settings have `_` for the dot."""
        given = {**self.config, **{key.replace("_", "."): str(value) for key, value in config.items()}}
        made = kind(parse(kind.settings, given), ConnectorContext(name, "workers", 1, {}))
        made.start()
        return made


@contextmanager
def postgresql_server(options: str = "") -> Iterator[PostgreSqlServer]:
    """Without PostgreSQL the running test is skipped."""
    try:
        with run_postgresql(options) as server:
            yield server
    except Unavailable as reason:
        skip_without("PostgreSQL", str(reason))


def create_database(server: PostgreSqlServer, name: str) -> Database:
    """A database of its own for a test."""
    server.run(f"CREATE DATABASE {name}")
    return Database(f"jdbc:postgresql://127.0.0.1:{server.port}/{name}", "postgres")


def make_records(start: int, rows: Sequence[Mapping[str, Any] | None], keys: Sequence[int] | None = None) -> SinkBatch:
    """Values of partition 0 of the topic `t`, without gaps; the key is the id unless it is given."""
    records = []
    for at, row in enumerate(rows):
        key = keys[at] if keys is not None else (row or {})["id"]
        schema = None if row is None else ROW
        value = None if row is None else {"name": None, "amount": None, **row}
        records.append(Record("t", value, schema, key, KEY, 1_000, [], 0, start + at))
    return SinkBatch("t", 0, start, start + len(rows), [records])
