"""PostgreSQL."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ottla.connect.connectors.jdbc.dialect import Column, Dialect, ReadAs, TableId
from ottla.connect.connectors.jdbc.numbers import find_number
from ottla.connect.connectors.jdbc.session import RowsRefused, Session
from ottla.connect.connectors.postgresql.connecting import Server, connect, explain_errors, quote_text
from ottla.connect.data.logical import DATE_SCHEMA, TIME_SCHEMA, TIMESTAMP_SCHEMA
from ottla.connect.data.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema, Type
from ottla.connect.errors import ConnectError

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Connection

_READ: Final = {
    "smallint": Schema(Type.INT16),
    "integer": Schema(Type.INT32),
    "bigint": Schema(Type.INT64),
    "oid": Schema(Type.INT64),
    "real": Schema(Type.FLOAT32),
    "double precision": Schema(Type.FLOAT64),
    "boolean": Schema(Type.BOOLEAN),
    "bytea": Schema(Type.BYTES),
    "date": DATE_SCHEMA,
    "time without time zone": TIME_SCHEMA,
    "timestamp without time zone": TIMESTAMP_SCHEMA,
    "timestamp with time zone": TIMESTAMP_SCHEMA,
}
_CASTS: Final = {"oid": "bigint", "timestamp without time zone": "timestamptz"}
"""A time without a zone is in that of the session, which is `db.timezone`."""
_WRITTEN: Final = {
    Type.INT8: "smallint",
    Type.INT16: "smallint",
    Type.INT32: "integer",
    Type.INT64: "bigint",
    Type.FLOAT32: "real",
    Type.FLOAT64: "double precision",
    Type.BOOLEAN: "boolean",
    Type.STRING: "text",
    Type.BYTES: "bytea",
}
_WRITTEN_LOGICAL: Final = {DECIMAL: "numeric", DATE: "date", TIME: "time", TIMESTAMP: "timestamp"}
_TEXTS: Final = ("text", "character varying", "character", '"char"', "name")
_RELATIONS: Final = {
    "TABLE": "r",
    "PARTITIONED TABLE": "p",
    "VIEW": "v",
    "MATERIALIZED VIEW": "m",
    "FOREIGN TABLE": "f",
}
_CATALOGUE_LOCK: Final = 0x07_71_A0
"""Any number that others do not use for an advisory lock."""


class PostgreSql(Dialect):
    def __init__(self, config: Mapping[str, Any], server: Server) -> None:
        super().__init__(config)
        self._server = server

    def connect(self) -> Session:
        return self._start(connect(self._server))

    def connect_to_write(self) -> Session:
        return self._start(connect(self._server, knows_types=True))

    def _start(self, connection: "Connection") -> Session:
        session = Session(connection, partial(_explain, self._server), is_in_transaction=False)
        try:
            session.execute(f"SET TIME ZONE {quote_text(self.config['db.timezone'])}")
            session.commit()
        except BaseException:
            session.close()
            raise
        return session

    def begin_writing(self, session: Session, ledger: str) -> None:
        """Nothing: rows of the ledger are locked when they are changed, at the end."""

    def lock_catalogue(self, session: Session) -> None:
        session.query(f"SELECT 1 FROM (SELECT pg_advisory_xact_lock({_CATALOGUE_LOCK})) AS locked")

    def list_tables(self, session: Session) -> list[TableId]:
        kinds = ", ".join(f"'{_RELATIONS[each.upper()]}'" for each in self.config["table.types"])
        pattern = self.config["schema.pattern"]
        chosen = f"n.nspname LIKE {quote_text(pattern)}" if pattern else "n.nspname !~ '^(pg_|information_schema$)'"
        rows = session.query_rows(
            "SELECT n.nspname::text AS schema, c.relname::text AS name FROM pg_class c"
            f" JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ({kinds}) AND {chosen}"
            " AND has_table_privilege(c.oid, 'SELECT') ORDER BY 1, 2"
        )
        return [TableId(row["schema"], row["name"]) for row in rows]

    def find_table(self, session: Session, name: str) -> TableId | None:
        schema, _, simple = name.rpartition(".")
        place = f"n.nspname = {quote_text(schema)}" if schema else "n.nspname = ANY (current_schemas(false))"
        rows = session.query_rows(
            "SELECT n.nspname::text AS schema, c.relname::text AS name FROM pg_class c JOIN pg_namespace n"
            f" ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'v', 'f') AND {place}"
            f" AND c.relname = {quote_text(self.fold(simple))}"
            " ORDER BY array_position(current_schemas(false), n.nspname)"
        )
        return TableId(rows[0]["schema"], rows[0]["name"]) if rows else None

    def fold(self, name: str) -> str:
        return name.lower() if self.config.get("quote.sql.identifiers") == "never" else name

    def list_columns(self, session: Session, table: TableId) -> list[Column]:
        rows = session.query_rows(
            "SELECT attname::text AS name, format_type(atttypid, atttypmod) AS type, attnotnull AS is_needed"
            f" FROM pg_attribute WHERE attrelid = {quote_text(_quote_always(table))}::regclass AND attnum > 0"
            " AND NOT attisdropped ORDER BY attnum"
        )
        return [Column(row["name"], row["type"], not row["is_needed"]) for row in rows]

    def list_query_columns(self, session: Session, query: str) -> list[Column]:
        columns = []
        for found in session.query(f"SELECT * FROM ({query}) AS queried LIMIT 0").schema:
            about = found.metadata or {}
            kind = about.get(b"POSTGRESQL:type", b"text").decode()
            modifier = about.get(b"POSTGRESQL:typmod", b"-1").decode()
            rows = session.query_rows(f"SELECT format_type({quote_text(kind)}::regtype, {modifier}) AS type")
            columns.append(Column(found.name, rows[0]["type"]))
        return columns

    def find_reading(self, column: Column) -> ReadAs:
        """A type that Kafka Connect has no word for becomes text."""
        quoted = self.quote(column.name)
        plain = column.type.partition("(")[0] + column.type.partition(")")[2]
        if plain == "numeric":
            number = find_number(self.config["numeric.mapping"], column.type)
            if number.type is Type.BYTES:
                scale = number.parameters["scale"]
                return ReadAs(f"round({quoted}, {scale})::text", number)
            return ReadAs(f"{quoted}::{'float8' if number.type is Type.FLOAT64 else 'bigint'}", number)
        schema = _READ.get(plain)
        if schema is not None:
            return ReadAs(f"{quoted}::{_CASTS[plain]}" if plain in _CASTS else quoted, schema)
        element = _READ.get(plain.removesuffix("[]"))
        if plain.endswith("[]") and (element is not None and element.name is None):
            return ReadAs(quoted, Schema(Type.ARRAY, value_schema=Schema(element.type, optional=True)))
        return ReadAs(f"{quoted}::text", Schema(Type.STRING))

    def find_type(self, schema: Schema) -> str:
        if schema.name in _WRITTEN_LOGICAL:
            return _WRITTEN_LOGICAL[schema.name]
        if schema.type in _WRITTEN:
            return _WRITTEN[schema.type]
        if schema.type is Type.ARRAY and schema.value_schema is not None and schema.value_schema.type in _WRITTEN:
            return f"{_WRITTEN[schema.value_schema.type]}[]"
        raise ConnectError(f"PostgreSQL has no type for {schema.name or schema.type.value}; flatten the record")

    def to_staging(self, column: pa.Array) -> pa.Array:
        if pa.types.is_struct(column.type) or pa.types.is_map(column.type):
            return pa.array([None if each is None else json.dumps(each, default=str) for each in column.to_pylist()])
        return column.cast(pa.int16()) if column.type == pa.int8() else column

    def from_staging(self, expression: str, column: Column, staged: pa.DataType) -> str:
        """Only text needs a cast. One where none is needed would cut a text that is too long, not refuse it."""
        is_text = column.type.partition("(")[0] in _TEXTS
        return f"CAST({expression} AS {column.type})" if pa.types.is_string(staged) and not is_text else expression

    def timestamp_literal(self, micros: int, type_name: str) -> str:
        if type_name == "date":
            raise ConnectError("a timestamp column has the type date, which is too coarse to poll by")
        moment = f"(TIMESTAMPTZ 'epoch' + {micros} * INTERVAL '1 microsecond')"
        return f"{moment}::timestamp" if "without" in type_name else moment

    def timestamp_micros(self, expression: str, type_name: str) -> str:
        return f"(extract(epoch FROM ({expression})::timestamptz) * 1000000)::bigint"

    def find_oldest_start(self, session: Session) -> int:
        """Times of transactions of other users are shown to members of pg_read_all_stats only."""
        rows = session.query_rows(
            "SELECT (extract(epoch FROM LEAST(now(), min(xact_start))) * 1000000)::bigint AS oldest"
            " FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
        return int(rows[0]["oldest"])

    def list_writers(self, session: Session, table: TableId | None) -> list[str]:
        """A statement that inserts locks its table before it takes a value of a sequence."""
        chosen = "relation >= 16384" if table is None else f"relation = {quote_text(_quote_always(table))}::regclass"
        rows = session.query_rows(
            "SELECT DISTINCT virtualtransaction AS writer FROM pg_locks WHERE locktype = 'relation' AND granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            f" AND mode NOT IN ('AccessShareLock', 'RowShareLock', 'ShareUpdateExclusiveLock') AND {chosen}"
        )
        return [row["writer"] for row in rows]


def _quote_always(table: TableId) -> str:
    return ".".join('"' + name.replace('"', '""') + '"' for name in (table.schema or "public", table.name))


@contextmanager
def _explain(server: Server) -> Iterator[None]:
    from adbc_driver_manager import dbapi

    with explain_errors(str(server), server.password):
        try:
            yield
        except (dbapi.DataError, dbapi.IntegrityError) as error:
            raise RowsRefused(_tell(str(error))) from None


def _tell(text: str) -> str:
    """What the server says, without the name of the driver and the statement."""
    lines = [line.strip(" .") for line in text.partition("ERROR:")[2].splitlines()] or [text]
    return " ".join(line for line in lines if line and not line.startswith(("Query was:", "SQLSTATE:", "CONTEXT:")))
