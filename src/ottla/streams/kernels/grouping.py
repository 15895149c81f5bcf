"""Rows by group: each row has the number of its group, and whatever is computed has one value for each group."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

Numbers = np.ndarray[Any, np.dtype[np.int64]]


class Groups:
    """Which group each row belongs to. Each group has a row. If all have only one, they are in the order of rows."""

    def __init__(self, numbers: Numbers, count: int) -> None:
        self.numbers = numbers
        self.count = count

    @property
    def are_single_rows(self) -> bool:
        """Each row is a group of its own, so there is nothing to combine."""
        return self.count == len(self.numbers)

    @cached_property
    def first(self) -> Numbers:
        """The first row of each group."""
        found = np.empty(self.count, np.int64)
        found[self.numbers[::-1]] = np.arange(len(self.numbers) - 1, -1, -1)
        return found

    @cached_property
    def last(self) -> Numbers:
        """The last row of each group."""
        found = np.empty(self.count, np.int64)
        found[self.numbers] = np.arange(len(self.numbers))
        return found

    @cached_property
    def members(self) -> tuple[Numbers, Numbers]:
        """All rows, those of the first group first, and where each group begins among them (and the last one ends)."""
        sizes = np.bincount(self.numbers, minlength=self.count)
        return np.argsort(self.numbers, kind="stable"), np.concatenate(([0], np.cumsum(sizes)))

    def aggregate(self, column: pa.Array, function: str) -> pa.Array:
        """Compute one of Arrow's functions for grouped values, such as sum. It skips nulls."""
        rows = pa.table({"group": pa.array(self.numbers), "value": column})
        found = rows.group_by("group", use_threads=False).aggregate([("value", function)])
        values, numbers = as_array(found.column(f"value_{function}")), found.column("group").to_numpy()
        if self.count and np.any(numbers[:-1] > numbers[1:]):
            return values.take(pa.array(np.argsort(numbers)))
        return values

    def maximum(self, column: pa.Array) -> pa.Array:
        return column if self.are_single_rows else self.aggregate(column, "max")


def group_by_columns(columns: Sequence[pa.Array]) -> Groups:
    """Rows with the same values in all columns are a group. Null is a value. Groups are numbered as they appear."""
    numbers: Numbers | None = None
    count = 0
    for column in columns:
        encoded = _encodable(column).dictionary_encode(null_encoding="encode")
        codes, size = encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)
        if numbers is None:
            numbers, count = codes, size
        elif size > 1:
            pairs = pa.array(numbers * size + codes).dictionary_encode()
            numbers, count = pairs.indices.to_numpy().astype(np.int64), len(pairs.dictionary)
    assert numbers is not None, "rows are grouped by at least one column"
    return Groups(numbers, count)


def group_by_keys(keys: Sequence[bytes]) -> tuple[Groups, list[bytes]]:
    """Rows with the same key are a group, numbered as they appear. Also returns the key of each group."""
    found = dict.fromkeys(keys, 0)
    unique = list(found)
    if len(unique) == len(keys):
        return Groups(np.arange(len(keys)), len(keys)), unique
    for number, key in enumerate(unique):
        found[key] = number
    return Groups(np.fromiter(map(found.__getitem__, keys), np.int64, len(keys)), len(unique)), unique


def as_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column of a table as one array."""
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
    return column


def take_nullable(column: pa.Array, rows: Numbers) -> pa.Array:
    """The values of these rows; null for row -1."""
    return column.take(pa.array(rows, mask=rows < 0))


def _encodable(column: pa.Array) -> pa.Array:
    """Arrow cannot number nested values. Python's text for them is as good."""
    if pa.types.is_nested(column.type):
        return pa.array([None if value is None else repr(value) for value in column.to_pylist()], pa.string())
    return column
