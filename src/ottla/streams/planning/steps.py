"""Nodes to kernels: which kernel a node becomes, and what its stores are for queries and for changes of the app."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ottla.streams import graph
from ottla.streams.graph import Node
from ottla.streams.kernels.aggregates import AggregateKernel
from ottla.streams.kernels.foreign_key import ResolveKernel, RespondKernel, SubscribeKernel
from ottla.streams.kernels.functions import FunctionKernel, MergeKernel, SelectKernel
from ottla.streams.kernels.joining import JoinShape
from ottla.streams.kernels.kernel import Kernel, StoreSpec
from ottla.streams.kernels.partial import PartialAggregate
from ottla.streams.kernels.processing import ProcessKernel
from ottla.streams.kernels.python_aggregates import PythonAggregateKernel, PythonWindowKernel
from ottla.streams.kernels.retractions import PartialRetraction, RetractionKernel
from ottla.streams.kernels.sessions import SessionKernel
from ottla.streams.kernels.stream_joins import JoinWindow, StreamJoinKernel
from ottla.streams.kernels.stream_table_joins import StreamTableJoinKernel
from ottla.streams.kernels.table_functions import TableFunctionKernel
from ottla.streams.kernels.table_joins import TableJoinKernel
from ottla.streams.kernels.tables import DerivedTableKernel, SourceTableKernel, ToTableKernel
from ottla.streams.kernels.windowed import PartialWindowAggregate, WindowedAggregateKernel
from ottla.streams.planning.naming import changelog_of
from ottla.streams.planning.plan import StorePlan
from ottla.streams.processors import state_columns
from ottla.streams.rows import value_fields
from ottla.streams.windows import Window


@dataclass(frozen=True)
class Made:
    """A kernel, and what the plan must know of it."""

    kernel: Kernel
    stores: Sequence[StorePlan] = ()
    outputs: int = 1
    late_topic: str | None = None
    late_columns: tuple[str, ...] | None = None
    key: tuple[str, ...] = ()
    needs_time: bool = False
    rows: "RowForm | None" = None
    """The rows it makes, if they are not those of its node."""


@dataclass(frozen=True)
class RowForm:
    """What rows look like between two steps."""

    columns: pa.Schema
    is_table: bool = False
    has_old: bool = False


def make_function(node: graph.FunctionStep) -> Made:
    before = node.inputs[0].columns
    if node.is_table:
        return Made(TableFunctionKernel(node.label, node.kind, node.function, before, node.columns, node.key))
    return Made(FunctionKernel(node.label, node.kind, node.function, before, node.columns))


def make_merge(columns: pa.Schema) -> Made:
    return Made(MergeKernel(columns))


def make_to_stream(node: graph.ToStream) -> Made:
    return Made(SelectKernel(node.columns))


def make_source_store(node: graph.Source, name: str) -> StorePlan:
    """The store of a table's topic, which is its changelog."""
    spec = StoreSpec(name, is_source=True)
    store = _table_store(node, spec, node.topic)
    return replace(store, key_format=node.key_format, value_format=node.value_format, time=node.time)


def make_source_table(node: graph.Source, name: str, *, only_newest: bool = False) -> Made:
    """The changes of a table's topic with old values, which are in its store."""
    return Made(SourceTableKernel(node.label, name, node.columns, node.key, only_newest=only_newest))


def make_derived_table(app: str, node: Node, name: str, *, with_old: bool = False, only_newest: bool = False) -> Made:
    """A store for a table that has none."""
    kernel = DerivedTableKernel(node.label, name, node.columns, node.key, with_old=with_old, only_newest=only_newest)
    return Made(kernel, (_table_store(node, kernel.stores[0], changelog_of(app, name)),))


def make_to_table(app: str, node: graph.ToTable, *, with_old: bool) -> Made:
    kernel = ToTableKernel(node.label, node.name, node.columns, node.key, with_old=with_old)
    return Made(kernel, (_table_store(node, kernel.stores[0], changelog_of(app, node.name)),))


