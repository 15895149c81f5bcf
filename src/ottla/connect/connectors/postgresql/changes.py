"""Reads the changes that a replication slot holds, in one Spark task, without moving the slot."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ottla.connect.connector import MAX_ROWS, SourceBatch, SourceOffset
from ottla.connect.connectors.postgresql.chunks import ReadRows, read_chunks
from ottla.connect.connectors.postgresql.column_types import SESSION
from ottla.connect.connectors.postgresql.connecting import (
    Server,
    connect,
    execute,
    explain_errors,
    query_rows,
    quote_text,
)
from ottla.connect.connectors.postgresql.envelopes import Changes, TableShape
from ottla.connect.connectors.postgresql.pgoutput import (
    UNCHANGED,
    Begin,
    Change,
    Commit,
    Relation,
    Row,
    Truncate,
    decode,
)
from ottla.connect.connectors.postgresql.shapes import Capture, Shapes
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.record import Header

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Connection

    from ottla.connect.connectors.postgresql.columns import ScannedChanges

LSN: Final = "lsn"
"""In an offset: the end of the last transaction of which everything was written."""
SEQ: Final = "seq"
"""In an offset: how many changes of the transaction after that were written."""
SNAPSHOT_END: Final = "snapshot_end"
"""In an offset: where the log was when the snapshot was done. Changes before may be in the snapshot already."""

BATCH_ROWS: Final = 20_000
"""Rows of a batch. A transaction that is larger is written in pieces."""


@dataclass(frozen=True)
class LogSettings:
    slot: str
    publication: str
    skipped: frozenset[str]
    """Operations that are not written: skipped.operations."""
    tombstones: bool


def make_peek(settings: LogSettings, upto_lsn: int, changes_max: int, columns: str) -> str:
    upto = f"{upto_lsn >> 32:X}/{upto_lsn & 0xFFFFFFFF:X}"
    return (
        f"SELECT {columns} FROM pg_logical_slot_peek_binary_changes({quote_text(settings.slot)}, '{upto}', "
        f"{changes_max}, 'proto_version', '1', 'publication_names', {quote_text(settings.publication)})"
    )


def read_changes(
    server: Server, capture: Capture, settings: LogSettings, work: Mapping[str, Any], offset: SourceOffset | None
) -> Iterator[SourceBatch]:
    """What follows the offset up to `work["upto"]`, about MAX_ROWS changes. `work["chunks"]` has what was read before.

    Each call decodes from the slot's position on, and the server decodes a transaction as a whole. So a task that has
    begun with a huge transaction goes on with it for long, and the next one finds its place by counting.
    """
    with closing(connect(server)) as connection:
        execute(connection, SESSION)
        shapes = Shapes.read(connection, capture)
        yield from _LogReader(shapes, settings, work, offset).read(connection)


@dataclass
class _Captured:
    """A table that the log has described."""

    relation: Relation
    shape: TableShape
    key_places: list[int]
    rows: ReadRows | None
    """What the snapshot has read of it."""
    changes: Changes = field(default_factory=Changes.empty)


class _LogReader:
    def __init__(
        self, shapes: Shapes, settings: LogSettings, work: Mapping[str, Any], offset: SourceOffset | None
    ) -> None:
        self._shapes = shapes
        self._settings = settings
        self._work = work
        self._lsn: int = offset[LSN] if offset else work["start"]
        self._skip: int = offset.get(SEQ, 0) if offset else 0
        """Changes of the first transaction that were written before."""
        self._snapshot_end: int = work.get(SNAPSHOT_END, 0)
        self._tables: dict[int, _Captured | None] = {}
        """By oid. None: the table is not captured."""
        self._ready: list[RecordColumns] = []
        self._begin = Begin(0, 0, 0)
        self._seq = 0
        """Changes of the current transaction, so far."""
        self._pending = 0
        self._now_us = 0

    def read(self, connection: "Connection") -> Iterator[SourceBatch]:
        (now,) = query_rows(connection, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8 AS us")
        self._now_us = now["us"]
        sql = make_peek(self._settings, self._work["upto"], MAX_ROWS, "(lsn - '0/0')::int8 AS lsn, data")
        count = 0
        with explain_errors(f"slot {self._settings.slot}"), connection.cursor() as cursor:
            cursor.execute(sql)
            for batch in cursor.fetch_record_batch():
                count += len(batch)
                for first in range(0, len(batch), BATCH_ROWS):
                    self._take_batch(batch.slice(first, BATCH_ROWS))
                    if self._pending >= BATCH_ROWS:
                        yield self._flush()
        if count < MAX_ROWS:  # the server has not stopped before the end that was asked for
            self._lsn = max(self._lsn, self._work["upto"])
        yield self._flush()

    def _take_batch(self, batch: pa.RecordBatch) -> None:
        from ottla.connect.connectors.postgresql.columns import MessageColumns

        lsns, messages = batch.columns
        columns = MessageColumns(lsns, messages)
        at = 0
        while at < len(batch):
            end, found = columns.scan(at, self._state, self._find_widths(), self._settings.skipped)
            if found is None or self._lsn < self._snapshot_end or not self._add_columns(found):
                self._take_each(lsns.slice(at, end - at), messages.slice(at, end - at))
            self._take_each(lsns.slice(end, 1), messages.slice(end, 1))
            at = end + 1

    def _take_each(self, lsns: pa.Array, messages: pa.Array) -> None:
        for message in decode(zip(lsns.to_pylist(), messages.to_pylist(), strict=True)):
            self._take(message)

    def _find_widths(self) -> dict[int, int]:
        return {oid: len(table.relation.columns) for oid, table in self._tables.items() if table is not None}

    @property
    def _state(self) -> list[int]:
        begin = self._begin
        return [begin.commit_lsn, begin.time_us, begin.xid, self._lsn, self._seq, self._skip]

    def _add_columns(self, found: "ScannedChanges") -> bool:
        """False if a row has changed its key: then nothing is added."""
        from ottla.connect.connectors.postgresql.columns import has_other_keys

        tables = [(self._tables[oid], changes) for oid, changes in found.by_table.items()]
        if any(table is not None and has_other_keys(changes, table.key_places) for table, changes in tables):
            return False
        self._build()
        for table, changes in tables:
            assert table is not None
            built = table.shape.build_changes(changes, self._now_us, tombstones=self._settings.tombstones)
            self._ready.append(built)
            self._pending += len(changes)
        commit_lsn, time_us, xid, self._lsn, self._seq, self._skip = found.state
        self._begin = Begin(commit_lsn, time_us, xid)
        return True

    def _take(self, message: Any) -> None:
        if type(message) is tuple:
            if self._is_due():
                self._add(message)
        elif type(message) is Begin:
            self._begin = message
            self._seq = 0
        elif type(message) is Commit:
            if self._begin.commit_lsn >= self._lsn:
                self._lsn, self._seq, self._skip = message.end_lsn, 0, 0
        elif type(message) is Relation:
            self._describe(message)
        elif self._is_due():
            self._truncate(message)

    def _is_due(self) -> bool:
        """Whether the next change of the current transaction has not been written before."""
        if self._begin.commit_lsn < self._lsn:
            return False
        self._seq += 1
        return self._seq > self._skip

    def _describe(self, relation: Relation) -> None:
        known = self._tables.get(relation.oid)
        if known is not None and known.relation == relation:
            return
        if known is not None:
            self._build()
        if not self._shapes.capture.filter.has_table(relation.schema, relation.table):
            self._tables[relation.oid] = None
            return
        places = self._shapes.find_key_places(relation)
        rows = None
        chunks = self._work.get("chunks", {}).get(f"{relation.schema}.{relation.table}")
        table = self._shapes.tables.get(relation.oid)
        if chunks is not None and table is not None:
            rows = ReadRows(read_chunks(chunks), self._shapes.find_key_types(table))
        self._tables[relation.oid] = _Captured(relation, self._shapes.make_from_log(relation), places, rows)

    def _add(self, change: Change) -> None:
        op, oid, before, after, lsn = change
        table = self._tables[oid]
        if table is None:
            return
        places = table.key_places
        if op == "u" and after is not None:
            if UNCHANGED in after:
                _fill_unchanged(table, before, after)
            if before is not None and places and [before[at] for at in places] != [after[at] for at in places]:
                self._add_key_change(table, before, after, lsn)
                return
        self._write(table, op, before, after, lsn)

    def _add_key_change(self, table: _Captured, before: Row, after: Row, lsn: int) -> None:
        """A row that changes its key is deleted and created, as in Debezium."""
        old, new = table.shape.make_key(before), table.shape.make_key(after)
        if self._write(table, "d", before, None, lsn):
            table.changes.headers[len(table.changes.ops) - 1] = [
                Header("__debezium.newkey", new, table.shape.key_schema)
            ]
        if self._write(table, "c", None, after, lsn):
            table.changes.headers[len(table.changes.ops) - 1] = [
                Header("__debezium.oldkey", old, table.shape.key_schema)
            ]

    def _write(self, table: _Captured, op: str, before: Row | None, after: Row | None, lsn: int) -> bool:
        begin = self._begin
        if table.rows is not None and begin.commit_lsn < self._snapshot_end:
            row = before if after is None else after
            key = [str(row[at] or b"", "utf-8") for at in table.key_places] if row is not None else None
            if table.rows.has_seen(begin.xid, key or None):
                return False
        if op in self._settings.skipped:
            return False
        table.changes.add(op, before, after, begin.xid, lsn, self._lsn, begin.time_us)
        self._pending += 1
        return True

    def _truncate(self, message: Truncate) -> None:
        for oid in message.relations:
            table = self._tables.get(oid)
            if table is not None:
                self._write(table, "t", None, None, message.lsn)

    def _build(self) -> None:
        for table in self._tables.values():
            if table is not None and table.changes.ops:
                settings = self._settings
                built = table.shape.build_changes(
                    table.changes.to_columns(),
                    self._now_us,
                    tombstones=settings.tombstones,
                    headers=table.changes.headers,
                )
                self._ready.append(built)
                table.changes = Changes.empty()

    def _flush(self) -> SourceBatch:
        self._build()
        rows, self._ready, self._pending = self._ready, [], 0
        offset: dict[str, int] = {LSN: self._lsn, SEQ: self._seq}
        if self._lsn < self._snapshot_end:
            offset[SNAPSHOT_END] = self._snapshot_end
        return SourceBatch(rows, offset, is_midway=self._seq > 0)


def _fill_unchanged(table: _Captured, before: Row | None, after: Row) -> None:
    """Large values that were not touched are in the old row if the replica identity is FULL, and nowhere otherwise."""
    is_full = before is not None and table.relation.identity == "f"
    placeholders = {each.at: each.type.placeholder for each in table.shape.columns}
    for at, value in enumerate(after):
        if value is UNCHANGED:
            after[at] = before[at] if is_full and before is not None else placeholders.get(at)
