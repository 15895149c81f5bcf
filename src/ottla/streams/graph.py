"""The logical topology: what the user has said, as nodes that know their inputs. The planner makes tasks of it.

A node is immutable and is made by a method of Stream or Table. It has the schema of its rows (the user's columns only,
see `rows.py`), so whoever makes a node has checked it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ottla.streams.formats import RecordFormat
from ottla.streams.windows import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, eq=False)
class Node:
    label: str
    """Names the step in messages, pictures and metrics, such as `filter-3`, or as the user has named it."""
    inputs: tuple["Node", ...]
    columns: pa.Schema
    """The user's columns of the rows, those of the key first."""
    key: tuple[str, ...]
    """Names of the columns that make the key."""
    is_table: bool = False


@dataclass(frozen=True, eq=False)
class Source(Node):
    """A topic. Of a table every record replaces the one before with the same key, and a null value deletes it."""

    topic: str = ""
    key_format: RecordFormat = field(default_factory=RecordFormat)
    value_format: RecordFormat = field(default_factory=RecordFormat)
    time: str | None = None
    """The column with the event time, a timestamp or int64 with milliseconds; None for the record's timestamp."""
    start: str = "earliest"
    """Where an app without committed offsets begins: earliest or latest."""
    name: str | None = None
    """The name of a table's store."""


@dataclass(frozen=True, eq=False)
class ColumnStep(Node):
    """A step that Spark computes: filter, select and the like. It keeps the columns that begin with `_`.

    Of a table, the step sees the new value of each change, and a filter sets `_deleted` instead of removing the row.
    """

    apply: Callable[["DataFrame"], "DataFrame"] = field(default=lambda frame: frame)


@dataclass(frozen=True, eq=False)
class FunctionStep(Node):
    """A step in Python on single rows: map, flat_map, filter and peek with a function of the user."""

    kind: str = "map"
    """map: row -> row or None to drop it; flat_map: row -> rows; filter: row -> bool; peek: row -> nothing."""
    function: Callable[[dict[str, Any]], Any] = field(default=lambda row: row)


@dataclass(frozen=True, eq=False)
class Rekey(Node):
    """The columns `key` make the key from here on. Whatever needs the key next causes an exchange. Other columns of the
    input that are not in `columns` are not needed any more."""


def is_rekeyed(node: Node) -> bool:
    """Whether the key of a stream's rows was made of other columns. A row that has such a key has a value, even if all
    of its other columns are null."""
    return not node.is_table and (isinstance(node, Rekey) or any(is_rekeyed(each) for each in node.inputs))


@dataclass(frozen=True, eq=False)
class Merge(Node):
    """The rows of all inputs, which have the same columns and key."""


@dataclass(frozen=True, eq=False)
class Repartition(Node):
    """An exchange that the user asks for."""

    name: str = ""
    partitions: int | None = None


@dataclass(frozen=True)
class BuiltInAggregate:
    """One of the aggregates that can be merged. The step before has computed its argument as a column."""

    function: str
    """count, sum, min, max, avg, first, last, collect_list or collect_set."""
    column: str | None
    """None for count of all rows."""
    result: str
    """The name of the result's column."""
    type: pa.DataType = field(default_factory=pa.int64)


@dataclass(frozen=True)
class PythonAggregate:
    """An aggregate of the user: `zero()` makes a value, `add(value, row)` adds a row, `subtract` takes one away again
    (for tables), `merge` joins two values (for sessions). Values are dictionaries with the result's columns."""

    zero: Callable[[], Any]
    add: Callable[[Any, dict[str, Any]], Any]
    subtract: Callable[[Any, dict[str, Any]], Any] | None = None
    merge: Callable[[Any, Any], Any] | None = None


@dataclass(frozen=True)
class Reduce:
    """Combines two rows of a key to one with the same columns."""

    function: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]
    subtract: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]] | None = None


Aggregation = tuple[BuiltInAggregate, ...] | PythonAggregate | Reduce


@dataclass(frozen=True, eq=False)
class Aggregate(Node):
    """A table of aggregates by key, or by key and window (then window_start and window_end are columns of the key).

    If the input is a table, a change takes the old value away from its group and adds the new one to its group.
    """

    name: str = ""
    aggregation: Aggregation = ()
    window: Window | None = None
    emit: str = "update"
    """update: a row whenever a value changes. final: one row when the window is closed."""
    late_topic: str | None = None
    late_columns: tuple[str, ...] | None = None
    """The columns that late rows are written with: the value as it was before anything was computed for the aggregate.
    None for all columns."""
    close_idle_ms: int | None = None


@dataclass(frozen=True, eq=False)
class StreamJoin(Node):
    """Two streams with the same key, whose rows are at most `before_ms` (the right one earlier) or `after_ms` (later)
    apart. how: inner or left."""

    name: str = ""
    how: str = "inner"
    before_ms: int = 0
    after_ms: int = 0
    grace_ms: int = 0
    close_idle_ms: int | None = None
    left_columns: Mapping[str, str] = field(default_factory=dict)
    """Names of the result's columns by those of the left side; those of the right side come after them."""
    right_columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class StreamTableJoin(Node):
    """Each row of the stream (the first input) with the value that the table (the second) has for its key."""

    name: str = ""
    how: str = "inner"
    left_columns: Mapping[str, str] = field(default_factory=dict)
    right_columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class TableJoin(Node):
    """Two tables with the same key. how: inner, left or outer."""

    name: str = ""
    how: str = "inner"
    left_columns: Mapping[str, str] = field(default_factory=dict)
    right_columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ForeignKeyJoin(Node):
    """Each row of the left table with the row of the right table whose key is in the left one's columns `foreign_key`.
    how: inner or left. The result has the key of the left table."""

    name: str = ""
    how: str = "inner"
    foreign_key: tuple[str, ...] = ()
    left_columns: Mapping[str, str] = field(default_factory=dict)
    right_columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ToTable(Node):
    """The newest row of each key."""

    name: str = ""


@dataclass(frozen=True, eq=False)
class ToStream(Node):
    """Each change of a table as a row. A deleted key is a row whose value columns are null."""


@dataclass(frozen=True, eq=False)
class Process(Node):
    """A Processor of the user."""

    name: str = ""
    processor: Any = None
    """The user's class, see `processors.py`."""
    outputs: Mapping[str, pa.Schema] = field(default_factory=dict)
    """Schemas of further outputs by name; `columns` is that of the main one."""
    close_idle_ms: int | None = None


@dataclass(frozen=True, eq=False)
class Output(Node):
    """One of the further outputs of a Process."""

    name: str = ""


@dataclass(frozen=True, eq=False)
class Sink(Node):
    """Writes rows to a topic; of a table, a deleted key becomes a record without a value."""

    topic: str | None = None
    topic_column: str | None = None
    """The column that names the topic of each row, if `topic` is None."""
    key_format: RecordFormat = field(default_factory=RecordFormat)
    value_format: RecordFormat = field(default_factory=RecordFormat)
    value_columns: tuple[str, ...] | None = None
    """The columns that make the value: columns of the key may be among them, and the topic's column may not. None for
    all columns that are not of the key."""


def walk(sinks: Sequence[Node]) -> list[Node]:
    """All nodes that the sinks need, each after its inputs."""
    found: dict[int, Node] = {}

    def visit(node: Node) -> None:
        if id(node) not in found:
            for parent in node.inputs:
                visit(parent)
            found[id(node)] = node

    for sink in sinks:
        visit(sink)
    return list(found.values())