def make_partial(node: graph.Aggregate) -> Made | None:
    """What is done to rows before they go to the partition of their group; None if nothing is."""
    source, aggregation = node.inputs[0], node.aggregation
    if node.window is not None and isinstance(aggregation, tuple) and node.window.kind != "session":
        windowed = PartialWindowAggregate(node.label, source.columns, source.key, node.window, aggregation)
        rows = RowForm(windowed.columns)
        return Made(windowed, late_topic=node.late_topic, late_columns=node.late_columns, key=source.key, rows=rows)
    if node.window is not None:
        return None
    if not isinstance(aggregation, tuple):
        if not source.is_table:
            return None
        changes = RetractionKernel(node.label, source.columns, source.key)
        return Made(changes, rows=RowForm(source.columns, is_table=True, has_old=True))
    partial: PartialRetraction | PartialAggregate
    if source.is_table:
        partial = PartialRetraction(node.label, source.columns, source.key, aggregation)
    else:
        names = _value_names(source)
        partial = PartialAggregate(node.label, source.columns, source.key, aggregation, value_names=names)
    return Made(partial, rows=RowForm(partial.columns))


def make_aggregate(app: str, node: graph.Aggregate) -> Made:
    """The table of aggregates. Its input is what `make_partial` makes, by the key of the groups."""
    if node.window is not None:
        return _make_windowed(app, node)
    source, aggregation = node.inputs[0], node.aggregation
    kernel: Kernel
    if isinstance(aggregation, tuple):
        kernel = AggregateKernel(node.name, node.columns, node.key, aggregation, retracting=source.is_table)
    else:
        kernel = PythonAggregateKernel(
            node.label,
            node.name,
            source.columns,
            node.columns,
            node.key,
            aggregation,
            retracting=source.is_table,
            value_names=_value_names(source),
        )
    store = _table_store(node, kernel.stores[0], changelog_of(app, node.name))
    return Made(kernel, (replace(store, functions=_list_functions(node)),))


def _list_functions(node: graph.Aggregate) -> tuple[tuple[str, str], ...]:
    aggregation = node.aggregation
    if isinstance(aggregation, tuple):
        return tuple((each.result, each.function) for each in aggregation)
    function = "reduce" if isinstance(aggregation, graph.Reduce) else "aggregate"
    return tuple((each.name, function) for each in value_fields(node.columns, node.key))


def _value_names(source: Node) -> list[str]:
    """The columns that are all null in a row of a stream without a value. Of a new key it has none, unless the key is
    made up."""
    if source.is_table or graph.is_rekeyed(source):
        return []
    return [field.name for field in value_fields(source.columns, source.key)]


def _make_windowed(app: str, node: graph.Aggregate) -> Made:
    source, aggregation = node.inputs[0], node.aggregation
    assert node.window is not None
    kernel: Kernel
    if node.window.kind == "session":
        kernel = SessionKernel(
            node.label, node.name, source.columns, node.columns, node.key, node.window, aggregation, emit=node.emit
        )
    elif isinstance(aggregation, tuple):
        kernel = WindowedAggregateKernel(
            node.label, node.name, node.columns, node.key, node.window, aggregation, emit=node.emit
        )
    else:
        kernel = PythonWindowKernel(
            node.label, node.name, source.columns, node.columns, node.key, node.window, aggregation, emit=node.emit
        )
    stores = _window_stores(app, node, kernel)
    return Made(
        kernel,
        stores,
        late_topic=node.late_topic,
        late_columns=node.late_columns,
        key=source.key,
        needs_time=True,
    )


def _window_stores(app: str, node: graph.Aggregate, kernel: Kernel) -> Sequence[StorePlan]:
    """The store of a windowed table, and those that its kernel needs for itself."""
    assert node.window is not None
    windows, *others = kernel.stores
    key = pa.schema([node.columns.field(name) for name in node.inputs[0].key])
    values = pa.schema(value_fields(node.columns, node.key))
    kind = "session" if node.window.kind == "session" else "window"
    size_ms = None if kind == "session" else node.window.size_ms
    store = StorePlan(
        windows,
        changelog_of(app, windows.name),
        key,
        values,
        kind,
        window_ms=size_ms,
        content=_describe_window(node.window),
        functions=_list_functions(node),
    )
    return (store, *_inner_stores(app, others))


