"""Streams and tables in groups, and windows of groups: what can be aggregated. The result is a table.

State is found again by the name of its aggregate, so each one needs a name that never changes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pyarrow as pa

from ottla.streams import later
from ottla.streams.aggregations import decompose
from ottla.streams.calls import check_function, operator
from ottla.streams.columns import Expression, Schema, check_names, parse_schema
from ottla.streams.errors import TopologyError
from ottla.streams.graph import (
    Aggregate,
    Aggregation,
    BuiltInAggregate,
    ColumnStep,
    FunctionStep,
    Node,
    PythonAggregate,
    Reduce,
    ToStream,
    walk,
)
from ottla.streams.keys import rekey
from ottla.streams.relation import Relation
from ottla.streams.table import Table
from ottla.streams.topology import Topology
from ottla.streams.windows import END, START, Duration, Window

if TYPE_CHECKING:
    from ottla.streams.processors import Processor
    from ottla.streams.stream import Stream

Value = dict[str, Any]
"""A row, or the value of an aggregate: its columns by name."""

UPDATE: Final = "update"
FINAL: Final = "final"
RETRACTABLE: Final = ("count", "sum", "avg")
"""Aggregates from which the old value of a changed row can be taken away."""

_COUNT: Final = (BuiltInAggregate("count", None, "count"),)


@dataclass(frozen=True)
class _Windowing:
    """How an aggregate is divided by time."""

    window: Window | None = None
    emit: str = UPDATE
    late_topic: str | None = None


class _Groups:
    """Rows and the columns they are grouped by."""

    def __init__(self, topology: Topology, relation: Relation, key: tuple[str, ...]) -> None:
        self._topology = topology
        self._relation = relation
        self._key = key

    def _count(self, name: str, windowing: _Windowing) -> Table:
        return self._aggregate("count", name, _COUNT, [pa.field("count", pa.int64())], windowing)

    def _agg(self, columns: Sequence[Expression], name: str, windowing: _Windowing) -> Table:
        relation, found = decompose(self._relation, f"agg {name!r}", columns, self._key)
        self._check_aggregates(found)
        results = [pa.field(each.result, each.type) for each in found]
        return self._aggregate("agg", name, tuple(found), results, windowing, relation)

    def _check_aggregates(self, aggregates: Sequence[BuiltInAggregate]) -> None:
        """TopologyError if one of them cannot be computed for these groups."""

    def _reduce(self, reduce: Reduce, name: str, windowing: _Windowing) -> Table:
        check_function("reduce", "function", reduce.function, "combined", "row")
        values = [each for each in self._relation.node.columns if each.name not in self._key]
        reduced = self._aggregate("reduce", name, reduce, values, windowing)
        return Table(self._topology, reduced.node, self._relation.value_columns)

    def _aggregate_in_python(self, made: PythonAggregate, schema: Schema, name: str, windowing: _Windowing) -> Table:
        check_function("aggregate", "zero", made.zero)
        check_function("aggregate", "add", made.add, "value", "row")
        results = list(parse_schema("aggregate", schema))
        return self._aggregate("aggregate", name, made, results, windowing)

    def _aggregate(
        self,
        operator: str,
        name: str,
        aggregation: Aggregation,
        results: Sequence[pa.Field],
        windowing: _Windowing,
        relation: Relation | None = None,
    ) -> Table:
        before = (relation or self._relation).node
        window = windowing.window
        keys = [before.columns.field(each) for each in self._key]
        if window is not None:
            keys += [pa.field(START, pa.timestamp("us", "UTC")), pa.field(END, pa.timestamp("us", "UTC"))]
        columns = pa.schema([*keys, *results])
        check_names(operator, columns.names)
        name = self._topology.claim_name(operator, name)
        node = Aggregate(
            name,
            (self._group(name, before, aggregation, windowing),),
            columns,
            tuple(each.name for each in keys),
            is_table=True,
            name=name,
            aggregation=aggregation,
            window=window,
            emit=windowing.emit,
            late_topic=windowing.late_topic,
            late_columns=None if windowing.late_topic is None else self._relation.value_columns,
            close_idle_ms=None if window is None else window.close_idle_ms,
        )
        self._topology.add_root(node)
        return Table(self._topology, node)

    def _group(self, name: str, node: Node, aggregation: Aggregation, windowing: _Windowing) -> Node:
        """The rows with the group as key. An exchange carries only what is aggregated, unless late rows are wanted."""
        if self._key == node.key:
            return node
        needed = None
        if isinstance(aggregation, tuple) and windowing.late_topic is None:
            needed = list(dict.fromkeys(each.column for each in aggregation if each.column is not None))
        return rekey(f"{name}-group", node, self._key, needed)


class GroupedStream(_Groups):
    """Rows of a stream in groups."""

    @operator
    def count(self, *, name: str) -> Table:
        """How many rows each group has, in the column `count`."""
        return self._count(name, _Windowing())

    @operator
    def agg(self, *columns: Expression, name: str) -> Table:
        """Aggregates of Spark's, such as `F.sum("amount").alias("revenue")` or "count(*) as orders"."""
        return self._agg(columns, name, _Windowing())

    @operator
    def reduce(self, function: Callable[[Value, Value], Value], *, name: str) -> Table:
        """Combines the rows of a group: `function(combined, row)` returns a row with the same columns."""
        return self._reduce(Reduce(function), name, _Windowing())

    @operator
    def aggregate(
        self, zero: Callable[[], Value], add: Callable[[Value, Value], Value], *, schema: Schema, name: str
    ) -> Table:
        """An aggregate in Python: `zero()` is the value of an empty group, `add(value, row)` the one with another row.
        Values are dictionaries with the columns of `schema`."""
        return self._aggregate_in_python(PythonAggregate(zero, add), schema, name, _Windowing())

    @operator
    def window(self, window: Window) -> "WindowedStream":
        """Divides the groups by time: tumbling(...), hopping(...) or session(...)."""
        if not isinstance(window, Window):
            raise TopologyError(f"window: {window!r} is none of tumbling(...), hopping(...) and session(...)")
        taken = [each for each in (START, END) if each in self._key]
        if taken:
            raise TopologyError(f"window: the group has a column {taken[0]!r}, which is one of the window; rename it")
        if _follows_updates(self._relation.node):
            later.refuse(later.WINDOWS_OVER_TABLES, "window")
        return WindowedStream(self._topology, self._relation, self._key, window)

    @operator
    def process(
        self,
        processor: "type[Processor]",
        *,
        schema: Schema,
        name: str,
        outputs: Mapping[str, Schema] | None = None,
        close_idle: Duration | None = None,
    ) -> "Stream":
        """Like `Stream.process`, with the group as key."""
        from ottla.streams.stream import Stream

        stream = Stream(self._topology, rekey(f"{name}-group", self._relation.node, self._key))
        return stream.process(processor, schema=schema, name=name, outputs=outputs, close_idle=close_idle)

    def cogroup(self, *_: Any, **__: Any) -> NoReturn:
        later.refuse(later.COGROUP, "cogroup")


