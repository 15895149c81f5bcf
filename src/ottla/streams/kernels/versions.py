"""Versions: all values that the keys of a table have during one batch, those before it and those of its rows.

A step that follows a table row by row needs "the value of this key at this moment" and "the value before that". Values
stay in Arrow tables. Python only decides which version belongs to which row, by number, and the columns of the result
are taken from the versions at once.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ottla.streams.kernels.kernel import KernelContext
from ottla.streams.rows import DELETED, OLD, TIMESTAMP, value_fields
from ottla.streams.state.store import Store
from ottla.streams.state.values import RowCodec

NULL_KEY_OR_VALUE = "null key or value"


def table_codec(columns: pa.Schema, key: Sequence[str]) -> RowCodec:
    """How a table's store keeps values: the value columns and `_timestamp`, the time of the row that set them.

    A store whose values have no `_timestamp` can be read as well: the time is unknown then.
    """
    return RowCodec(pa.schema([*value_fields(columns, tuple(key)), pa.field(TIMESTAMP, pa.int64())]))


class TableVersions:
    """The versions of one table during one batch.

    `current` has the number of each key's version at the moment, None if there is none. It begins with the state before
    the batch. `step(i)` moves on to the table's row `i`.
    """

    def __init__(
        self,
        codec: RowCodec,
        changes: pa.Table,
        row_keys: Sequence[bytes | None],
        store: Store,
        asked: Sequence[bytes | None] = (),
    ) -> None:
        """`row_keys` are those of the changes, `asked` the others that the step will look up."""
        names = codec.columns.names
        self._row_keys = row_keys
        keys = [key for key in dict.fromkeys((*row_keys, *asked)) if key is not None]
        stored = store.get_many_before(keys) if keys else []
        found = [None if value is None else number for number, value in enumerate(stored)]
        self.current: dict[bytes, int | None] = dict(zip(keys, found, strict=True))
        self._first_row = len(keys)
        self._deleted = is_deleted(changes, names[:-1]).to_pylist()
        before = codec.decode(stored) if keys else codec.columns.empty_table()
        self.values: pa.Table = pa.concat_tables([before, changes.select(names).cast(codec.columns)]).combine_chunks()
        self.times: list[int | None] = self.values.column(TIMESTAMP).to_pylist()

    def step(self, row: int) -> tuple[int | None, int | None]:
        """Move on to a row of the changes. Returns the versions before and after it. Its key must not be null."""
        key = self._row_keys[row]
        assert key is not None
        before = self.current[key]
        after = None if self._deleted[row] else self._first_row + row
        self.current[key] = after
        return before, after

    def take(self, names: Sequence[str], numbers: pa.Array) -> list[pa.ChunkedArray]:
        """The columns with these versions; null where a number is null."""
        return list(self.values.select(names).take(numbers).columns)


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


def number_array(numbers: Sequence[int | None]) -> pa.Array:
    return pa.array(numbers, pa.int64())


def _combine(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):
        return pa.concat_arrays(combined.chunks) if combined.num_chunks else pa.nulls(0, kind)
    return combined
