"""Joins: whether two sides fit together, and which columns the result has.

The result has the key of the left side, then the left side's other columns, then those of the right side. The key of
the right side is the same value and is left out. A name that both sides have gets `_left` and `_right` added; one that
the right side shares with the key gets `_right`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from ottla.streams.columns import check_names
from ottla.streams.errors import TopologyError
from ottla.streams.graph import Node
from ottla.streams.relation import Relation


class Joined(NamedTuple):
    """What all nodes of joins have in common."""

    columns: pa.Schema
    left_columns: Mapping[str, str]
    right_columns: Mapping[str, str]

    def fields(self, left: Node, right: Node, name: str, how: str, *, is_table: bool = False) -> dict[str, Any]:
        """Arguments of the node."""
        return {
            "label": name,
            "inputs": (left, right),
            "columns": self.columns,
            "key": left.key,
            "is_table": is_table,
            "name": name,
            "how": how,
            "left_columns": self.left_columns,
            "right_columns": self.right_columns,
        }

    def value(self, left: Relation, right: Relation) -> list[str]:
        """The columns that make the value of the result: those of both values."""
        from_left = [self.left_columns.get(name, name) for name in left.value_columns]
        return [*from_left, *(self.right_columns[name] for name in right.value_columns if name in self.right_columns)]


def join_columns(label: str, left: Node, right: Node) -> Joined:
    """The columns of a join's result and where they come from."""
    left_values = [name for name in left.columns.names if name not in left.key]
    right_values = [name for name in right.columns.names if name not in right.key]
    left_columns = {name: f"{name}_left" if name in right_values else name for name in left_values}
    right_columns = {
        name: f"{name}_right" if name in left_values or name in left.key else name for name in right_values
    }
    columns = pa.schema(
        [
            *(left.columns.field(name) for name in left.key),
            *(pa.field(result, left.columns.field(name).type) for name, result in left_columns.items()),
            *(pa.field(result, right.columns.field(name).type) for name, result in right_columns.items()),
        ]
    )
    check_names(label, columns.names)
    return Joined(columns, left_columns, right_columns)


def check_how(label: str, how: object, choices: tuple[str, ...]) -> str:
    if not isinstance(how, str) or how not in choices:
        raise TopologyError(f"{label}: how={how!r}: it can be {' or '.join(map(repr, choices))}")
    return how


def check_same_key(label: str, left: Node, left_names: tuple[str, ...], right: Node) -> None:
    """TopologyError unless these columns of the left side have the types of the right side's key."""
    ours = [left.columns.field(name) for name in left_names]
    theirs = [right.columns.field(name) for name in right.key]
    if len(ours) != len(theirs):
        raise TopologyError(
            f"{label}: the left side has the key ({', '.join(left_names)}), the right side ({', '.join(right.key)}); "
            f"name as many columns with on= or select_key()"
        )
    for our, their in zip(ours, theirs, strict=True):
        if our.type != their.type:
            raise TopologyError(
                f"{label}: {our.name!r} of the left side is {our.type}, {their.name!r} of the right side is "
                f"{their.type}; cast one of them with with_columns()"
            )