def _describe_window(window: Window) -> str:
    if window.kind == "session":
        return f"sessions with a gap of {window.size_ms} ms"
    every = "" if window.advance_ms == window.size_ms else f" every {window.advance_ms} ms"
    return f"windows of {window.size_ms} ms{every}"


def _inner_stores(app: str, specs: Sequence[StoreSpec], content: str = "") -> Sequence[StorePlan]:
    """Stores that nobody but their kernel understands."""
    nothing = pa.schema([])
    return [
        StorePlan(spec, changelog_of(app, spec.name), nothing, nothing, is_queryable=False, content=content)
        for spec in specs
    ]


def make_stream_join(app: str, node: graph.StreamJoin) -> Made:
    window = JoinWindow(node.before_ms, node.after_ms, node.grace_ms, node.close_idle_ms)
    shape = JoinShape.of(node)
    kernel = StreamJoinKernel(node.label, node.name, shape, window)
    span = f"{node.before_ms} ms before and {node.after_ms} ms after"
    content = f"rows by {_name_types(shape.left.key_columns)} that match {span}"
    return Made(kernel, _inner_stores(app, kernel.stores, content), needs_time=True)


def _name_types(columns: pa.Schema) -> str:
    """Types alone: names of a join's key may change."""
    return ", ".join(str(each.type) for each in columns)


def make_stream_table_join(node: graph.StreamTableJoin, store: str) -> Made:
    return Made(StreamTableJoinKernel(node.label, JoinShape.of(node), store))


def make_table_join(
    node: graph.TableJoin, left_store: str, right_store: str, *, with_old: bool, only_newest: bool = False
) -> Made:
    shape = JoinShape.of(node)
    return Made(TableJoinKernel(shape, left_store, right_store, with_old=with_old, only_newest=only_newest))


def make_subscribe(node: graph.ForeignKeyJoin) -> Made:
    return Made(SubscribeKernel(node.label, JoinShape.of(node), node.foreign_key), outputs=2)


def make_respond(app: str, node: graph.ForeignKeyJoin, right_store: str) -> Made:
    shape = JoinShape.of(node)
    kernel = RespondKernel(node.name, shape, right_store)
    foreign = pa.schema([shape.left.columns.field(name) for name in node.foreign_key])
    names, own = ", ".join(node.foreign_key), _name_types(shape.left.key_columns)
    content = f"rows by {names} ({_name_types(foreign)}), key {own}"
    return Made(kernel, _inner_stores(app, kernel.stores, content))


def make_resolve(node: graph.ForeignKeyJoin, left_store: str) -> Made:
    return Made(ResolveKernel(node.label, JoinShape.of(node), left_store))


def make_process(app: str, node: graph.Process) -> Made:
    """A processor. Its states can be queried by key, its timers cannot."""
    source = node.inputs[0]
    kernel = ProcessKernel(
        node.label,
        node.name,
        node.processor,
        source.columns,
        source.key,
        node.columns,
        node.outputs,
        close_idle_ms=node.close_idle_ms,
    )
    states, timers = kernel.stores
    key = pa.schema([source.columns.field(name) for name in source.key])
    store = StorePlan(states, changelog_of(app, states.name), key, state_columns(node.processor))
    stores = (store, *_inner_stores(app, [timers]))
    return Made(kernel, stores, outputs=1 + len(node.outputs), needs_time=True)


def _table_store(node: Node, spec: StoreSpec, changelog: str) -> StorePlan:
    key = pa.schema([node.columns.field(name) for name in node.key])
    return StorePlan(spec, changelog, key, pa.schema(value_fields(node.columns, node.key)))
