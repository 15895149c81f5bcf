"""Functions on the rows of a table: a row that does not pass deletes its key."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from ottla.streams.errors import FunctionFailed
from ottla.streams.kernels.table_functions import TableFunctionKernel
from ottla.streams.rows import DELETED, ORDER
from tests.unit.streams.kernels.harness import State, make_rows

COLUMNS = pa.schema([("key", pa.string()), ("value", pa.int64())])
DOUBLED = pa.schema([("key", pa.string()), ("twice", pa.int64())])
EVENTS = [
    {"key": "a", "value": 1, "at": 1},
    {"key": "b", "deleted": True, "at": 2},
    {"key": "a", "value": 5, "at": 3},
]


def run(kind: str, function: Callable[[dict[str, Any]], Any], columns: pa.Schema) -> list[dict[str, Any]]:
    kernel = TableFunctionKernel("step", kind, function, COLUMNS, columns, ("key",))
    (rows,) = kernel.process([make_rows(COLUMNS, EVENTS, is_table=True)], State().context(()))
    assert rows.column(ORDER).to_pylist() == [0, 1, 2]
    return [{name: row[name] for name in (*columns.names, DELETED)} for row in rows.to_pylist()]


def test_a_filter_deletes_keys_that_it_does_not_let_pass() -> None:
    assert run("filter", lambda row: row["value"] > 3, COLUMNS) == [
        {"key": "a", "value": None, DELETED: True},
        {"key": "b", "value": None, DELETED: True},
        {"key": "a", "value": 5, DELETED: False},
    ]


def test_a_map_keeps_the_key_and_is_not_asked_about_deletions() -> None:
    def double(row: dict[str, Any]) -> dict[str, Any] | None:
        found = {"key": "other", "twice": row["value"] * 2}
        row.clear()
        return found if found["twice"] > 2 else None

    assert run("map", double, DOUBLED) == [
        {"key": "a", "twice": None, DELETED: True},
        {"key": "b", "twice": None, DELETED: True},
        {"key": "a", "twice": 10, DELETED: False},
    ]


def test_a_failing_function_names_the_record() -> None:
    with pytest.raises(FunctionFailed, match="step"):
        run("filter", lambda row: row["missing"], COLUMNS)
