"""A connection to a database while it is in use: transactions, queries to Arrow, rows from Arrow."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ottla.connect.errors import ConnectError

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Connection, Cursor

STAGING: Final = "ottla_staging"
"""The temporary table that rows are copied to, before one statement moves them to where they belong."""


class RowsRefused(ConnectError):
    """The database does not take one of the rows: a value out of range, or a constraint."""


class Session:
    """One connection. Every statement is in a transaction, which `commit` ends."""

    def __init__(
        self,
        connection: "Connection",
        explain: Callable[[], AbstractContextManager[None]],
        options: Mapping[str, str] | None = None,
        *,
        is_in_transaction: bool = True,
    ) -> None:
        """A connection that commits by itself is not in a transaction: then transactions are begun in SQL here. The
        driver of PostgreSQL else refuses to return to a savepoint."""
        self._connection = connection
        self._begins = not is_in_transaction
        self._has_begun = False
        self._options = dict(options or {})
        """Of the driver, for queries."""
        self._explain = explain
        """Turns the driver's exceptions into RetriableError, ConnectError or RowsRefused."""

    def query(self, sql: str, values: Sequence[Any] = ()) -> pa.Table:
        with self._explain(), self._cursor() as cursor:
            cursor.execute(sql, tuple(values) if values else None)
            return cursor.fetch_arrow_table()

    def query_rows(self, sql: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.query(sql, values).to_pylist()
        return rows

    def stream(self, sql: str) -> Iterator[pa.RecordBatch]:
        """The batches of a query whose answer may be larger than memory."""
        with self._explain(), self._cursor() as cursor:
            cursor.execute(sql)
            yield from cursor.fetch_record_batch()

    def execute(self, sql: str, values: Sequence[Any] = ()) -> None:
        with self._explain(), self._cursor() as cursor:
            cursor.execute(sql, tuple(values) if values else None)

    @contextmanager
    def staged(self, rows: pa.Table) -> Iterator[None]:
        """Rows in the staging table."""
        with self._explain(), self._cursor() as cursor:
            cursor.adbc_ingest(STAGING, rows, mode="create", temporary=True)
        yield
        self.execute(f"DROP TABLE {STAGING}")

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """What is done inside is undone if rows are refused."""
        self.execute("SAVEPOINT ottla_rows")
        try:
            yield
        except RowsRefused:
            self.execute("ROLLBACK TO SAVEPOINT ottla_rows")
            self.execute("RELEASE SAVEPOINT ottla_rows")
            raise
        self.execute("RELEASE SAVEPOINT ottla_rows")

    @contextmanager
    def _cursor(self) -> "Iterator[Cursor]":
        with self._connection.cursor(adbc_stmt_kwargs=self._options) as cursor:
            if self._begins and not self._has_begun:
                cursor.execute("BEGIN")
                self._has_begun = True
            yield cursor

    def commit(self) -> None:
        with self._explain():
            if not self._begins:
                self._connection.commit()
            elif self._has_begun:
                with self._connection.cursor() as cursor:
                    cursor.execute("COMMIT")
                self._has_begun = False

    def close(self) -> None:
        """What was not committed is undone."""
        self._connection.close()
