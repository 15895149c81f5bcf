"""What streams and tables have in common: columns, a key, and steps that Spark or a function computes row by row."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from ottla.streams.calls import check_function, operator
from ottla.streams.columns import (
    Expression,
    Item,
    Schema,
    Step,
    check_names,
    filter_step,
    parse_schema,
    quote,
    select_step,
    table_filter_step,
    to_item,
)
from ottla.streams.errors import TopologyError
from ottla.streams.graph import ColumnStep, FunctionStep, Node
from ottla.streams.topology import Topology

Condition = Expression | Callable[[dict[str, Any]], bool]
"""A Column or SQL text that is true or false, or a function of a row."""


class KeyKeeper:
    """Adds the columns of the key to the rows that a function of the user returns, and refuses another key."""

    def __init__(self, function: Callable[[dict[str, Any]], Any], key: tuple[str, ...], *, is_many: bool) -> None:
        self._function = function
        self._key = key
        self._is_many = is_many

    def __call__(self, row: dict[str, Any]) -> Any:
        key = {name: row[name] for name in self._key}
        found = self._function(row)
        if self._is_many:
            return [self._with_key(key, each) for each in found]
        return None if found is None else self._with_key(key, found)

    def _with_key(self, key: dict[str, Any], row: Any) -> dict[str, Any]:
        if not isinstance(row, Mapping):
            raise TypeError(f"the function returned {row!r}, not a dictionary of columns")
        for name, value in key.items():
            if name in row and row[name] != value:
                raise ValueError(f"the function changed the key's column {name!r}; use select_key() to change the key")
        return {**row, **key}


class Relation:
    """Rows with named columns, some of which are the key. Every method returns a new one.

    `relation.amount` and `relation["amount"]` are columns by their names.
    """

    def __init__(self, topology: Topology, node: Node, value: Sequence[str] | None = None) -> None:
        self._topology = topology
        self.node = node
        self._value = tuple(name for name in node.columns.names if name not in node.key) if value is None else value

    @property
    def columns(self) -> list[str]:
        """Names of all columns, those of the key first."""
        return list(self.node.columns.names)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Names of the columns that make the key."""
        return self.node.key

    @property
    def value_columns(self) -> tuple[str, ...]:
        """Names of the columns that make the value of records. As in Kafka, a new key leaves the value as it is: a
        column can be a part of both, and the key before is still a column, but a part of neither."""
        return tuple(self._value)

    @property
    def schema(self) -> pa.Schema:
        """All columns with their types."""
        return self.node.columns

    def __getitem__(self, name: str) -> Column:
        check_columns(self.node.label, self.node, [name])
        return F.col(quote(name))

    def __getattr__(self, name: str) -> Column:
        node = self.__dict__.get("node")
        if node is None or name not in node.columns.names:
            raise AttributeError(f"{type(self).__name__} has no method and no column {name!r}")
        return F.col(quote(name))

    def __repr__(self) -> str:
        fields = ", ".join(f"{field.name} {field.type}" for field in self.node.columns)
        return f"{type(self).__name__}({self.node.label}: {fields}; key {', '.join(self.node.key)})"

    # Steps

    @operator
    def filter(self, condition: Condition) -> Self:
        """Only the rows for which the condition holds: a Column, an SQL text or a function of a row (a dictionary)."""
        label = self._topology.label("filter")
        if callable(condition) and not isinstance(condition, Column):
            return self._add_function(label, "filter", condition)
        return self._add_filter(label, to_item(label, condition).column)

    @operator
    def select(self, *columns: Expression) -> Self:
        """These columns become the value. The key stays as it is; its columns are a part of the value if they are
        named."""
        label = self._topology.label("select")
        if not columns:
            raise TopologyError(f"{label}: it needs at least one column")
        return self._add_select(label, columns)

    @operator
    def with_columns(self, **columns: Expression) -> Self:
        """Adds columns to the value, or replaces those of the same name."""
        label = self._topology.label("with_columns")
        if not columns:
            raise TopologyError(f"{label}: it needs at least one column, such as total='price * pieces'")
        return self.add_columns(label, {name: to_item(label, given).column for name, given in columns.items()})

    @operator
    def drop(self, *names: str) -> Self:
        """All columns but these."""
        label = self._topology.label("drop")
        check_columns(label, self.node, names)
        if keys := [name for name in names if name in self.node.key]:
            raise TopologyError(
                f"{label}: {keys[0]!r} is a column of the key; choose another key with select_key() first"
            )
        value = [name for name in self._value if name not in names]
        return self._add_select(label, [quote(name) for name in self._others() if name not in names], value)

    @operator
    def map(self, function: Callable[[dict[str, Any]], dict[str, Any] | None], *, schema: Schema) -> Self:
        """What a function makes of each row: a dictionary with the columns of `schema`, or None for no row.

        The key stays as it is; the function need not return its columns.
        """
        label = self._topology.label("map")
        return self._add_function(label, "map", function, parse_schema(label, schema))

    # How nodes are made

    def add_columns(self, label: str, columns: Mapping[str, Column], *, in_value: bool = True) -> Self:
        """Like `with_columns`, as a part of the step `label`. Columns can be added that are not a part of the value."""
        if changed := [name for name in columns if name in self.node.key]:
            raise TopologyError(
                f"{label}: {changed[0]!r} is the key; name the new column otherwise, then select_key() it"
            )
        kept = [quote(name) for name in self._others() if name not in columns]
        added = [name for name in columns if in_value and name not in self._value]
        return self._add_select(
            label, [*kept, *(column.alias(name) for name, column in columns.items())], [*self._value, *added]
        )

    def types_of_aggregates(self, label: str, columns: Sequence[Column]) -> list[tuple[str, pa.DataType]]:
        """Names and types that Spark gives these aggregates."""
        return self._topology.analyser.analyse_aggregates(label, self.node, columns)

    def type_of(self, label: str, column: Column) -> pa.DataType:
        """The type that a column has."""
        found = self._topology.analyser.analyse(label, self.node, lambda frame: frame.select(column.alias("column")))
        return found.field(0).type

    def name_of(self, label: str, column: Column) -> str:
        """The name that Spark gives a column."""
        names = self._topology.analyser.analyse(label, self.node, lambda frame: frame.select(column)).names
        if len(names) != 1:
            raise TopologyError(f"{label}: {column} is not one column")
        return str(names[0])

    def _check_app(self, label: str, other: "Relation") -> None:
        if other._topology is not self._topology:
            raise TopologyError(f"{label}: the two sides belong to two apps; make both with the same App")

    def _others(self) -> list[str]:
        """The columns that are not of the key."""
        return [name for name in self.node.columns.names if name not in self.node.key]

    def _with(self, node: Node, value: Sequence[str] | None = None) -> Self:
        """What a step makes; the value has the same columns unless others are given."""
        return type(self)(self._topology, node, self._value if value is None else value)

    def _with_key(self, label: str, columns: pa.Schema) -> pa.Schema:
        """The key's columns and then these, some of which may be of the key: they have its types."""
        keys = [self.node.columns.field(name) for name in self.node.key]
        for field in keys:
            if field.name in columns.names and columns.field(field.name).type != field.type:
                raise TopologyError(
                    f"{label}: the key's column {field.name!r} is {field.type} and stays so; the schema says "
                    f"{columns.field(field.name).type}"
                )
        found = pa.schema([*keys, *(field for field in columns if field.name not in self.node.key)])
        check_names(label, found.names)
        return found

    def _add_step(self, label: str, step: Step, value: Sequence[str] | None = None) -> Self:
        columns = self._topology.analyser.analyse(label, self.node, step)
        check_names(label, columns.names)
        node = ColumnStep(label, (self.node,), columns, self.node.key, is_table=self.node.is_table, apply=step)
        return self._with(node, [name for name in columns.names if name in (self._value if value is None else value)])

    def _add_filter(self, label: str, condition: Column) -> Self:
        if self.node.is_table:
            return self._add_step(label, table_filter_step(condition, self.node.columns.names, self.node.key))
        return self._add_step(label, filter_step(condition))

    def _add_select(self, label: str, columns: Sequence[Expression], value: Sequence[str] | None = None) -> Self:
        """Keeps the key and these columns. They make the value, unless `value` names other columns for that."""
        made: list[Item] = []
        named: list[str] = []
        for given in columns:
            item = to_item(label, given)
            names = list(self._value) if item.plain_name == "*" else [item.plain_name]
            named += [name for name in names if name in self.node.key]
            if item.plain_name == "*":
                made += [Item(F.col(quote(name)), name) for name in self._value if name not in self.node.key]
            elif item.plain_name not in self.node.key:
                made.append(item)
        step = select_step(self.node.key, made, is_table=self.node.is_table)
        selected = self._add_step(label, step, value)
        return selected if value is not None else self._with(selected.node, [*named, *selected._others()])

    def _add_function(self, label: str, kind: str, function: object, made: pa.Schema | None = None) -> Self:
        """Calls a function of the user; `made` are the columns of what it returns, if it returns rows."""
        check_function(label, "function", function, "row")
        assert callable(function)
        columns = self.node.columns if made is None else self._with_key(label, made)
        is_table = self.node.is_table
        if kind in ("map", "flat_map"):
            function = KeyKeeper(function, self.node.key, is_many=kind == "flat_map")
        node = FunctionStep(
            label, (self.node,), columns, self.node.key, is_table=is_table, kind=kind, function=function
        )
        return self._with(node, None if made is None else made.names)


def check_columns(label: str, node: Node, names: Sequence[object]) -> None:
    """TopologyError if one of the names is no column of the node."""
    for name in names:
        if name not in node.columns.names:
            raise TopologyError(f"{label}: there is no column {name!r}; there are {', '.join(node.columns.names)}")
