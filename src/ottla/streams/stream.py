"""Stream: records of topics as rows, one after the other."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from ottla.streams import later
from ottla.streams.calls import check_function, check_processor, operator
from ottla.streams.columns import (
    Expression,
    Schema,
    branch_conditions,
    header_step,
    parse_schema,
    timestamp_step,
    to_item,
)
from ottla.streams.errors import TopologyError
from ottla.streams.graph import Merge, Node, Output, Process, Repartition, StreamJoin, StreamTableJoin, ToTable
from ottla.streams.joins import check_how, check_same_key, join_columns
from ottla.streams.keys import choose_key, rekey
from ottla.streams.processors import Processor
from ottla.streams.relation import Condition, Relation
from ottla.streams.table import Table
from ottla.streams.topics import Format, make_sink
from ottla.streams.windows import Duration, parse_duration_ms

if TYPE_CHECKING:
    from ottla.streams.grouped import GroupedStream


class Stream(Relation):
    """Rows that stand for themselves: each record is one fact."""

    @operator
    def flat_map(self, function: Callable[[dict[str, Any]], Iterable[dict[str, Any]]], *, schema: Schema) -> "Stream":
        """All the rows that a function makes of each row: dictionaries with the columns of `schema`. The key stays as
        it is; the function need not return its columns."""
        label = self._topology.label("flat_map")
        return self._add_function(label, "flat_map", function, parse_schema(label, schema))

    @operator
    def peek(self, function: Callable[[dict[str, Any]], object]) -> "Stream":
        """Calls a function for each row, which goes on as it is. A batch that is repeated calls it again."""
        peeked = self._add_function(self._topology.label("peek"), "peek", function)
        self._topology.add_root(peeked.node)
        return peeked

    @operator
    def branch(self, *conditions: Condition) -> list["Stream"]:
        """One stream for each condition, with the rows that meet it and none before it, and one more with the rest.

        large, small, rest = orders.branch("amount > 100", "amount > 0")
        """
        label = self._topology.label("branch")
        if not conditions:
            raise TopologyError(f"{label}: it needs at least one condition")
        are_functions = [callable(each) and not isinstance(each, Column) for each in conditions]
        if all(are_functions):
            functions: Sequence[Any] = conditions
            for each in functions:
                check_function(label, "a condition", each, "row")
            steps = [Branch(functions[:index], functions[index]) for index in range(len(functions))]
            return [
                self._add_function(f"{label}.{index}", "filter", step)
                for index, step in enumerate([*steps, Branch(functions, None)])
            ]
        if any(are_functions):
            raise TopologyError(f"{label}: either all conditions are functions, or none; both do not mix")
        columns = branch_conditions([to_item(label, each).column for each in conditions])
        return [self._add_filter(f"{label}.{index}", column) for index, column in enumerate(columns)]

    @operator
    def merge(self, *others: "Stream") -> "Stream":
        """The rows of this stream and of others that have the same columns and key."""
        label = self._topology.label("merge")
        for other in others:
            self._check_stream(label, other)
            ours, theirs = _describe_columns(self.node), _describe_columns(other.node)
            if sorted(ours) != sorted(theirs) or self.node.key != other.node.key:
                raise TopologyError(
                    f"{label}: {self.node.label} has the columns {', '.join(ours)}, {other.node.label} has "
                    f"{', '.join(theirs)}; make them equal with select() and select_key()"
                )
        if not others:
            raise TopologyError(f"{label}: it needs at least one other stream")
        nodes = (self.node, *(each.node for each in others))
        return self._with(Merge(label, nodes, self.node.columns, self.node.key))

    @operator
    def repartition(self, *, name: str, partitions: int | None = None) -> "Stream":
        """Sends the rows through a topic of the app, partitioned by their key."""
        if partitions is not None and (type(partitions) is not int or partitions < 1):
            raise TopologyError(f"repartition: partitions={partitions!r}: it must be a whole number from 1 on")
        name = self._topology.claim_name("repartition", name)
        node = Repartition(name, (self.node,), self.node.columns, self.node.key, name=name, partitions=partitions)
        return self._with(node)

    @operator
    def with_timestamp(self, time: Expression) -> "Stream":
        """Sets the time of each row: a timestamp, or a long with milliseconds. Where it is null the time stays.

        Windows and records that are written go by this time. Whether a row is late goes by the time of its source: for
        an event time that windows wait for, use `time=` of `app.stream`.
        """
        label = self._topology.label("with_timestamp")
        column = to_item(label, time).column
        kind = self.type_of(label, column)
        if not (pa.types.is_timestamp(kind) or pa.types.is_int64(kind)):
            raise TopologyError(f"{label}: {time} is {kind}; it must be a timestamp, or a long with milliseconds")
        return self._add_step(label, timestamp_step(column, is_number=pa.types.is_int64(kind)))

    @operator
    def with_headers(self, headers: Mapping[str, Expression | bytes | None]) -> "Stream":
        """Sets headers by their names: Columns, SQL texts such as "'web'", or bytes. None removes a header, and so does
        a null. Other headers stay."""
        label = self._topology.label("with_headers")
        if not isinstance(headers, Mapping) or not headers or not all(isinstance(name, str) for name in headers):
            raise TopologyError(f"{label}: it needs a dictionary of headers, such as {{'trace': 'trace_id'}}")
        values = {
            name: None if given is None else F.lit(given) if isinstance(given, bytes) else to_item(label, given).column
            for name, given in headers.items()
        }
        return self._add_step(label, header_step(values))

    @operator
    def select_key(self, *key: Expression) -> "Stream":
        """These columns become the key. The value stays as it is; the key before is still a column, but only a part of
        the value if it is selected."""
        label = self._topology.label("select_key")
        relation, names = choose_key(self, label, key)
        return self._with(rekey(label, relation.node, names))

    @operator
    def group_by(self, *key: Expression) -> "GroupedStream":
        """Rows with the same values in these columns belong together; the columns become the key."""
        from ottla.streams.grouped import GroupedStream

        return GroupedStream(self._topology, *choose_key(self, self._topology.label("group_by"), key))

    @operator
    def group_by_key(self) -> "GroupedStream":
        """Rows with the same key belong together."""
        from ottla.streams.grouped import GroupedStream

        return GroupedStream(self._topology, self, self.node.key)

    @operator
    def to_table(self, *, name: str) -> Table:
        """The newest row of each key. A row whose value columns are all null deletes its key."""
        name = self._topology.claim_name("to_table", name)
        node = ToTable(name, (self.node,), self.node.columns, self.node.key, is_table=True, name=name)
        self._topology.add_root(node)
        return Table(self._topology, node, self._value)

    @operator
    def to(
        self,
        topic: str | Column,
        *,
        key: Format | None = None,
        value: Format | None = None,
        allows_loop: bool = False,
    ) -> None:
        """Writes the rows to a topic, or each row to the topic that a Column names.

        The value has the columns `value_columns`, or those that the schema in `value` names. By default a key of one
        simple column is written as Kafka's serializers do, any other key as a JSON object. A value that is the column
        `value` alone is written likewise, any other value as a JSON object of its columns.
        """
        label = self._topology.label("to")
        sink = make_sink(self._topology, self, label, topic, key=key, value=value, allows_loop=allows_loop)
        self._topology.add_root(sink)

    @operator
    def process(
        self,
        processor: type[Processor],
        *,
        schema: Schema,
        name: str,
        outputs: Mapping[str, Schema] | None = None,
        close_idle: Duration | None = None,
    ) -> "Stream":
        """What a Processor of the user makes of the rows, key by key: rows with the columns of `schema`.

        `outputs` are the schemas of further outputs by name; `output(name)` of the result returns them. The key stays
        as it is in all of them. With `close_idle`, time passes for timers also while partitions have no records for so
        long.
        """
        check_processor(processor, Processor)
        if not isinstance(outputs, Mapping | None):
            raise TopologyError(f"process: outputs={outputs!r}: it must be a dictionary of schemas by name")
        idle_ms = None if close_idle is None else parse_duration_ms(close_idle, "process: close_idle")
        made = parse_schema("process", schema)
        columns = self._with_key("process", made)
        further = {
            str(each): self._with_key(f"process: output {each!r}", parse_schema(f"process: output {each!r}", given))
            for each, given in (outputs or {}).items()
        }
        name = self._topology.claim_name("process", name)
        node = Process(
            name,
            (self.node,),
            columns,
            self.node.key,
            name=name,
            processor=processor,
            outputs=further,
            close_idle_ms=idle_ms,
        )
        self._topology.add_root(node)
        return self._with(node, made.names)

    @operator
    def output(self, name: str) -> "Stream":
        """One of the further outputs of `process`."""
        process = self.node
        if not isinstance(process, Process):
            raise TopologyError(f"output: {process.label} is no processor; call it on what process() returns")
        if name not in process.outputs:
            known = ", ".join(process.outputs) or "none; name them with outputs= of process()"
            raise TopologyError(f"{process.label}: there is no output {name!r}; there are {known}")
        node = Output(f"{process.name}.{name}", (process,), process.outputs[name], process.key, name=name)
        return Stream(self._topology, node)

    @operator
    def join(
        self,
        other: "Stream | Table",
        *,
        on: Expression | tuple[Expression, ...] | None = None,
        how: str = "inner",
        name: str | None = None,
        within: Duration | None = None,
        before: Duration | None = None,
        after: Duration | None = None,
        grace: Duration = 0,
        close_idle: Duration | None = None,
        as_of: object = None,
    ) -> "Stream":
        """Rows together with those of another stream or of a table that have the same key; inner or left.

        With a table: each row with the value that the table has for its key when the row comes. `on` are columns that
        become the key of this stream first.

        With a stream: each pair of rows that are at most `within` apart, or whose right one is at most `before` earlier
        or `after` later; `grace` is how long a row may be late. A left join tells that a row has no partner when time
        has passed; with `close_idle`, time passes also for partitions without records for so long. `on` are columns
        that become the key of both streams first. The join has state, so it needs a name.

        The result has the key of this stream. A name that both sides have gets `_left` and `_right` added.
        """
        if as_of is not None:
            later.refuse(later.AS_OF_JOINS, "join")
        if not isinstance(other, Stream | Table):
            raise TopologyError(f"join: {other!r} is neither a stream nor a table")
        self._check_app("join", other)
        keys = () if on is None else tuple(on) if isinstance(on, tuple | list) else (on,)
        left = self.select_key(*keys) if keys else self
        if isinstance(other, Stream):
            right = other.select_key(*keys) if keys else other
            times = _join_times(within, before, after, grace, close_idle)
            return left._join_stream(right, how, name, times)
        if within is not None or before is not None or after is not None or grace or close_idle is not None:
            raise TopologyError("join: within, before, after, grace and close_idle are for joins of two streams")
        return left._join_table(other, how, name)

    def _join_table(self, table: Table, how: str, name: str | None) -> "Stream":
        check_how("join", how, ("inner", "left"))
        check_same_key("join", self.node, self.node.key, table.node)
        joined = join_columns("join", self.node, table.node)
        chosen = self._topology.claim_name("join", name or _name_of_join(table.node))
        node = StreamTableJoin(**joined.fields(self.node, table.node, chosen, how))
        return self._with(node, joined.value(self, table))

    def _join_stream(self, other: "Stream", how: str, name: str | None, times: Mapping[str, Any]) -> "Stream":
        if how == "outer":
            later.refuse(later.OUTER_STREAM_JOINS, "join")
        check_how("join", how, ("inner", "left"))
        check_same_key("join", self.node, self.node.key, other.node)
        joined = join_columns("join", self.node, other.node)
        fields = joined.fields(self.node, other.node, self._topology.claim_name("join", name), how)
        node = StreamJoin(**fields, **times)
        self._topology.add_root(node)
        return self._with(node, joined.value(self, other))

    def _check_stream(self, label: str, other: object) -> None:
        if not isinstance(other, Stream):
            raise TopologyError(f"{label}: {other!r} is not a stream")
        self._check_app(label, other)


class Branch:
    """A condition that holds if none of those before does. Without a condition: if none of those before holds."""

    def __init__(
        self, before: Sequence[Callable[[dict[str, Any]], bool]], condition: Callable[[dict[str, Any]], bool] | None
    ) -> None:
        self._before = tuple(before)
        self._condition = condition

    def __call__(self, row: dict[str, Any]) -> bool:
        if any(each(row) for each in self._before):
            return False
        return self._condition is None or bool(self._condition(row))


def _join_times(
    within: Duration | None,
    before: Duration | None,
    after: Duration | None,
    grace: Duration,
    close_idle: Duration | None,
) -> dict[str, Any]:
    """The times of a join of two streams in milliseconds, as fields of its node."""
    if within is not None and (before is not None or after is not None):
        raise TopologyError("join: within says both before and after; use either within or the two")
    if within is None and before is None and after is None:
        raise TopologyError("join: two streams are joined within a window: join(..., within='5 minutes', name=...)")
    if within is not None:
        before = after = within
    return {
        "before_ms": parse_duration_ms(before or 0, "join: before" if within is None else "join: within"),
        "after_ms": parse_duration_ms(after or 0, "join: after"),
        "grace_ms": parse_duration_ms(grace, "join: grace"),
        "close_idle_ms": None if close_idle is None else parse_duration_ms(close_idle, "join: close_idle"),
    }


def _name_of_join(table: Node) -> str | None:
    """A name for a join with a table, made from that of the table; None if the table has none."""
    name = getattr(table, "name", None)
    return f"join-{name}" if name else None


def _describe_columns(node: Node) -> list[str]:
    return [f"{field.name} {field.type}" for field in node.columns]
