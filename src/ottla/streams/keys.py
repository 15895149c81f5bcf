"""Keys: which columns make the key of a stream or table from a step on."""

from collections.abc import Sequence
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import Column

from ottla.streams.columns import find_plain_name, to_item
from ottla.streams.errors import TopologyError
from ottla.streams.graph import Node, Rekey
from ottla.streams.relation import Relation, check_columns

R = TypeVar("R", bound=Relation)


def choose_key(relation: R, label: str, key: Sequence[object]) -> tuple[R, tuple[str, ...]]:
    """Names of the columns that a user has chosen as key, and the rows with those of them that are computed."""
    if not key:
        raise TopologyError(f"{label}: it needs at least one column")
    names: list[str] = []
    computed: dict[str, Column] = {}
    for given in key:
        name = find_plain_name(label, given)
        if name is None:
            column = to_item(label, given).column
            name = relation.name_of(label, column)
            computed[name] = column
        else:
            check_columns(label, relation.node, [name])
        names.append(name)
    if len(set(names)) < len(names):
        raise TopologyError(f"{label}: a column is named twice")
    if computed:
        relation = relation.add_columns(label, computed, in_value=False)
    for name in names:
        _check_type(label, relation.node.columns.field(name))
    return relation, tuple(names)


def _check_type(label: str, field: pa.Field) -> None:
    if pa.types.is_nested(field.type) or pa.types.is_null(field.type):
        raise TopologyError(
            f"{label}: {field.name!r} is {field.type}; a key is made of simple columns, such as its fields"
        )


def rekey(label: str, node: Node, key: tuple[str, ...], values: Sequence[str] | None = None) -> Node:
    """The node with another key; the node itself if nothing changes. `values` are the other columns that stay."""
    names = node.columns.names if values is None else values
    if key == node.key and values is None:
        return node
    columns = pa.schema([node.columns.field(name) for name in (*key, *(each for each in names if each not in key))])
    return Rekey(label, (node,), columns, key, is_table=node.is_table)