class WindowedStream(_Groups):
    """Rows of a stream in groups and windows. The window is a part of the result's key: `window_start`, `window_end`.

    emit    "update": a row whenever a value changes; "final": one row when the window has closed, `grace` after its end
    late    a topic for rows that come after that; without it the app's `on_late` decides
    """

    def __init__(self, topology: Topology, relation: Relation, key: tuple[str, ...], window: Window) -> None:
        super().__init__(topology, relation, key)
        self._window = window

    @operator
    def count(self, *, name: str, emit: str = UPDATE, late: str | None = None) -> Table:
        """How many rows each group has in each window, in the column `count`."""
        return self._count(name, self._windowing("count", emit, late))

    @operator
    def agg(self, *columns: Expression, name: str, emit: str = UPDATE, late: str | None = None) -> Table:
        """Aggregates of Spark's, such as `F.sum("amount").alias("revenue")`."""
        return self._agg(columns, name, self._windowing("agg", emit, late))

    @operator
    def reduce(
        self, function: Callable[[Value, Value], Value], *, name: str, emit: str = UPDATE, late: str | None = None
    ) -> Table:
        """Combines the rows of a group and window. Two sessions that become one are combined by the same function."""
        return self._reduce(Reduce(function), name, self._windowing("reduce", emit, late))

    @operator
    def aggregate(
        self,
        zero: Callable[[], Value],
        add: Callable[[Value, Value], Value],
        *,
        schema: Schema,
        name: str,
        merge: Callable[[Value, Value], Value] | None = None,
        emit: str = UPDATE,
        late: str | None = None,
    ) -> Table:
        """An aggregate in Python, as `GroupedStream.aggregate`. Session windows need `merge(value, value)`: a row may
        make one session of two."""
        if self._window.kind == "session":
            check_function("aggregate", "merge", merge, "value", "value")
        made = PythonAggregate(zero, add, merge=merge)
        return self._aggregate_in_python(made, schema, name, self._windowing("aggregate", emit, late))

    def _windowing(self, operator: str, emit: str, late: str | None) -> _Windowing:
        if emit not in (UPDATE, FINAL):
            raise TopologyError(f"{operator}: emit={emit!r}: it can be {UPDATE!r} or {FINAL!r}")
        if late is not None:
            self._topology.check_topic(f"{operator}: late", late)
        return _Windowing(self._window, emit, late)


