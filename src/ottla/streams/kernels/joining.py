"""What joins have in common: which column of the result comes from where, and how inputs are followed in order."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.streams import graph
from ottla.streams.kernels.grouping import Numbers
from ottla.streams.kernels.versions import number_array, values_or_null
from ottla.streams.rows import HIDDEN, ORDER, TIMESTAMP, value_fields


@dataclass(frozen=True)
class JoinSide:
    """The rows of one input of a join."""

    columns: pa.Schema
    key: tuple[str, ...]
    is_rekeyed: bool = False
    """See `graph.is_rekeyed`."""

    @property
    def key_columns(self) -> pa.Schema:
        return pa.schema([self.columns.field(name) for name in self.key])

    @property
    def values(self) -> list[pa.Field]:
        return value_fields(self.columns, self.key)

    @property
    def value_names(self) -> list[str]:
        return [field.name for field in self.values]

    @property
    def null_value_names(self) -> list[str]:
        """The columns that are all null in a row without a value; empty if all rows with a key have one."""
        return [] if self.is_rekeyed else self.value_names


@dataclass(frozen=True)
class JoinShape:
    """How the result of a join is made of its sides. Keys of both sides match by position; their names may differ."""

    how: str
    left: JoinSide
    right: JoinSide
    columns: pa.Schema
    key: tuple[str, ...]
    left_columns: Mapping[str, str]
    """Names of the result's columns by those of the left side."""
    right_columns: Mapping[str, str]

    @classmethod
    def of(cls, node: graph.StreamJoin | graph.StreamTableJoin | graph.TableJoin | graph.ForeignKeyJoin) -> "JoinShape":
        left, right = (JoinSide(each.columns, each.key, graph.is_rekeyed(each)) for each in node.inputs)
        names = dict(node.left_columns), dict(node.right_columns)
        return cls(node.how, left, right, node.columns, node.key, *names)

    @property
    def value_names(self) -> list[str]:
        return [field.name for field in value_fields(self.columns, self.key)]

    def make_values(
        self, keys: Sequence[pa.ChunkedArray], left: "Taken", right: "Taken", names: Sequence[str]
    ) -> list[pa.ChunkedArray]:
        """These columns of the result. `keys` has the columns of the key by position."""
        from_left = {result: name for name, result in self.left_columns.items()}
        from_right = {result: name for name, result in self.right_columns.items()}
        found = []
        for name in names:
            if name in self.key:
                column = keys[self.key.index(name)]
            elif name in from_left:
                column = left.column(from_left[name], self.left, keys)
            else:
                column = right.column(from_right[name], self.right, keys)
            found.append(column.cast(self.columns.field(name).type))
        return found


class Taken:
    """The columns of one side for the rows of a result; null where the side has no row."""

    def __init__(self, values: pa.Table, numbers: Sequence[int | None] | Numbers) -> None:
        self._values = values
        self._numbers = number_array(numbers)

    def column(self, name: str, side: JoinSide, keys: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
        if name in side.key and name not in self._values.column_names:
            return values_or_null(keys[side.key.index(name)], self._numbers)
        return self._values.column(name).take(self._numbers)


def rank_rows(inputs: Sequence[pa.Table]) -> list[Numbers]:
    """The places of the rows of each input among those of all: the order of `in_order` as numbers."""
    order = np.concatenate([rows.column(ORDER).to_numpy() for rows in inputs])
    places = np.empty(len(order), np.int64)
    places[np.argsort(order, kind="stable")] = np.arange(len(order))
    return np.split(places, np.cumsum([rows.num_rows for rows in inputs])[:-1])


def in_order(inputs: Sequence[pa.Table]) -> Iterator[tuple[int, int]]:
    """The number of the input and of its row, in the order of all rows; of equal places the first input's first."""
    if sum(rows.num_rows > 0 for rows in inputs) < 2:
        for number, rows in enumerate(inputs):
            yield from ((number, row) for row in range(rows.num_rows))
        return
    places = pa.chunked_array([chunk for rows in inputs for chunk in rows.column(ORDER).chunks], pa.int64())
    numbers = [number for number, rows in enumerate(inputs) for _ in range(rows.num_rows)]
    starts = [sum(rows.num_rows for rows in inputs[:number]) for number in range(len(inputs))]
    for index in pc.array_sort_indices(places).to_pylist():
        yield numbers[index], index - starts[numbers[index]]


def take_hidden(
    inputs: Sequence[pa.Table], causes: Sequence[int] | Numbers, times: Sequence[int] | Numbers
) -> list[pa.ChunkedArray]:
    """Columns of ours for rows that were caused by these rows of the inputs (numbered through) and have these times."""
    hidden = pa.concat_tables([rows.select(HIDDEN.names) for rows in inputs]).take(number_array(causes))
    at = HIDDEN.get_field_index(TIMESTAMP)
    return list(hidden.set_column(at, HIDDEN.field(TIMESTAMP), pa.array(times, pa.int64())).columns)


def take_keys(
    inputs: Sequence[pa.Table], keys: Sequence[Sequence[str]], causes: Sequence[int] | Numbers
) -> list[pa.ChunkedArray]:
    """The key columns of these rows of the inputs, by position. `keys` names those of each input."""
    found = []
    for names in zip(*keys, strict=True):
        chunks = [chunk for rows, name in zip(inputs, names, strict=True) for chunk in rows.column(name).chunks]
        column = pa.chunked_array(chunks, inputs[0].schema.field(names[0]).type)
        found.append(column.take(number_array(causes)))
    return found
