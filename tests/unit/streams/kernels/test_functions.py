"""Functions of the user on single rows, merges and changes of the key."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from ottla.streams.errors import FunctionFailed
from ottla.streams.kernels.functions import FunctionKernel, MergeKernel, SelectKernel
from ottla.streams.kernels.kernel import KernelContext
from ottla.streams.rows import HEADERS, OFFSET, OLD, ORDER, TIMESTAMP
from tests.unit.streams.kernels.harness import Event, make_rows, run_alone

COLUMNS = pa.schema([("key", pa.string()), ("amount", pa.float64()), ("at", pa.timestamp("us", "UTC"))])
RESULT = pa.schema([("key", pa.string()), ("total", pa.int64())])


def rows_of(*events: Event) -> pa.Table:
    return make_rows(COLUMNS.remove(2), [{"at": 7, **event} for event in events])


def run(
    kind: str, function: Any, rows: pa.Table, columns: pa.Schema = RESULT, **settings: Any
) -> tuple[list[Event], KernelContext]:
    kernel = FunctionKernel("step-1", kind, function, COLUMNS.remove(2), columns)
    found, contexts = run_alone(kernel, [[rows]], **settings)
    return found, contexts[0]


def test_map_changes_a_row_and_keeps_its_time_and_headers() -> None:
    # The new row has the place, time and headers of the row it came from. None drops a row.
    rows = rows_of({"key": "a", "amount": 2.0, "headers": [{"key": "h", "value": b"1"}]}, {"key": "b", "amount": None})
    found, _ = run("map", lambda row: row["amount"] and {"key": row["key"], "total": int(row["amount"])}, rows)
    assert [(row["key"], row["total"], row[TIMESTAMP], row[ORDER]) for row in found] == [("a", 2, 7, 0)]
    assert found[0][HEADERS] == [{"key": "h", "value": b"1"}]


def test_flat_map_takes_any_iterable() -> None:
    def split(row: Event) -> Any:
        for total in range(int(row["amount"])):
            yield {"key": row["key"], "total": total}

    found, _ = run(
        "flat_map", split, rows_of({"key": "a", "amount": 2.0}, {"key": "b", "amount": 0.0}, {"amount": 1.0})
    )
    assert [(row["key"], row["total"], row[OFFSET]) for row in found] == [("a", 0, 0), ("a", 1, 0), (None, 0, 2)]


def test_filter_and_peek_leave_rows_as_they_are() -> None:
    # Also if the function changes the dictionary that it got.
    rows = rows_of({"key": "a", "amount": 1.0}, {"key": "b", "amount": 2.0})
    found, _ = run("filter", lambda row: row.pop("amount") > 1, rows, COLUMNS.remove(2))
    assert [(row["key"], row["amount"]) for row in found] == [("b", 2.0)]
    seen: list[Event] = []
    found, _ = run("peek", seen.append, rows, COLUMNS.remove(2))
    assert [row["key"] for row in found] == ["a", "b"] == [row["key"] for row in seen]


def test_timestamps_are_datetimes() -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    rows = make_rows(COLUMNS, [{"key": "a", "at": 0}]).set_column(
        2, "at", pa.array([moment], pa.timestamp("us", "UTC"))
    )
    kernel = FunctionKernel("step-1", "map", lambda row: {"key": row["at"].isoformat()}, COLUMNS, RESULT)
    assert run_alone(kernel, [[rows]])[0][0]["key"] == moment.isoformat()


@pytest.mark.parametrize(
    ("kind", "function", "reason"),
    [
        ("map", lambda row: {"total": 6 // int(row["amount"])}, "ZeroDivisionError"),
        ("map", lambda row: {"total": 6} if row["amount"] else {"total": "x"}, "column 'total': 'x' is not int64"),
        ("map", lambda row: {"total": 6} if row["amount"] else {"sum": 6}, "unknown column 'sum'"),
        ("map", lambda row: {"total": 6} if row["amount"] else [6], "expected a dict"),
        (
            "flat_map",
            lambda row: [{"total": 6}, {"total": 6}][: 2 if not row["amount"] else 1] + [6] * (not row["amount"]),
            "dict",
        ),
        ("filter", lambda row: 6 // row["amount"], "ZeroDivisionError"),
        ("peek", lambda row: 6 // row["amount"], "ZeroDivisionError"),
    ],
)
def test_a_failing_row_is_set_aside(kind: str, function: Any, reason: str) -> None:
    # The others go on, nothing of the failing row does, and it is handed over as the function got it. With the policy
    # `fail` the message names the step and the record.
    rows = rows_of({"key": "a", "amount": 1.0}, {"key": "b", "amount": 0.0}, {"key": "c", "amount": 1.0})
    columns = COLUMNS.remove(2) if kind in ("filter", "peek") else RESULT
    found, context = run(kind, function, rows, columns, on_error="skip")
    assert [row[OFFSET] for row in found] == [0, 2]
    (failed,) = context.failed
    assert failed.label == "step-1"
    assert failed.rows.column("key").to_pylist() == ["b"]
    assert reason in failed.reasons[0]
    with pytest.raises(FunctionFailed, match="step-1: offset 1 of in-0: "):
        run(kind, function, rows, columns)


def test_merge_keeps_the_order_in_which_rows_were_read() -> None:
    left = make_rows(RESULT, [{"key": "a", "at": 0, ORDER: place} for place in (0, 2, 2, 5)])
    right = make_rows(RESULT, [{"key": "b", "at": 0, ORDER: place} for place in (1, 2, 3)])
    found, _ = run_alone(MergeKernel(RESULT), [[left, right]])
    assert [(row[ORDER], row["key"]) for row in found] == [
        (0, "a"), (1, "b"), (2, "a"), (2, "a"), (2, "b"), (3, "b"), (5, "a")
    ]  # fmt: skip


def test_a_table_as_a_stream_has_a_row_for_each_change() -> None:
    changes = make_rows(
        RESULT, [{"key": "a", "total": 1, "at": 1}, {"key": "a", "at": 2, "deleted": True}], is_table=True
    )
    old = pa.array([None, {"total": 1}], pa.struct([("total", pa.int64())]))
    found, _ = run_alone(
        SelectKernel(pa.schema([("total", pa.int64()), ("key", pa.string())])), [[changes.append_column(OLD, old)]]
    )
    assert list(found[0])[:2] == ["total", "key"]
    assert [(row["key"], row["total"]) for row in found] == [("a", 1), ("a", None)]
    assert OLD not in found[0]
