"""Nodes to kernels: which kernel a node becomes, and what its stores are for queries and for changes of the app."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from ottla.streams import graph
from ottla.streams.formats import RecordFormat
from ottla.streams.graph import Node
from ottla.streams.kernels.aggregates import AggregateKernel
from ottla.streams.kernels.functions import FunctionKernel, MergeKernel, SelectKernel
from ottla.streams.kernels.joining import JoinShape
from ottla.streams.kernels.kernel import Kernel, Row, StoreSpec
from ottla.streams.kernels.partial import PartialAggregate
from ottla.streams.kernels.stream_table_joins import StreamTableJoinKernel
from ottla.streams.kernels.table_joins import TableJoinKernel
from ottla.streams.kernels.tables import DerivedTableKernel, SourceTableKernel, ToTableKernel
from ottla.streams.planning.naming import changelog_of
from ottla.streams.planning.plan import StorePlan
from ottla.streams.rows import value_fields


@dataclass(frozen=True)
class Made:
    """A kernel, and what the plan must know of it."""

    kernel: Kernel
    stores: Sequence[StorePlan] = ()
    outputs: int = 1
    late_topic: str | None = None
    key: tuple[str, ...] = ()
    needs_time: bool = False
    columns: pa.Schema | None = None
    """The user's columns of the rows it makes, if they are not those of its node."""


def make_function(node: graph.FunctionStep) -> Made:
    before = node.inputs[0]
    function = node.function
    if node.kind in ("map", "flat_map"):
        function = _keep_key(node.function, node.kind, node.key)
    return Made(FunctionKernel(node.label, node.kind, function, before.columns, node.columns))


def make_merge(columns: pa.Schema) -> Made:
    return Made(MergeKernel(columns))


def make_to_stream(node: graph.ToStream) -> Made:
    return Made(SelectKernel(node.columns))


def make_source_store(node: graph.Source, name: str) -> StorePlan:
    """The store of a table's topic, which is its changelog."""
    spec = StoreSpec(name, is_source=True)
    return replace(_table_store(node, spec, node.topic, node.key_format, node.value_format), time=node.time)


def make_source_table(node: graph.Source, name: str) -> Made:
    """The changes of a table's topic with old values, which are in its store."""
    return Made(SourceTableKernel(node.label, name, node.columns, node.key))


def make_derived_table(app: str, node: Node, name: str, *, with_old: bool = False) -> Made:
    """A store for a table that has none."""
    kernel = DerivedTableKernel(node.label, name, node.columns, node.key, with_old=with_old)
    return Made(kernel, (_table_store(node, kernel.stores[0], changelog_of(app, name)),))


def make_to_table(app: str, node: graph.ToTable, *, with_old: bool) -> Made:
    kernel = ToTableKernel(node.label, node.name, node.columns, node.key, with_old=with_old)
    return Made(kernel, (_table_store(node, kernel.stores[0], changelog_of(app, node.name)),))


def make_partial(node: graph.Aggregate) -> Made | None:
    """What becomes of the rows of one task before they are exchanged; None if each of them is needed."""
    source = node.inputs[0]
    if isinstance(node.aggregation, tuple):
        partial = PartialAggregate(node.label, source.columns, source.key, node.aggregation)
        return Made(partial, columns=partial.columns)
    return None


def make_aggregate(app: str, node: graph.Aggregate) -> Made:
    """The table of aggregates. Its input is what `make_partial` makes, by the key of the groups."""
    assert isinstance(node.aggregation, tuple)
    kernel = AggregateKernel(node.name, node.columns, node.key, node.aggregation)
    return Made(kernel, (_table_store(node, kernel.stores[0], changelog_of(app, node.name)),))


def make_stream_table_join(node: graph.StreamTableJoin, store: str) -> Made:
    return Made(StreamTableJoinKernel(node.label, JoinShape.of(node), store))


def make_table_join(node: graph.TableJoin, left_store: str, right_store: str, *, with_old: bool) -> Made:
    return Made(TableJoinKernel(JoinShape.of(node), left_store, right_store, with_old=with_old))


def _table_store(
    node: Node,
    spec: StoreSpec,
    changelog: str,
    key_format: RecordFormat | None = None,
    value_format: RecordFormat | None = None,
) -> StorePlan:
    return StorePlan(
        spec,
        changelog,
        pa.schema([node.columns.field(name) for name in node.key]),
        pa.schema(value_fields(node.columns, node.key)),
        key_format=key_format,
        value_format=value_format,
    )


def _keep_key(function: Callable[[Row], Any], kind: str, key: Sequence[str]) -> Callable[[Row], Any]:
    """The function, with the key of its row in all that it returns: rows must stay in the key's partition."""

    def map_row(row: Row) -> Row | None:
        kept = {name: row[name] for name in key}
        found = function(row)
        return found if found is None else {**found, **kept}

    def flat_map_row(row: Row) -> Iterable[Row]:
        kept = {name: row[name] for name in key}
        return [{**found, **kept} for found in function(row)]

    return map_row if kind == "map" else flat_map_row
