"""Versions: all values that the keys of a table have during one batch, those before it and those of its rows.

A step that follows a table in the order of its rows needs "the value of this key at this place" and "the value before
that". Versions have numbers, and those of all rows of a batch are found at once: a change is found by its key and place
among the sorted ones. The columns of the result are then taken from the versions.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.streams.kernels.grouping import Numbers
from ottla.streams.kernels.kernel import KernelContext
from ottla.streams.rows import DELETED, OLD, TIMESTAMP, value_fields
from ottla.streams.state.store import Store
from ottla.streams.state.values import RowCodec

NULL_KEY_OR_VALUE = "null key or value"
NONE: Final = -1
"""The number of a version where a key has no value."""


def table_codec(columns: pa.Schema, key: Sequence[str]) -> RowCodec:
    """How a table's store keeps values: the value columns and `_timestamp`, the time of the row that set them.

    A store whose values have no `_timestamp` can be read as well: the time is unknown then.
    """
    return RowCodec(pa.schema([*value_fields(columns, tuple(key)), pa.field(TIMESTAMP, pa.int64())]))


class TableVersions:
    """The versions of one table during one batch: those of all keys before the batch, then one for each change."""

    def __init__(
        self,
        codec: RowCodec,
        changes: pa.Table,
        places: Numbers,
        row_keys: Sequence[bytes | None],
        store: Store,
        asked: Sequence[bytes | None] = (),
    ) -> None:
        """`places` and `row_keys` are those of the changes, `asked` the other keys that the step will look up. Places
        increase, and no row of the batch has the place of another one."""
        names = codec.columns.names
        keys = [key for key in dict.fromkeys((*row_keys, *asked)) if key is not None]
        self._key_numbers: dict[bytes | None, int] = {**dict(zip(keys, range(len(keys)), strict=True)), None: NONE}
        stored = store.get_many_before(keys) if keys else []
        self._stored: Numbers = np.fromiter(
            (NONE if value is None else number for number, value in enumerate(stored)), np.int64, len(stored)
        )
        deleted = is_deleted(changes, names[:-1]).to_numpy().astype(np.bool_)
        self.made: Numbers = np.where(deleted, NONE, len(keys) + np.arange(len(deleted)))
        """The version that each change makes; NONE if it deletes its key."""
        before = codec.decode(stored) if keys else codec.columns.empty_table()
        self.values: pa.Table = pa.concat_tables([before, changes.select(names).cast(codec.columns)]).combine_chunks()
        numbers = self._number(row_keys)
        self._rows: Numbers = np.argsort(numbers, kind="stable")
        self._changed, self._places = numbers[self._rows], places[self._rows]

    @cached_property
    def times(self) -> Numbers:
        """The time of each version; -1 if it is not known."""
        found: Numbers = pc.fill_null(self.values.column(TIMESTAMP), -1).to_numpy()
        return found

    def find(self, keys: Sequence[bytes | None], places: Numbers) -> Numbers:
        """The version that each key has just before a place; NONE if there is none, or no key."""
        numbers = self._number(keys)
        if not len(self._rows):
            return self._take_stored(numbers)
        span = 1 + max(int(self._places.max()), int(places.max(initial=0)))
        last = np.searchsorted(self._changed * span + self._places, numbers * span + places) - 1
        has_changed = (last >= 0) & (self._changed[last] == numbers) & (numbers >= 0)
        return np.where(has_changed, self.made[self._rows[last]], self._take_stored(numbers))

    def take(self, names: Sequence[str], numbers: pa.Array) -> list[pa.ChunkedArray]:
        """The columns with these versions; null where a number is null."""
        return list(self.values.select(names).take(numbers).columns)

    def _number(self, keys: Sequence[bytes | None]) -> Numbers:
        return np.fromiter(map(self._key_numbers.__getitem__, keys), np.int64, len(keys))

    def _take_stored(self, numbers: Numbers) -> Numbers:
        return np.where(numbers < 0, NONE, self._stored[numbers]) if len(self._stored) else numbers


def keep_newest(rows: pa.Table, keys: Sequence[bytes | None]) -> tuple[pa.Table, Sequence[bytes | None]]:
    """The last row of each key, and all rows without a key, with their keys."""
    last = {key: row for row, key in enumerate(keys)}
    without_key = [row for row, key in enumerate(keys) if key is None] if last.pop(None, None) is not None else []
    if len(last) + len(without_key) == len(keys):
        return rows, keys
    kept = sorted([*last.values(), *without_key])
    return rows.take(number_array(kept)), [keys[row] for row in kept]


def is_deleted(rows: pa.Table, value_names: Sequence[str]) -> pa.ChunkedArray:
    """Which rows delete their key: those that say so. Rows of a stream do if all of their value columns are null."""
    return rows.column(DELETED) if DELETED in rows.column_names else is_null_value(rows, value_names)


def is_null_value(rows: pa.Table, value_names: Sequence[str]) -> pa.ChunkedArray:
    """Which rows come from records without a value: all value columns are null."""
    found = pa.chunked_array([pa.repeat(len(value_names) > 0, rows.num_rows)])
    for name in value_names:
        found = pc.and_(found, rows.column(name).is_null())
    return found


def drop_null_values(rows: pa.Table, value_names: Sequence[str], label: str, context: KernelContext) -> pa.Table:
    """The rows that have a value: Kafka Streams ignores the others in joins of streams and in aggregates without
    windows, and counts them."""
    if not rows.num_rows or not value_names:
        return rows
    without = is_null_value(rows, value_names)
    count = pc.sum(without, min_count=0).as_py()
    if not count:
        return rows
    context.dropped[label, NULL_KEY_OR_VALUE] += count
    return rows.filter(pc.invert(without))


def make_struct(columns: Sequence[pa.ChunkedArray], fields: Sequence[pa.Field], numbers: pa.Array) -> pa.Array:
    """A struct of these columns, null where the number is null: the column `_old`."""
    if not fields:
        return pa.array([None if number is None else {} for number in numbers.to_pylist()], pa.struct([]))
    return pa.StructArray.from_arrays(
        [_combine(column, field.type) for column, field in zip(columns, fields, strict=True)],
        fields=list(fields),
        mask=numbers.is_null(),
    )


def values_or_null(column: pa.ChunkedArray, numbers: pa.Array) -> pa.ChunkedArray:
    """The column, null where the number is null."""
    return pc.if_else(numbers.is_null(), pa.scalar(None, column.type), column)


def with_old(rows: pa.Table, old: pa.Array) -> pa.Table:
    return rows.append_column(pa.field(OLD, old.type), old)


def number_array(numbers: Sequence[int | None] | Numbers) -> pa.Array:
    """Numbers of rows or versions to take. None and, in a numpy array, NONE make a row of nulls."""
    if isinstance(numbers, np.ndarray):
        return pa.array(numbers, pa.int64(), mask=numbers < 0)
    return pa.array(numbers, pa.int64())


def _combine(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):
        return pa.concat_arrays(combined.chunks) if combined.num_chunks else pa.nulls(0, kind)
    return combined
