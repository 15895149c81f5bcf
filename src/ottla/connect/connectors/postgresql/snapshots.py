"""Reads the rows of a table, chunk by chunk in the order of its primary key, in one Spark task."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ottla.connect.connector import MAX_ROWS, SourceBatch, SourceOffset
from ottla.connect.connectors.postgresql.catalog import CatalogColumn, CatalogTable
from ottla.connect.connectors.postgresql.chunks import (
    COLLATED,
    KEY_ORDERS,
    Chunk,
    KeyTexts,
    add_chunk,
    read_chunks,
    write_chunks,
)
from ottla.connect.connectors.postgresql.column_types import SESSION
from ottla.connect.connectors.postgresql.connecting import (
    Server,
    connect,
    execute,
    explain_errors,
    query_rows,
    quote_name,
    quote_text,
)
from ottla.connect.connectors.postgresql.shapes import Capture, Shapes
from ottla.connect.data.columns import RecordColumns
from ottla.connect.errors import ConnectError

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Connection

CHUNKS: Final = "chunks"
IS_DONE: Final = "done"
"""In the offset of a table."""
FETCH_ROWS: Final = 20_000
_CAST_DIFFERS: Final = frozenset(("bpchar", "inet", "cidr"))
"""Types whose cast to text is not what their output function writes: it cuts the blanks of char(n), for example."""

_NOW: Final = """
SELECT pg_current_snapshot()::text AS snapshot, (pg_current_wal_insert_lsn() - '0/0')::int8 AS lsn,
       (extract(epoch FROM clock_timestamp()) * 1000000)::int8 AS now_us
"""


def read_snapshot(server: Server, capture: Capture, oid: int, offset: SourceOffset | None) -> Iterator[SourceBatch]:
    """The rows that follow the offset, up to about MAX_ROWS of them, all in one snapshot."""
    with closing(connect(server)) as connection:
        execute(connection, SESSION)
        execute(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        shapes = Shapes.read(connection, capture)
        table = shapes.tables.get(oid)
        chunks = read_chunks(offset[CHUNKS]) if offset else []
        yield from _TableReader(connection, shapes, oid, table, chunks).read()


class _TableReader:
    def __init__(
        self, connection: "Connection", shapes: Shapes, oid: int, table: CatalogTable | None, chunks: list[Chunk]
    ) -> None:
        if table is None:
            raise ConnectError(f"the table with the oid {oid} was dropped while it was read")
        self._connection = connection
        self._chunks = chunks
        self._table = table
        self._shape = shapes.make_from_catalog(table)
        self._key_types = shapes.find_key_types(table)
        self._key: Sequence[CatalogColumn] = table.key
        if not all(each in KEY_ORDERS for each in self._key_types):
            self._key = ()
        names = [each.name for each in self._shape.columns]
        types = {each.name: shapes.types.get(each.type_oid) for each in table.columns}
        texts = []
        for name in names + [each.name for each in self._key]:
            info = types[name]
            texts.append(_make_text(name, info is not None and info.name in _CAST_DIFFERS))
        listed = ", ".join(f"{text} AS c{number}" for number, text in enumerate(texts))
        self._select = f"SELECT {listed or 'NULL'} FROM ONLY {quote_name(table.schema, table.name)}"

    def read(self) -> Iterator[SourceBatch]:
        (now,) = query_rows(self._connection, _NOW)
        return self._read_chunks(now) if self._key else self._read_whole(now)

    def _read_chunks(self, now: dict[str, int | str]) -> Iterator[SourceBatch]:
        snapshot, count = str(now["snapshot"]), 0
        last = self._chunks[-1].last_key if self._chunks else None
        while count < MAX_ROWS:
            (rows,) = self._query(f"{self._select}{self._make_condition(last)}", whole=True)
            count += len(rows)
            is_done = len(rows) < FETCH_ROWS
            if len(rows):
                width = len(self._shape.columns)
                last = [str(column[-1].as_py()) for column in rows.columns[width:]]
                rows = rows.select(range(width))
            self._chunks = add_chunk(self._chunks, Chunk(None if is_done else last, snapshot))
            yield SourceBatch([self._build(rows, now)] if len(rows) else [], self._make_offset(is_done))
            if is_done:
                return

    def _read_whole(self, now: dict[str, int | str]) -> Iterator[SourceBatch]:
        """A table without a key that we can order: all of it is one chunk, in one transaction."""
        for rows in self._query(self._select, whole=False):
            yield SourceBatch([self._build(rows, now)], None)
        self._chunks = [Chunk(None, str(now["snapshot"]))]
        yield SourceBatch([], self._make_offset(True))

    def _build(self, rows: pa.Table, now: dict[str, int | str]) -> RecordColumns:
        return self._shape.build_snapshot(rows, int(now["lsn"]), int(now["now_us"]))

    def _make_offset(self, is_done: bool) -> SourceOffset:
        return {CHUNKS: write_chunks(self._chunks), IS_DONE: is_done}

    def _make_condition(self, last: KeyTexts | None) -> str:
        """Texts are compared byte by byte, because the order of a language is not known outside the server."""
        columns = [
            quote_name(each.name) + (' COLLATE "C"' if kind in COLLATED else "")
            for each, kind in zip(self._key, self._key_types, strict=True)
        ]
        listed = ", ".join(columns)
        after = ""
        if last is not None:
            literals = [f"{quote_text(text)}::{kind}" for text, kind in zip(last, self._key_types, strict=True)]
            after = f" WHERE ({listed}) > ({', '.join(literals)})"
        return f"{after} ORDER BY {listed} LIMIT {FETCH_ROWS}"

    def _query(self, sql: str, *, whole: bool) -> Iterator[pa.Table]:
        with explain_errors(f"table {self._table.full_name}"), self._connection.cursor() as cursor:
            cursor.execute(sql)
            if whole:
                yield cursor.fetch_arrow_table()
                return
            for batch in cursor.fetch_record_batch():
                yield pa.Table.from_batches([batch])


def _make_text(name: str, cast_differs: bool) -> str:
    """The text of a column as its output function writes it, as it is in the log."""
    quoted = quote_name(name)
    return f"CASE WHEN {quoted} IS NOT NULL THEN format('%s', {quoted}) END" if cast_differs else f"{quoted}::text"
