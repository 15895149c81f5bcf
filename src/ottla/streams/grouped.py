"""Streams and tables in groups: what can be aggregated."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column

from ottla.streams.aggregations import decompose
from ottla.streams.columns import Schema, check_names, parse_schema
from ottla.streams.errors import TopologyError
from ottla.streams.graph import Aggregate, Aggregation, BuiltInAggregate, Node, PythonAggregate, Reduce
from ottla.streams.keys import rekey
from ottla.streams.relation import Relation
from ottla.streams.table import Table
from ottla.streams.topology import Topology


class GroupedStream:
    """Rows of a stream in groups by some of their columns. Each aggregate needs a name: state is found again by it."""

    def __init__(self, topology: Topology, relation: Relation, key: tuple[str, ...]) -> None:
        self._topology = topology
        self._relation = relation
        self._key = key

    def count(self, *, name: str) -> Table:
        """How many rows each group has, in the column `count`."""
        return self._aggregate("count", name, (BuiltInAggregate("count", None, "count"),), _COUNT)

    def agg(self, *columns: Column, name: str) -> Table:
        """Aggregates of Spark's: `F.sum("amount").alias("revenue")`, `F.count("*")`, `F.max("at")` and so on."""
        relation, found = decompose(self._relation, "agg", columns, self._key)
        results = [pa.field(each.result, each.type) for each in found]
        return self._aggregate("agg", name, tuple(found), results, relation)

    def reduce(self, function: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]], *, name: str) -> Table:
        """Combines the rows of a group two by two: `function(combined, row)` returns a row with the same columns."""
        _check_function("reduce", "function", function)
        values = [each for each in self._relation.node.columns if each.name not in self._key]
        return self._aggregate("reduce", name, Reduce(function), values)

    def aggregate(
        self,
        zero: Callable[[], dict[str, Any]],
        add: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]],
        *,
        schema: Schema,
        name: str,
    ) -> Table:
        """An aggregate in Python: `zero()` is the value of an empty group, `add(value, row)` the one with another row.
        Values are dictionaries with the columns of `schema`."""
        _check_function("aggregate", "zero", zero)
        _check_function("aggregate", "add", add)
        results = list(parse_schema("aggregate", schema))
        return self._aggregate("aggregate", name, PythonAggregate(zero, add), results)

    def _aggregate(
        self,
        operator: str,
        name: str,
        aggregation: Aggregation,
        results: Sequence[pa.Field],
        relation: Relation | None = None,
    ) -> Table:
        name = self._topology.claim_name(operator, name)
        before = (relation or self._relation).node
        grouped = self._group(name, before, aggregation)
        keys = [grouped.columns.field(each) for each in self._key]
        columns = pa.schema([*keys, *results])
        check_names(name, columns.names)
        node = Aggregate(
            name,
            (grouped,),
            columns,
            tuple(columns.names[: len(keys)]),
            is_table=True,
            name=name,
            aggregation=aggregation,
        )
        self._topology.add_root(node)
        return Table(self._topology, node)

    def _group(self, name: str, node: Node, aggregation: Aggregation) -> Node:
        """The rows with the group as key. An exchange carries only what is aggregated."""
        if self._key == node.key:
            return node
        needed = None
        if isinstance(aggregation, tuple):
            needed = list(dict.fromkeys(each.column for each in aggregation if each.column is not None))
        return rekey(f"{name}-group", node, self._key, needed)


_COUNT = (pa.field("count", pa.int64()),)


def _check_function(operator: str, what: str, given: object) -> None:
    if not callable(given):
        raise TopologyError(f"{operator}: {what}={given!r} is not a function")
