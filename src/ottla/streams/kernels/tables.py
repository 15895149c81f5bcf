"""Tables: rows become changes of a key, with the value before. The order of offsets decides, not the time, as in Kafka.

A table's store has the canonical bytes of the key, and the value columns with `_timestamp` as a JSON object (see
`versions.table_codec`). Rows without a key are dropped and counted.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.streams.kernels.kernel import KernelContext, StoreSpec
from ottla.streams.kernels.versions import (
    NONE,
    TableVersions,
    is_deleted,
    keep_newest,
    make_struct,
    number_array,
    table_codec,
    with_old,
)
from ottla.streams.rows import DELETED, HIDDEN, TIMESTAMP, table_schema, value_fields
from ottla.streams.state.keys import encode_keys

NULL_KEY = "null key"


class _TableKernel:
    """Input: rows of a stream, where a row without values deletes, or changes of a table (`_deleted`).
    Output: changes, with `_old` if asked for.

    A step that does not need the old value reads no state. With `only_newest` one change for each key and batch comes
    out, as with the cache of Kafka Streams.
    """

    _is_source = False
    _only_needed_tombstones = False

    def __init__(
        self,
        label: str,
        store: str,
        columns: pa.Schema,
        key: Sequence[str],
        *,
        with_old: bool = True,
        only_newest: bool = False,
    ) -> None:
        self.stores: Sequence[StoreSpec] = (StoreSpec(store, is_source=self._is_source),)
        self._label = label
        self._key = tuple(key)
        self._columns = columns
        self._codec = table_codec(columns, self._key)
        self._fields = value_fields(columns, self._key)
        self._with_old = with_old
        self.only_newest = only_newest

    def process(self, inputs: Sequence[pa.Table], context: KernelContext) -> Sequence[pa.Table]:
        rows = inputs[0]
        if self.only_newest:
            rows, _ = keep_newest(rows, encode_keys(rows, self._key))
        rows = self._clean(rows, context)
        if not rows.num_rows:
            return [table_schema(self._columns, self._key, with_old=self._with_old).empty_table()]
        if self._with_old or self._only_needed_tombstones:
            return [self._follow(rows, context)]
        if not self._is_source:
            self._write(rows, {key: row for row, key in enumerate(self._find_keys(rows))}, context)
        return [rows]

    def _follow(self, rows: pa.Table, context: KernelContext) -> pa.Table:
        """The rows with the value before each of them, and the last one of each key for the store."""
        store = context.store(self.stores[0].name)
        keys = self._find_keys(rows)
        places = np.arange(rows.num_rows)
        versions = TableVersions(self._codec, rows, places, keys, store)
        olds, kept = versions.find(keys, places), places
        if self._only_needed_tombstones:
            kept = np.flatnonzero((olds != NONE) | (versions.made != NONE))
        if not self._is_source:
            self._write(rows, {keys[row]: row for row in kept.tolist()}, context)
        if len(kept) < rows.num_rows:
            rows, olds = rows.take(number_array(kept)), olds[kept]
        if not self._with_old:
            return rows
        numbers = number_array(olds)
        old = make_struct(versions.take([field.name for field in self._fields], numbers), self._fields, numbers)
        return with_old(rows, old)

    def _clean(self, rows: pa.Table, context: KernelContext) -> pa.Table:
        """The rows that have a key, with the columns of a table's changes, and without values where `_deleted`."""
        deleted = is_deleted(rows, [field.name for field in self._fields])
        has_key = pc.invert(_all_null(rows, self._key))
        columns = [
            rows.column(field.name) if field.name in self._key else _clear(rows.column(field.name), deleted)
            for field in self._columns
        ]
        hidden = [rows.column(name) for name in HIDDEN.names]
        cleaned = pa.Table.from_arrays([*columns, *hidden, deleted], schema=table_schema(self._columns, self._key))
        missing = pc.sum(pc.invert(has_key), min_count=0).as_py()
        if missing:
            context.dropped[self._label, NULL_KEY] += missing
            cleaned = cleaned.filter(has_key)
        return cleaned

    def _find_keys(self, rows: pa.Table) -> list[bytes]:
        """The keys of rows that are `_clean`, so each of them has one."""
        return [key for key in encode_keys(rows, self._key) if key is not None]

    def _write(self, rows: pa.Table, newest: Mapping[bytes, int], context: KernelContext) -> None:
        """Write the last row of each key."""
        if newest:
            last = rows.take(number_array(list(newest.values())))
            values = self._codec.encode(last)
            deleted = last.column(DELETED).to_pylist()
            written = [None if gone else value for value, gone in zip(values, deleted, strict=True)]
            times = last.column(TIMESTAMP).to_numpy().tolist()
            context.store(self.stores[0].name).put_many(list(newest), written, times)


class SourceTableKernel(_TableKernel):
    """The changes of a topic that is a table. The store is an index of the topic up to where the batch begins, so it is
    only read, and rows of the batch see those before them."""

    _is_source = True


class ToTableKernel(_TableKernel):
    """The newest row of each key of a stream, in a store with a changelog of its own. As in Kafka, a tombstone goes on
    even if there was no such key."""


class DerivedTableKernel(_TableKernel):
    """A table after steps that see only new values, where a filter sets `_deleted`. Its store says what was there
    before. A tombstone for a key that was not there is dropped: its row never passed the filter."""

    _only_needed_tombstones = True


def _all_null(rows: pa.Table, names: Sequence[str]) -> pa.ChunkedArray:
    found = pa.chunked_array([pa.repeat(True, rows.num_rows)])
    for name in names:
        found = pc.and_(found, rows.column(name).is_null())
    return found


def _clear(column: pa.ChunkedArray, deleted: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(deleted, pa.scalar(None, column.type), column)
