"""Small topologies made of nodes, without Spark."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ottla.streams import graph
from ottla.streams.formats import RecordFormat
from ottla.streams.graph import Node
from ottla.streams.windows import END, START, Window

STRING = RecordFormat("string", type=pa.string())
LONG = RecordFormat("long", type=pa.int64())
KEY = pa.field("key", pa.string())


def source(topic: str, *values: str, is_table: bool = False, json_key: bool = False, **options: Any) -> graph.Source:
    """A topic with text keys, and values of long columns."""
    fields = [pa.field(name, pa.int64()) for name in values or ("value",)]
    form = RecordFormat("json", type=pa.struct(fields))
    key = RecordFormat("json", type=pa.string()) if json_key else STRING
    columns = pa.schema([KEY, *fields])
    return graph.Source(
        f"source {topic}",
        (),
        columns,
        ("key",),
        is_table,
        topic=topic,
        key_format=key,
        value_format=form,
        name=topic if is_table else None,
        **options,
    )


def select(node: Node) -> graph.ColumnStep:
    """A Column step that changes nothing."""
    return graph.ColumnStep("select", (node,), node.columns, node.key, node.is_table)


def keep_if(node: Node, condition: Callable[[dict[str, Any]], bool] = lambda row: True) -> graph.FunctionStep:
    return graph.FunctionStep("filter", (node,), node.columns, node.key, kind="filter", function=condition)


def rekey(node: Node, *key: str) -> graph.Rekey:
    others = [name for name in node.columns.names if name not in key]
    columns = pa.schema([node.columns.field(name) for name in (*key, *others)])
    return graph.Rekey("rekey", (node,), columns, key, node.is_table)


def merge(*nodes: Node) -> graph.Merge:
    return graph.Merge("merge", nodes, nodes[0].columns, nodes[0].key)


def count(node: Node, name: str, window: Window | None = None) -> graph.Aggregate:
    times = [] if window is None else [pa.field(each, pa.timestamp("us", "UTC")) for each in (START, END)]
    keys = [*(node.columns.field(each) for each in node.key), *times]
    return graph.Aggregate(
        name,
        (node,),
        pa.schema([*keys, pa.field("count", pa.int64())]),
        tuple(each.name for each in keys),
        True,
        name=name,
        aggregation=(graph.BuiltInAggregate("count", None, "count"),),
        window=window,
    )


def to_table(node: Node, name: str) -> graph.ToTable:
    return graph.ToTable(name, (node,), node.columns, node.key, True, name=name)


def join(kind: Callable[..., Node], left: Node, right: Node, name: str, how: str = "inner") -> Node:
    """A join with the columns of the left side, and those of the right side but its key with `right_` before them."""
    names = {each: f"right_{each}" for each in right.columns.names if each not in right.key}
    renamed = [pa.field(names[each.name], each.type) for each in right.columns if each.name in names]
    return kind(
        name,
        (left, right),
        pa.schema([*left.columns, *renamed]),
        left.key,
        left.is_table,
        name=name,
        how=how,
        left_columns={each: each for each in left.columns.names},
        right_columns=names,
    )


def sink(node: Node, topic: str) -> graph.Sink:
    values = [each for each in node.columns if each.name not in node.key]
    keys = [node.columns.field(name) for name in node.key]
    is_text = len(keys) == 1 and keys[0].type == pa.string()
    key_format = STRING if is_text else RecordFormat("json", type=pa.struct(keys))
    value_format = RecordFormat("json", type=pa.struct(values))
    return graph.Sink(
        f"to {topic}",
        (node,),
        node.columns,
        node.key,
        topic=topic,
        key_format=key_format,
        value_format=value_format,
    )
