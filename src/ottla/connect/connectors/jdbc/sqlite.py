"""SQLite. Values have types of their own there, so that a source asks for each column as what it was declared as.

Dates and times that a sink writes are milliseconds since 1970, as SQLite's JDBC driver writes them. A source also
takes the text forms that SQLite's own functions know.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.connect.connectors.jdbc.dialect import Column, Dialect, ReadAs, TableId
from ottla.connect.connectors.jdbc.numbers import find_number
from ottla.connect.connectors.jdbc.session import RowsRefused, Session
from ottla.connect.data.logical import DATE_SCHEMA, TIMESTAMP_SCHEMA
from ottla.connect.data.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema, Type
from ottla.connect.errors import ConnectError, RetriableError

_BATCH_ROWS: Final = 1 << 20
"""The driver takes the type of a column from the first batch, where a column may be null as a whole."""
_BUSY_MS: Final = 5_000
"""How long a statement waits for another writer, before the batch is tried again."""
_WRITTEN: Final = {
    Type.INT8: "INTEGER",
    Type.INT16: "INTEGER",
    Type.INT32: "INTEGER",
    Type.INT64: "INTEGER",
    Type.FLOAT32: "REAL",
    Type.FLOAT64: "REAL",
    Type.BOOLEAN: "BOOLEAN",
    Type.STRING: "TEXT",
    Type.BYTES: "BLOB",
}
_WRITTEN_LOGICAL: Final = {DECIMAL: "NUMERIC", DATE: "DATE", TIME: "INTEGER", TIMESTAMP: "TIMESTAMP"}
_DAY_MS: Final = 86_400_000


class Sqlite(Dialect):
    def __init__(self, config: Mapping[str, Any], path: str) -> None:
        super().__init__(config)
        self._path = path

    def connect(self) -> Session:
        try:
            from adbc_driver_sqlite import dbapi
        except ImportError:
            raise ConnectError("SQLite needs the package adbc-driver-sqlite: pip install 'ottla[connect]'") from None
        explain = partial(_explain, self._path)
        with explain():
            connection = dbapi.connect(self._path)
        session = Session(connection, explain, {"adbc.sqlite.query.batch_rows": str(_BATCH_ROWS)})
        try:
            session.query(f"PRAGMA busy_timeout = {_BUSY_MS}")
            session.commit()
        except BaseException:
            session.close()
            raise
        return session

    def fold(self, name: str) -> str:
        return name.lower()

    def begin_writing(self, session: Session, ledger: str) -> None:
        """Take the lock for writing at once: a transaction that has read first may not get it later."""
        session.execute(f"UPDATE {ledger} SET epoch = epoch WHERE false")

    def lock_catalogue(self, session: Session) -> None:
        """Nothing: there is one writer at a time."""

    def list_tables(self, session: Session) -> list[TableId]:
        kinds = ", ".join(_quote_text(each.lower()) for each in self.config["table.types"])
        rows = session.query_rows(
            f"SELECT name FROM sqlite_master WHERE type IN ({kinds}) AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
            " ORDER BY name"
        )
        return [TableId(None, row["name"]) for row in rows]

    def find_table(self, session: Session, name: str) -> TableId | None:
        rows = session.query_rows(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
            f" AND name = {_quote_text(name)} COLLATE NOCASE"
        )
        return TableId(None, rows[0]["name"]) if rows else None

    def list_columns(self, session: Session, table: TableId) -> list[Column]:
        rows = session.query_rows(
            'SELECT name, type, "notnull" AS is_needed, pk'
            f" FROM pragma_table_info({_quote_text(table.name)}) ORDER BY cid"
        )
        return [Column(row["name"], row["type"].lower(), not row["is_needed"] and not row["pk"]) for row in rows]

    def list_query_columns(self, session: Session, query: str) -> list[Column]:
        """Those of the first row: SQLite does not know the types of a query's columns."""
        table = session.query(f"SELECT * FROM ({query}) AS queried LIMIT 1")
        return [Column(each.name, _GUESSES.get(each.type, "text")) for each in table.schema]

    def find_reading(self, column: Column) -> ReadAs:
        quoted, kind = self.quote(column.name), column.type
        if "bool" in kind:
            return ReadAs(f"CAST({quoted} AS INTEGER)", Schema(Type.BOOLEAN))
        if "timestamp" in kind or "datetime" in kind:
            return ReadAs(f"{self.timestamp_micros(quoted, kind)} / 1000", TIMESTAMP_SCHEMA)
        if kind == "date":
            return ReadAs(f"{self.timestamp_micros(quoted, kind)} / {1000 * _DAY_MS}", DATE_SCHEMA)
        if "int" in kind:
            return ReadAs(f"CAST({quoted} AS INTEGER)", Schema(Type.INT64))
        if any(each in kind for each in ("real", "floa", "doub")):
            return ReadAs(f"CAST({quoted} AS REAL)", Schema(Type.FLOAT64))
        if "blob" in kind:
            return ReadAs(f"CAST({quoted} AS BLOB)", Schema(Type.BYTES))
        if "numeric" in kind or "decimal" in kind:
            return self._read_number(quoted, kind)
        return ReadAs(f"CAST({quoted} AS TEXT)", Schema(Type.STRING))

    def _read_number(self, quoted: str, kind: str) -> ReadAs:
        number = find_number(self.config["numeric.mapping"], kind)
        if number.type is Type.BYTES:
            return ReadAs(f"printf('%.{number.parameters['scale']}f', {quoted})", number)
        return ReadAs(f"CAST({quoted} AS {'REAL' if number.type is Type.FLOAT64 else 'INTEGER'})", number)

    def find_type(self, schema: Schema) -> str:
        if schema.name in _WRITTEN_LOGICAL:
            return _WRITTEN_LOGICAL[schema.name]
        if schema.type in _WRITTEN:
            return _WRITTEN[schema.type]
        raise ConnectError(f"SQLite has no type for {schema.name or schema.type.value}; flatten the record")

    def to_staging(self, column: pa.Array) -> pa.Array:
        kind = column.type
        if pa.types.is_nested(kind):
            return pa.array([None if each is None else json.dumps(each, default=str) for each in column.to_pylist()])
        if pa.types.is_decimal(kind):
            return column.cast(pa.string())
        if pa.types.is_date(kind):
            return pc.multiply(column.cast(pa.int32()).cast(pa.int64()), _DAY_MS)
        if pa.types.is_time(kind):
            return column.cast(pa.int32())
        return column.cast(pa.int64()) if pa.types.is_timestamp(kind) else column

    def from_staging(self, expression: str, column: Column, staged: pa.DataType) -> str:
        return expression

    def comparable_time(self, expression: str, type_name: str) -> str:
        return self.timestamp_micros(expression, type_name)

    def timestamp_literal(self, micros: int, type_name: str) -> str:
        return str(micros)

    def timestamp_micros(self, expression: str, type_name: str) -> str:
        """Numbers are milliseconds since 1970; text is what SQLite's functions of dates read."""
        whole = f"CAST(strftime('%s', {expression}) AS INTEGER) * 1000000"
        rest = f"CAST(round((strftime('%f', {expression}) - strftime('%S', {expression})) * 1000) AS INTEGER) * 1000"
        return (
            f"(CASE typeof({expression}) WHEN 'text' THEN {whole} + {rest}"
            f" ELSE CAST({expression} AS INTEGER) * 1000 END)"
        )

    def find_oldest_start(self, session: Session) -> int:
        """There is one writer at a time, and its changes are there at once or not at all."""
        rows = session.query_rows("SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) AS now")
        return int(rows[0]["now"]) * 1000

    def list_writers(self, session: Session, table: TableId | None) -> list[str]:
        return []


_GUESSES: Final = {pa.int64(): "integer", pa.float64(): "real", pa.binary(): "blob"}


def _quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@contextmanager
def _explain(path: str) -> Iterator[None]:
    from adbc_driver_manager import dbapi

    try:
        yield
    except (dbapi.DataError, dbapi.IntegrityError) as error:
        raise RowsRefused(str(error).partition(": ")[2]) from None
    except dbapi.Error as error:
        message = f"{path}: {str(error).splitlines()[0].replace('[SQLite] ', '').partition(': ')[2]}"
        is_busy = "locked" in message or "busy" in message
        raise (RetriableError if is_busy else ConnectError)(message) from None
