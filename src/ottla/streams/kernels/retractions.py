"""Aggregates of grouped tables: a change of a row takes its old value away from its group and adds the new one.

Both steps run before the exchange, where the old value is known. A group may be empty afterwards. It stays in the
table, as in Kafka Streams: its count is 0, and its sums and averages are null.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.streams.graph import BuiltInAggregate
from ottla.streams.kernels.accumulators import make_accumulators
from ottla.streams.kernels.grouping import as_array
from ottla.streams.kernels.kernel import KernelContext, StoreSpec
from ottla.streams.kernels.partial import NULL_KEY, collect_partials, drop_null_keys, partial_columns
from ottla.streams.rows import DELETED, HIDDEN, OLD, ORDER, stream_schema, table_schema, value_fields
from ottla.streams.state.keys import encode_keys

Mask = np.ndarray[Any, np.dtype[np.bool_]]


class PartialRetraction:
    """Input: changes of a table with `_old`. Output: partial rows by group, whose columns are `columns`.

    For count, sum and avg. What is taken away is a partial row with negative numbers, so AggregateKernel with
    `retracting` merges both in any order.
    """

    stores: Sequence[StoreSpec] = ()

    def __init__(
        self, label: str, columns: pa.Schema, key: Sequence[str], aggregates: Sequence[BuiltInAggregate]
    ) -> None:
        """`columns` are those of the table, `key` the columns it is grouped by. Raises TopologyError for an aggregate
        that cannot take values away."""
        self._label = label
        self._columns = columns
        self._key = tuple(key)
        self._accumulators = make_accumulators(aggregates, retractable=True)
        self.columns = partial_columns([columns.field(name) for name in key], self._accumulators)

    def process(self, inputs: Sequence[pa.Table], context: KernelContext) -> Sequence[pa.Table]:
        changes = inputs[0]
        added = self._collect(changes.filter(_has_new(changes)), context)
        removed = self._collect(take_old(changes, self._columns).filter(_has_old(changes)), context)
        for each in self._accumulators:
            names = [field.name for field in each.fields]
            negative = each.negate([as_array(removed.column(name)) for name in names])
            for field, column in zip(each.fields, negative, strict=True):
                removed = removed.set_column(removed.column_names.index(field.name), field, column)
        return [_order([removed, added])]

    def _collect(self, rows: pa.Table, context: KernelContext) -> pa.Table:
        rows = drop_null_keys(rows, self._key, self._label, context)
        return collect_partials(rows, self._key, self._accumulators)


class RetractionKernel:
    """Input: changes of a table with `_old`. Output: rows with `columns`, `_deleted` and `_old`, by group.

    For functions of the user: PythonAggregateKernel with `retracting` takes `_old` away and adds the row, unless it is
    `_deleted`. A change within a group is one row, as in Kafka Streams; a change of the group is two.
    """

    stores: Sequence[StoreSpec] = ()

    def __init__(self, label: str, columns: pa.Schema, key: Sequence[str]) -> None:
        """`columns` are those that the functions need, all of which the table has; `key` the columns of the group."""
        self._label = label
        self._key = tuple(key)
        self._columns = columns
        self.schema = table_schema(columns, self._key, with_old=True)

    def process(self, inputs: Sequence[pa.Table], context: KernelContext) -> Sequence[pa.Table]:
        changes = inputs[0]
        old, new = take_old(changes, self._columns), changes.select([*self._columns.names, *HIDDEN.names])
        old_keys, new_keys = (
            self._find_keys(old, _has_old(changes), context),
            self._find_keys(new, _has_new(changes), context),
        )
        is_same = np.array(
            [before is not None and before == after for before, after in zip(old_keys, new_keys, strict=True)], np.bool_
        )
        is_removed = np.array([key is not None for key in old_keys], np.bool_) & ~is_same
        is_added = np.array([key is not None for key in new_keys], np.bool_) & ~is_same
        values = value_fields(self._columns, self._key)
        before = pa.StructArray.from_arrays([as_array(old.column(each.name)) for each in values], fields=values)
        return [
            _order(
                [
                    self._make_rows(old, before, is_removed, is_deleted=True),
                    self._make_rows(new, before, is_same, is_deleted=False),
                    self._make_rows(new, pa.nulls(len(before), before.type), is_added, is_deleted=False),
                ]
            )
        ]

    def _find_keys(self, rows: pa.Table, is_there: pa.Array, context: KernelContext) -> list[bytes | None]:
        """The group of each row, None where there is no row or no group."""
        keys = encode_keys(rows, self._key)
        there = is_there.to_pylist()
        missing = sum(key is None and present for key, present in zip(keys, there, strict=True))
        if missing:
            context.dropped[self._label, NULL_KEY] += missing
        return [key if present else None for key, present in zip(keys, there, strict=True)]

    def _make_rows(self, rows: pa.Table, old: pa.Array, is_chosen: Mask, *, is_deleted: bool) -> pa.Table:
        rows = rows.append_column(DELETED, pa.repeat(pa.scalar(is_deleted), rows.num_rows))
        rows = rows.append_column(self.schema.field(OLD), old)
        return rows.select(self.schema.names).cast(self.schema).filter(pa.array(is_chosen))


def take_old(changes: pa.Table, columns: pa.Schema) -> pa.Table:
    """The rows before the changes, with nulls where there was none. What `_old` does not have, the key of the table,
    does not change."""
    old = as_array(changes.column(OLD))
    names = {field.name for field in old.type}
    found = [
        pc.struct_field(old, field.name) if field.name in names else changes.column(field.name) for field in columns
    ]
    hidden = [changes.column(name) for name in HIDDEN.names]
    return pa.table([*found, *hidden], schema=stream_schema(columns))


def _has_old(changes: pa.Table) -> pa.Array:
    return as_array(changes.column(OLD)).is_valid()


def _has_new(changes: pa.Table) -> pa.Array:
    return pc.invert(as_array(changes.column(DELETED)))


def _order(parts: Sequence[pa.Table]) -> pa.Table:
    """The rows of all parts by their places. Those with the same place are in the order of the parts."""
    rows = pa.concat_tables(parts)
    return rows.take(pa.array(np.argsort(rows.column(ORDER).to_numpy(), kind="stable")))
