"""Partial aggregates: many rows become one for each key before an exchange, so that few bytes cross it.

A partial row has the columns of the key, the start of the window if there is one, the accumulators (`accumulators.py`)
and all hidden columns: those of the last row, with the highest TIMESTAMP. What the source partitions have reached is
told beside the rows (`KernelContext.source_times`), so rows of several of them can become one.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.streams.graph import BuiltInAggregate
from ottla.streams.kernels.accumulators import Accumulator, make_accumulators
from ottla.streams.kernels.grouping import Groups, Numbers, as_array, group_by_columns
from ottla.streams.kernels.kernel import KernelContext, StoreSpec
from ottla.streams.kernels.versions import drop_null_values
from ottla.streams.rows import HIDDEN, TIMESTAMP, stream_schema

NULL_KEY = "null key"


class PartialAggregate:
    """Input: rows of a stream. Output: partial rows, whose columns are `columns`. Rows without a key or value are
    dropped.

    Runs before an exchange, or directly before AggregateKernel if the input is already partitioned by the key.
    """

    stores: Sequence[StoreSpec] = ()

    def __init__(
        self,
        label: str,
        columns: pa.Schema,
        key: Sequence[str],
        aggregates: Sequence[BuiltInAggregate],
        *,
        value_names: Sequence[str] = (),
    ) -> None:
        """`columns` are those of the input, without ours; `value_names` are null in a row without a value."""
        self._label = label
        self._key = tuple(key)
        self._value_names = tuple(value_names)
        self._accumulators = make_accumulators(aggregates)
        self.columns = partial_columns([columns.field(name) for name in key], self._accumulators)

    def process(self, inputs: Sequence[pa.Table], context: KernelContext) -> Sequence[pa.Table]:
        rows = drop_null_values(inputs[0], self._value_names, self._label, context)
        rows = drop_null_keys(rows, self._key, self._label, context)
        return [collect_partials(rows, self._key, self._accumulators)]


def partial_columns(key: Sequence[pa.Field], accumulators: Sequence[Accumulator]) -> pa.Schema:
    """The columns of partial rows, without those that every row has."""
    return pa.schema([*key, *(field for each in accumulators for field in each.fields)])


def drop_null_keys(rows: pa.Table, key: Sequence[str], label: str, context: KernelContext) -> pa.Table:
    """Rows whose key columns are not all null. The others belong to no partition, so Kafka Streams drops them too."""
    is_null = as_array(rows.column(key[0])).is_null()
    for name in key[1:]:
        is_null = pc.and_(is_null, as_array(rows.column(name)).is_null())
    dropped = pc.sum(is_null).as_py()
    if not dropped:
        return rows
    context.dropped[label, NULL_KEY] += dropped
    return rows.filter(pc.invert(is_null))


def collect_partials(rows: pa.Table, key: Sequence[str], accumulators: Sequence[Accumulator]) -> pa.Table:
    """One partial row for each key, in the order of the last rows."""
    arrays = {name: as_array(rows.column(name)) for name in rows.column_names}
    groups = group_by_columns([arrays[name] for name in key])
    columns = take_rows(arrays, key, groups.first, groups)
    for each in accumulators:
        argument = None if each.aggregate.column is None else arrays[each.aggregate.column]
        names = [field.name for field in each.fields]
        columns |= dict(zip(names, each.collect(argument, groups), strict=True))
    columns |= make_hidden(arrays, groups)
    schema = stream_schema(partial_columns([rows.schema.field(name) for name in key], accumulators))
    return order_by_last(pa.table(columns, schema), groups)


def make_hidden(rows: dict[str, pa.Array], groups: Groups) -> dict[str, pa.Array]:
    """The hidden columns of rows that stand for groups: those of the last row, with the highest TIMESTAMP."""
    return take_rows(rows, HIDDEN.names, groups.last, groups) | {TIMESTAMP: groups.maximum(rows[TIMESTAMP])}


def take_rows(
    arrays: Mapping[str, pa.Array], names: Sequence[str], rows: Numbers, groups: Groups
) -> dict[str, pa.Array]:
    """These rows of some columns, one for each group."""
    if groups.are_single_rows:
        return {name: arrays[name] for name in names}
    indices = pa.array(rows)
    return {name: arrays[name].take(indices) for name in names}


def order_by_last(rows: pa.Table, groups: Groups) -> pa.Table:
    """Order rows that stand for groups by the last row of each group, so that they are ordered by ORDER."""
    if groups.are_single_rows:
        return rows
    return rows.take(pa.array(np.argsort(groups.last, kind="stable")))