class GroupedTable(_Groups):
    """Rows of a table in groups. When a row changes, its old value is taken away from the old group, and the new one is
    added to the new group."""

    @operator
    def count(self, *, name: str) -> Table:
        """How many rows each group has, in the column `count`."""
        return self._count(name, _Windowing())

    @operator
    def agg(self, *columns: Expression, name: str) -> Table:
        """Aggregates of Spark's that can be taken back: count, sum and avg."""
        return self._agg(columns, name, _Windowing())

    @operator
    def reduce(
        self, add: Callable[[Value, Value], Value], subtract: Callable[[Value, Value], Value], *, name: str
    ) -> Table:
        """Combines the rows of a group: `add(combined, row)` adds a row, `subtract(combined, row)` takes one away."""
        check_function("reduce", "subtract", subtract, "combined", "row")
        return self._reduce(Reduce(add, subtract), name, _Windowing())

    @operator
    def aggregate(
        self,
        zero: Callable[[], Value],
        add: Callable[[Value, Value], Value],
        subtract: Callable[[Value, Value], Value],
        *,
        schema: Schema,
        name: str,
    ) -> Table:
        """An aggregate in Python, as `GroupedStream.aggregate`; `subtract(value, row)` takes a row away again."""
        check_function("aggregate", "subtract", subtract, "value", "row")
        return self._aggregate_in_python(PythonAggregate(zero, add, subtract), schema, name, _Windowing())

    def window(self, *_: Any, **__: Any) -> NoReturn:
        later.refuse(later.WINDOWS_OVER_TABLES, "window")

    def _check_aggregates(self, aggregates: Sequence[BuiltInAggregate]) -> None:
        for each in aggregates:
            if each.function not in RETRACTABLE:
                raise TopologyError(
                    f"agg: {each.result!r}: {each.function} cannot be taken back when a row of the table changes, "
                    f"because other rows are not remembered. These work: {', '.join(RETRACTABLE)}, or "
                    f"aggregate(..., subtract=...)"
                )


def _follows_updates(node: Node) -> bool:
    """Whether rows are changes of a table, of which there may be more or fewer for the same input."""
    return any(isinstance(each, ToStream) and not _is_final(each.inputs[0]) for each in walk([node]))


def _is_final(node: Node) -> bool:
    while isinstance(node, ColumnStep | FunctionStep):
        node = node.inputs[0]
    return isinstance(node, Aggregate) and node.emit == FINAL
