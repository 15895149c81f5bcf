"""Built-in aggregates with state: the accumulators of a batch are merged with those in the store.

A value in the store has the results' columns, the further accumulators (such as the sum and the count of an average)
and `_timestamp`, the highest time of the rows in it. The key is the canonical key. There is one change for each key and
batch, as with the cache of Kafka Streams.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ottla.streams.graph import BuiltInAggregate
from ottla.streams.kernels.accumulators import make_accumulators
from ottla.streams.kernels.grouping import Groups, Numbers, as_array, group_by_keys, take_nullable
from ottla.streams.kernels.kernel import KernelContext, StoreSpec
from ottla.streams.kernels.partial import make_hidden, order_by_last, take_rows
from ottla.streams.rows import DELETED, OLD, TIMESTAMP, table_schema, value_fields
from ottla.streams.state.keys import encode_keys
from ottla.streams.state.store import Store
from ottla.streams.state.values import RowCodec


class AggregateKernel:
    """Input: partial rows, from PartialAggregate or (with `retracting`) PartialRetraction.
    Output: changes of a table with `columns`, with `_old`.

    With `retracting` a group that has become empty stays, with a count of 0 and null for sums and averages: Kafka
    Streams keeps the aggregate of such a group as well.
    """

    def __init__(
        self,
        store: str,
        columns: pa.Schema,
        key: Sequence[str],
        aggregates: Sequence[BuiltInAggregate],
        *,
        retracting: bool = False,
    ) -> None:
        self.stores: Sequence[StoreSpec] = (StoreSpec(store),)
        self._key = tuple(key)
        self._state = AccumulatorState(columns, self._key, aggregates, retracting=retracting)

    def process(self, inputs: Sequence[pa.Table], context: KernelContext) -> Sequence[pa.Table]:
        rows = inputs[0]
        if not rows.num_rows:
            return [self._state.schema.empty_table()]
        keys = [key for key in encode_keys(rows, self._key) if key is not None]
        groups, unique = group_by_keys(keys)
        return [self._state.merge(rows, groups, unique, context.store(self.stores[0].name)).changes]


@dataclass(frozen=True)
class Merged:
    """What a batch has done to the state."""

    changes: pa.Table
    """Changes of the table, one for each key, ordered."""
    is_new: np.ndarray[Any, np.dtype[np.bool_]]
    """For each group: the store did not have its key."""


class AccumulatorState:
    """Accumulators in a store, and how partial rows are merged into them. `codec` reads and writes the values."""

    def __init__(
        self, columns: pa.Schema, key: Sequence[str], aggregates: Sequence[BuiltInAggregate], *, retracting: bool
    ) -> None:
        self._key = tuple(key)
        self._accumulators = make_accumulators(aggregates, retractable=retracting)
        self._results = value_fields(columns, self._key)
        fields = [field for each in self._accumulators for field in each.fields]
        further = [field for field in fields if field.name not in columns.names]
        self.codec = RowCodec(pa.schema([*self._results, *further, pa.field(TIMESTAMP, pa.int64())]))
        self.schema = table_schema(columns, self._key, with_old=True)

    def merge(self, rows: pa.Table, groups: Groups, keys: Sequence[bytes], store: Store) -> Merged:
        """Merge partial rows into the store. `keys` has the key of each group. The rows have the key's columns."""
        arrays = {name: as_array(rows.column(name)) for name in rows.column_names}
        stored = store.get_many(keys)
        is_new = np.fromiter((value is None for value in stored), np.bool_, len(stored))
        state = self.codec.decode([value for value in stored if value is not None])
        values = self._merge_accumulators(arrays, groups, state, np.flatnonzero(~is_new))
        store.put_many(keys, self.codec.encode(values), values.column(TIMESTAMP).to_numpy().tolist())
        columns = take_rows(arrays, self._key, groups.first, groups)
        columns |= {field.name: as_array(values.column(field.name)) for field in self._results}
        columns |= make_hidden(arrays, groups)
        columns[TIMESTAMP] = as_array(values.column(TIMESTAMP))
        columns[DELETED] = pa.repeat(pa.scalar(False), groups.count)
        columns[OLD] = self._take_old(state, is_new)
        return Merged(order_by_last(pa.table(columns, self.schema), groups), is_new)

    def _merge_accumulators(
        self, rows: dict[str, pa.Array], groups: Groups, state: pa.Table, stored_groups: Numbers
    ) -> pa.Table:
        """The new values of all groups. The stored accumulators come first, as if they were a row before the others."""
        if len(stored_groups):
            groups = Groups(np.concatenate((stored_groups, groups.numbers)), groups.count)
            stored = {name: as_array(state.column(name)) for name in state.column_names}
            rows = {name: pa.concat_arrays([stored[name], rows[name]]) for name in stored if name in rows}
        return self.combine(rows, groups)

    def combine(self, accumulators: Mapping[str, pa.Array], groups: Groups) -> pa.Table:
        """Values as they are stored, one for each group. Also merges `_timestamp`."""
        found = {TIMESTAMP: groups.maximum(accumulators[TIMESTAMP])}
        for each in self._accumulators:
            merged = each.merge([accumulators[field.name] for field in each.fields], groups)
            found |= {field.name: column for field, column in zip(each.fields, merged, strict=True)}
            found[each.aggregate.result] = each.result(merged)
        return pa.table({name: found[name] for name in self.codec.columns.names}, self.codec.columns)

    def collect(self, rows: pa.Table) -> dict[str, pa.Array]:
        """The accumulators of each row alone, and its `_timestamp`."""
        alone = Groups(np.arange(rows.num_rows), rows.num_rows)
        found = {TIMESTAMP: as_array(rows.column(TIMESTAMP))}
        for each in self._accumulators:
            column = each.aggregate.column
            collected = each.collect(None if column is None else as_array(rows.column(column)), alone)
            found |= {field.name: array for field, array in zip(each.fields, collected, strict=True)}
        return found

    def _take_old(self, state: pa.Table, is_new: np.ndarray[Any, np.dtype[np.bool_]]) -> pa.Array:
        """The results before the batch; null for a key that the store did not have."""
        kind = self.schema.field(OLD).type
        if not state.num_rows:
            return pa.nulls(len(is_new), kind)
        columns = [as_array(state.column(field.name)) for field in self._results]
        places = np.where(is_new, -1, np.cumsum(~is_new) - 1)
        return take_nullable(pa.StructArray.from_arrays(columns, fields=self._results), places)
