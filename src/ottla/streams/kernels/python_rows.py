"""Rows as dictionaries for functions of the user, and back to Arrow columns."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from ottla.streams.errors import FunctionFailed
from ottla.streams.kernels.kernel import FailedRows, KernelContext, Row
from ottla.streams.rows import OFFSET, PARTITION, TOPIC


def to_dicts(rows: pa.Table, names: Sequence[str]) -> list[Row]:
    """One dictionary with these columns for each row. Timestamps are datetimes."""
    if not names:
        return [{} for _ in range(rows.num_rows)]
    columns = [rows.column(name).to_pylist() for name in names]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def to_columns(dicts: Sequence[Row], columns: pa.Schema) -> pa.Table:
    """The columns of these dictionaries; a missing one is null. Raises an Arrow error if a value has another type."""
    arrays = [pa.array([each.get(field.name) for each in dicts], type=field.type) for field in columns]
    return pa.Table.from_arrays(arrays, schema=columns)


def check_row(row: Any, columns: pa.Schema) -> None:
    """Raise an exception that names the column if `row` is no dictionary with values of these columns."""
    if not isinstance(row, dict):
        raise TypeError(f"expected a dict with the columns {', '.join(columns.names)}, got {row!r}")
    unknown = [name for name in row if name not in columns.names]
    if unknown:
        raise ValueError(f"unknown column {unknown[0]!r}: the columns are {', '.join(columns.names)}")
    for field in columns:
        try:
            pa.array([row.get(field.name)], type=field.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"column {field.name!r}: {row.get(field.name)!r} is not {field.type}: {error}") from error


def make_columns(
    dicts: list[Row], causes: list[int], columns: pa.Schema, fail: Callable[[int, Exception], None]
) -> tuple[pa.Table, list[int]]:
    """The columns of dictionaries that a function returned, and the row that caused each of them.

    `fail(cause, error)` is called for a row whose function returned something that does not fit. Nothing of what that
    row caused remains. Rows are checked one by one only if they do not fit together.
    """
    names = set(columns.names)
    try:
        if all(isinstance(each, dict) and names.issuperset(each) for each in dicts):
            return to_columns(dicts, columns), causes
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    bad: set[int] = set()
    for each, cause in zip(dicts, causes, strict=True):
        try:
            if cause not in bad:
                check_row(each, columns)
        except (TypeError, ValueError) as error:
            bad.add(cause)
            fail(cause, error)
    kept = [index for index, cause in enumerate(causes) if cause not in bad]
    return to_columns([dicts[index] for index in kept], columns), [causes[index] for index in kept]


class Failures:
    """The failures of one step in one batch."""

    def __init__(self, label: str, rows: pa.Table, context: KernelContext) -> None:
        self._label = label
        self._rows = rows
        self._context = context
        self._found: dict[int, str] = {}

    def add(self, index: int, error: Exception) -> None:
        """Note that the function failed for this row. Raises FunctionFailed if the app is set to fail then."""
        reason = f"{type(error).__name__}: {error}"
        if self._context.on_error == "fail":
            topic, partition, offset = (self._rows.column(name)[index].as_py() for name in (TOPIC, PARTITION, OFFSET))
            where = "a timer" if topic is None else f"offset {offset} of {topic}-{partition}"
            raise FunctionFailed(f"{self._label}: {where}: {reason}") from error
        self._found[index] = reason

    def hand_over(self) -> None:
        """Give the failed rows to the runner."""
        if self._found:
            indices = sorted(self._found)
            reasons = [self._found[index] for index in indices]
            self._context.failed.append(FailedRows(self._label, self._rows.take(pa.array(indices)), reasons))
