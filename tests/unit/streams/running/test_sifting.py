"""Rows for which a Column fails: halves are tried until single rows are left."""

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.transactions import ProducerIdentity
from ottla.spark.jobs import JobFailed
from ottla.streams.running.sifting import RECORDS_MAX, ROW_COUNT, RowsChanged, find_failing, sift, sift_rows
from ottla.streams.running.work import BROKEN, Failure, Order, Report, Sifting, SourceRange, order_fields, to_order

PRODUCER = ProducerIdentity(7, 0)
ORDER = Order(3, PRODUCER, [SourceRange(10, 30, -1)], 0)


@given(st.sets(st.integers(0, 40)), st.integers(0, 41), st.integers(0, 41))
def test_exactly_the_failing_rows_are_found(failing: set[int], count: int, count_max: int) -> None:
    """In order, each with its own reason, and no more than were asked for."""

    def explain(start: int, end: int) -> str | None:
        found = sorted(failing & set(range(start, end)))
        return f"row {found[0]}" if found else None

    expected = [(row, f"row {row}") for row in sorted(failing) if row < count]
    assert find_failing(explain, 0, count, count_max) == expected[:count_max]


def run_with(bad: set[int], rows: int, orders: list[Order]) -> Callable[[Order], Report]:
    """Runs orders as Spark would: a job fails if it computes a bad row."""

    def run(order: Order) -> Report:
        orders.append(order)
        sifting = order.sifting
        assert sifting is not None
        aside = {number for number, _ in sifting.failed}
        if bad & set(range(sifting.start, sifting.end)) - aside:
            raise JobFailed("[DIVIDE_BY_ZERO] Division by zero", is_of_data=True)
        return Report(order.partition, order.producer, counts={ROW_COUNT: rows})

    return run


@pytest.mark.parametrize(("only_first", "expected"), [(True, [4]), (False, [4, 9])])
def test_a_batch_runs_without_its_failing_rows(only_first: bool, expected: list[int]) -> None:
    """Trials write nothing; the only order that does leaves out what they have found, and reads as much as they."""
    orders: list[Order] = []
    run = run_with({4, 9}, 20, orders)
    if only_first:  # the task itself refuses the batch then
        with pytest.raises(JobFailed):
            sift(run, ORDER, only_first=True)
    else:
        assert sift(run, ORDER, only_first=False).failure is None
    *trials, last = orders
    assert all(each.sifting is not None and each.sifting.is_trial for each in trials)
    assert last.sifting == Sifting(20, 0, 20, [(row, "[DIVIDE_BY_ZERO] Division by zero") for row in expected])
    assert {each.records_max for each in orders} == {RECORDS_MAX}


def test_other_failures_are_not_taken_for_bad_rows() -> None:
    """A worker that dies is no reason to leave out a row."""

    def run(order: Order) -> Report:
        if order.sifting is not None and order.sifting.end:
            raise JobFailed("the Python worker exited unexpectedly")
        return Report(order.partition, order.producer, counts={ROW_COUNT: 5})

    with pytest.raises(JobFailed, match="exited unexpectedly"):
        sift(run, ORDER, only_first=False)


def test_a_batch_that_cannot_be_read_is_reported() -> None:
    failed = Report(3, PRODUCER, failure=Failure(BROKEN, "the broker is away"))
    assert sift(lambda _: failed, ORDER, only_first=False) is failed


def test_rows_are_taken_by_their_numbers() -> None:
    rows = pa.table({"n": range(6)})
    kept, aside = sift_rows(rows, None)
    assert (kept, aside.num_rows) == (rows, 0)
    kept, aside = sift_rows(rows, Sifting(6, 1, 5, [(4, "x"), (2, "y")]))
    assert kept["n"].to_pylist() == [1, 3]
    assert aside["n"].to_pylist() == [2, 4]
    with pytest.raises(RowsChanged, match="had 7 rows and has 6"):
        sift_rows(rows, Sifting(7, 0, 7))


def test_an_order_travels_with_its_sifting() -> None:
    order = Order(3, PRODUCER, [SourceRange(10, 30, -1)], 0, records_max=5, sifting=Sifting(6, 0, 6, [(4, "x")]))
    assert to_order(order_fields(order)) == order
