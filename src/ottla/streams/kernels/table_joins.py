"""Joins of two tables with the same key. A change of either side changes the result by the other side's present value.

Nothing of the result is stored: the result before a change follows from the values before it. Which changes come out is
as in Kafka Streams:

inner   a change of a key that the other side has; a tombstone if the changed side is deleted
left    a change of the left side; a change of the right side if the left side has the key
outer   every change; a tombstone if both sides are gone

A tombstone for a key that neither had a value before nor has one on the other side brings nothing. As in Kafka Streams,
a tombstone for a missing key comes out as a tombstone if the other side has the key.
"""

from collections.abc import Sequence

import pyarrow as pa

from ottla.streams.kernels.joining import JoinShape, Taken, in_order, take_hidden, take_keys
from ottla.streams.kernels.kernel import KernelContext, StoreSpec
from ottla.streams.kernels.versions import TableVersions, make_struct, table_codec
from ottla.streams.rows import TIMESTAMP, table_schema
from ottla.streams.state.keys import encode_keys

Pair = tuple[int | None, int | None]
"""Versions of the left and of the right side."""

NOTHING: Pair = (None, None)


class TableJoinKernel:
    """Inputs: changes of the left and of the right table. They need no `_old`.
    Output: changes, with `_old` if asked for.

    The kernel has no store of its own. It reads the stores of both tables, which must be in the same task and have the
    canonical key: source tables, streams as tables, derived tables and aggregates without a window.
    """

    stores: Sequence[StoreSpec] = ()

    def __init__(self, shape: JoinShape, left_store: str, right_store: str, *, with_old: bool = True) -> None:
        if shape.how not in ("inner", "left", "outer"):
            raise ValueError(f"unknown kind of join {shape.how!r}")
        self._shape = shape
        self._store_names = (left_store, right_store)
        self._sides = (shape.left, shape.right)
        self._codecs = tuple(table_codec(side.columns, side.key) for side in self._sides)
        self._with_old = with_old

    def process(self, inputs: Sequence[pa.Table], context: KernelContext) -> Sequence[pa.Table]:
        if not any(rows.num_rows for rows in inputs):
            return [table_schema(self._shape.columns, self._shape.key, with_old=self._with_old).empty_table()]
        keys = [encode_keys(rows, side.key) for rows, side in zip(inputs, self._sides, strict=True)]
        stores = [context.store(name) for name in self._store_names]
        versions = [
            TableVersions(self._codecs[side], inputs[side], keys[side], stores[side], asked=keys[1 - side])
            for side in (0, 1)
        ]
        row_times = [rows.column(TIMESTAMP).to_pylist() for rows in inputs]
        causes: list[int] = []
        times: list[int] = []
        news: list[Pair] = []
        olds: list[Pair] = []
        for side, row in in_order(inputs):
            key = keys[side][row]
            if key is None:
                continue
            before, after = versions[side].step(row)
            other = versions[1 - side].current[key]
            if not self._is_result(side, before, after, other):
                continue
            news.append(self._result(side, after, other))
            olds.append(self._result(side, before, other))
            causes.append(row + (inputs[0].num_rows if side else 0))
            other_time = None if other is None else versions[1 - side].times[other]
            times.append(max(row_times[side][row], -1 if other_time is None else other_time))
        return [self._make_changes(inputs, versions, causes, times, news, olds)]

    def _is_result(self, side: int, before: int | None, after: int | None, other: int | None) -> bool:
        """Whether a change of a side goes on, given the version of the other side."""
        if self._shape.how == "inner" or (self._shape.how == "left" and side == 1):
            return other is not None
        return other is not None or before is not None or after is not None

    def _result(self, side: int, own: int | None, other: int | None) -> Pair:
        """The versions that make the result, or nothing."""
        left, right = (own, other) if side == 0 else (other, own)
        needed = {"inner": left is not None and right is not None, "left": left is not None, "outer": True}
        return (left, right) if needed[self._shape.how] else NOTHING

    def _make_changes(
        self,
        inputs: Sequence[pa.Table],
        versions: Sequence[TableVersions],
        causes: Sequence[int],
        times: Sequence[int],
        news: Sequence[Pair],
        olds: Sequence[Pair],
    ) -> pa.Table:
        shape = self._shape
        keys = take_keys(inputs, [side.key for side in self._sides], causes)
        left, right = (Taken(versions[side].values, [pair[side] for pair in news]) for side in (0, 1))
        columns = shape.make_values(keys, left, right, shape.columns.names)
        deleted = pa.array([pair == NOTHING for pair in news], pa.bool_())
        arrays = [*columns, *take_hidden(inputs, causes, times), deleted]
        if self._with_old:
            left, right = (Taken(versions[side].values, [pair[side] for pair in olds]) for side in (0, 1))
            names = shape.value_names
            existed = pa.array([None if pair == NOTHING else 0 for pair in olds], pa.int64())
            fields = [shape.columns.field(name) for name in names]
            arrays.append(make_struct(shape.make_values(keys, left, right, names), fields, existed))
        return pa.Table.from_arrays(arrays, schema=table_schema(shape.columns, shape.key, with_old=self._with_old))
