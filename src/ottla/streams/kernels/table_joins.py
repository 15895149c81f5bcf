"""Joins of two tables with the same key. A change of either side changes the result by the other side's present value.

Nothing of the result is stored: the result before a change follows from the values before it. Which changes come out is
as in Kafka Streams:

inner   a change of a key that the other side has; a tombstone if the changed side is deleted
left    a change of the left side; a change of the right side if the left side has the key
outer   every change; a tombstone if both sides are gone

A tombstone for a key that neither had a value before nor has one on the other side brings nothing. As in Kafka Streams,
a tombstone for a missing key comes out as a tombstone if the other side has the key.

With `only_newest` one change for each key and batch comes out, as with the cache of Kafka Streams. The last change of
each side is enough for that: the result follows from the values that both sides have in the end.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ottla.streams.kernels.grouping import Numbers
from ottla.streams.kernels.joining import JoinShape, Taken, rank_rows, take_hidden, take_keys
from ottla.streams.kernels.kernel import KernelContext, StoreSpec
from ottla.streams.kernels.versions import (
    NONE,
    TableVersions,
    keep_newest,
    make_struct,
    number_array,
    table_codec,
)
from ottla.streams.rows import TIMESTAMP, table_schema
from ottla.streams.state.keys import encode_keys


class _Results(NamedTuple):
    """What changes make, one for each change that goes on. Versions of the left and of the right side make a result;
    where both are NONE, there is none."""

    places: Numbers
    causes: Numbers
    """The rows of the inputs, numbered through."""
    times: Numbers
    left: Numbers
    right: Numbers
    old_left: Numbers
    old_right: Numbers


def _join_changes(results: _Results, keys: Sequence[bytes | None]) -> _Results:
    """One result for each key: the last one, with the versions before the first one. `keys` are those of the causes."""
    first: dict[bytes | None, int] = {}
    last: dict[bytes | None, int] = {}
    for number, cause in enumerate(results.causes.tolist()):
        first.setdefault(keys[cause], number)
        last[keys[cause]] = number
    if len(last) == len(results.causes):
        return results
    pairs = sorted((number, first[key]) for key, number in last.items())
    newest, oldest = (np.array(each, np.int64) for each in zip(*pairs, strict=True))
    found = _Results(*(column[newest] for column in results))
    return found._replace(old_left=results.old_left[oldest], old_right=results.old_right[oldest])


class TableJoinKernel:
    """Inputs: changes of the left and of the right table. They need no `_old`.
    Output: changes, with `_old` if asked for.

    The kernel has no store of its own. It reads the stores of both tables, which must be in the same task and have the
    canonical key: source tables, streams as tables, derived tables and aggregates without a window.
    """

    stores: Sequence[StoreSpec] = ()

    def __init__(
        self,
        shape: JoinShape,
        left_store: str,
        right_store: str,
        *,
        with_old: bool = True,
        only_newest: bool = False,
    ) -> None:
        if shape.how not in ("inner", "left", "outer"):
            raise ValueError(f"unknown kind of join {shape.how!r}")
        self._shape = shape
        self._store_names = (left_store, right_store)
        self._sides = (shape.left, shape.right)
        self._codecs = tuple(table_codec(side.columns, side.key) for side in self._sides)
        self._with_old = with_old
        self.only_newest = only_newest

    def process(self, inputs: Sequence[pa.Table], context: KernelContext) -> Sequence[pa.Table]:
        if not any(rows.num_rows for rows in inputs):
            return [table_schema(self._shape.columns, self._shape.key, with_old=self._with_old).empty_table()]
        keys: list[Sequence[bytes | None]]
        keys = [encode_keys(rows, side.key) for rows, side in zip(inputs, self._sides, strict=True)]
        if self.only_newest:
            inputs, keys = map(list, zip(*map(keep_newest, inputs, keys), strict=True))
        stores = [context.store(name) for name in self._store_names]
        places = rank_rows(inputs)
        left, right = (
            TableVersions(self._codecs[side], inputs[side], places[side], keys[side], stores[side], keys[1 - side])
            for side in (0, 1)
        )
        parts = [
            self._join(side, rows.column(TIMESTAMP).to_numpy(), keys[side], places[side], (left, right))
            for side, rows in enumerate(inputs)
        ]
        parts[1] = parts[1]._replace(causes=parts[1].causes + inputs[0].num_rows)
        order = np.argsort(np.concatenate([part.places for part in parts]))
        results = _Results(*(np.concatenate(column)[order] for column in zip(*parts, strict=True)))
        if self.only_newest:
            results = _join_changes(results, [*keys[0], *keys[1]])
        return [self._make_changes(inputs, left.values, right.values, results)]

    def _join(
        self,
        side: int,
        times: Numbers,
        keys: Sequence[bytes | None],
        places: Numbers,
        versions: tuple[TableVersions, TableVersions],
    ) -> _Results:
        """The results of the changes of one side, which have these times, keys and places."""
        own, others = versions[side], versions[1 - side]
        before, after, other = own.find(keys, places), own.made, others.find(keys, places)
        goes_on = other != NONE
        if self._shape.how == "outer" or (self._shape.how == "left" and side == 0):
            goes_on |= (before != NONE) | (after != NONE)
        rows = np.flatnonzero(goes_on & np.array([key is not None for key in keys], np.bool_))
        before, after, other, times = before[rows], after[rows], other[rows], times[rows]
        if others.values.num_rows:
            times = np.maximum(times, np.where(other == NONE, -1, others.times[other]))
        new, old = ((own, other) if side == 0 else (other, own) for own in (after, before))
        return _Results(places[rows], rows, times, *self._keep_results(*new), *self._keep_results(*old))

    def _keep_results(self, left: Numbers, right: Numbers) -> tuple[Numbers, Numbers]:
        """The versions of both sides, NONE for both where they make no result."""
        if self._shape.how == "outer":
            return left, right
        is_there = left != NONE
        if self._shape.how == "inner":
            is_there &= right != NONE
        return np.where(is_there, left, NONE), np.where(is_there, right, NONE)

    def _make_changes(self, inputs: Sequence[pa.Table], left: pa.Table, right: pa.Table, results: _Results) -> pa.Table:
        """The results as changes. `left` and `right` have the values of versions."""
        shape = self._shape
        keys = take_keys(inputs, [side.key for side in self._sides], results.causes)
        new = Taken(left, results.left), Taken(right, results.right)
        deleted = pa.array((results.left == NONE) & (results.right == NONE))
        hidden = take_hidden(inputs, results.causes, results.times)
        arrays = [*shape.make_values(keys, *new, shape.columns.names), *hidden, deleted]
        if self._with_old:
            old = Taken(left, results.old_left), Taken(right, results.old_right)
            names = shape.value_names
            existed = number_array(np.maximum(results.old_left, results.old_right))
            fields = [shape.columns.field(name) for name in names]
            arrays.append(make_struct(shape.make_values(keys, *old, names), fields, existed))
        return pa.Table.from_arrays(arrays, schema=table_schema(shape.columns, shape.key, with_old=self._with_old))
