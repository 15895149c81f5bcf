"""What differs between databases, behind one interface: connections, names, types, the catalogue and caps for polling.

The SQL that is made from these (`statements.py`, `ledger.py`, `polling.py`) is the same for all of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ottla.connect.connectors.jdbc.session import Session
from ottla.connect.data.schema import Schema


@dataclass(frozen=True)
class TableId:
    """A table. SQLite's have no schema."""

    schema: str | None
    name: str

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class Column:
    """A column of a table or a query, as the catalogue describes it."""

    name: str
    type: str
    """The database's own name of the type, such as `numeric(10,2)`."""
    optional: bool = True


@dataclass(frozen=True)
class ReadAs:
    """How a column is read: an expression, and what its values become."""

    expression: str
    schema: Schema


class Dialect(ABC):
    """Made on the driver and pickled for tasks."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config

    @abstractmethod
    def connect(self) -> Session:
        """RetriableError if the database is away, ConnectError if it refuses us."""

    def connect_to_write(self) -> Session:
        """As `connect`, where that is quicker if no types are read but those that every database has."""
        return self.connect()

    @contextmanager
    def open(self, *, to_write: bool = False) -> Iterator[Session]:
        session = self.connect_to_write() if to_write else self.connect()
        try:
            yield session
        finally:
            session.close()

    def quote(self, *names: str) -> str:
        """An identifier, as quote.sql.identifiers wants it."""
        if self.config.get("quote.sql.identifiers") == "never":
            return ".".join(names)
        return ".".join('"' + name.replace('"', '""') + '"' for name in names)

    def quote_table(self, table: TableId) -> str:
        return self.quote(table.name) if table.schema is None else self.quote(table.schema, table.name)

    @abstractmethod
    def fold(self, name: str) -> str:
        """The same text for all spellings that mean the same name."""

    @abstractmethod
    def begin_writing(self, session: Session, ledger: str) -> None:
        """The first statement of a transaction that writes."""

    @abstractmethod
    def lock_catalogue(self, session: Session) -> None:
        """Until the transaction ends, no other task creates or changes tables."""

    @abstractmethod
    def list_tables(self, session: Session) -> list[TableId]:
        """Those of `table.types` that the user may read, in the schemas of `schema.pattern`."""

    @abstractmethod
    def find_table(self, session: Session, name: str) -> TableId | None:
        """The table that a sink's `table.name.format` names; None if it does not exist."""

    @abstractmethod
    def list_columns(self, session: Session, table: TableId) -> list[Column]: ...

    @abstractmethod
    def list_query_columns(self, session: Session, query: str) -> list[Column]: ...

    @abstractmethod
    def find_reading(self, column: Column) -> ReadAs:
        """How a source reads a column."""

    @abstractmethod
    def find_type(self, schema: Schema) -> str:
        """The type that auto.create and auto.evolve give to a column. ConnectError if there is none."""

    @abstractmethod
    def to_staging(self, column: pa.Array) -> pa.Array:
        """A column in a type that the driver can copy."""

    @abstractmethod
    def from_staging(self, expression: str, column: Column, staged: pa.DataType) -> str:
        """An expression that brings what was copied to the type of the column."""

    def comparable_time(self, expression: str, type_name: str) -> str:
        """An expression that can be compared with `timestamp_literal`, and ordered by."""
        return expression

    @abstractmethod
    def timestamp_literal(self, micros: int, type_name: str) -> str:
        """A moment, to compare a column of the type with."""

    @abstractmethod
    def timestamp_micros(self, expression: str, type_name: str) -> str:
        """An expression: the microseconds since 1970 of a column."""

    @abstractmethod
    def find_oldest_start(self, session: Session) -> int:
        """Before which microsecond no transaction that still runs, or that begins later, has begun."""

    @abstractmethod
    def list_writers(self, session: Session, table: TableId | None) -> Sequence[str]:
        """The transactions that have begun to write to the table, or to any table, and have not ended."""
