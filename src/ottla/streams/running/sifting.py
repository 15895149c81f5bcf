"""Finds the rows of a batch for which Spark cannot compute a Column, such as a cast of a text that is no number.

Spark fails for a job and does not say for which row. So a batch that has failed is tried again: the driver orders
trials, which compute Columns and write nothing, with halves of the rows until single rows are found. Then the batch is
run without them, and they are handled as `on_error` says. A trial is a job of its own, so a batch that is sifted has
few records.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from ottla.spark.jobs import JobFailed
from ottla.streams.errors import FunctionFailed
from ottla.streams.kernels.kernel import FailedRows
from ottla.streams.options import FAIL
from ottla.streams.planning.plan import SubtopologyPlan
from ottla.streams.rows import OFFSET, PARTITION, TOPIC
from ottla.streams.running.work import Order, Report, Sifting

RECORDS_MAX: Final = 1000
"""Records of a batch that is sifted."""
ROW_COUNT: Final = "row_count"
"""How many rows the batch has, in the counts of the report of a trial."""
NOT_KNOWN: Final = -1


class RowsChanged(Exception):
    """A batch has not the rows that it had before, so their numbers mean nothing any more."""


def sift(run: Callable[[Order], Report], order: Order, *, only_first: bool) -> Report:
    """The report of a batch without the rows that fail, of which `only_first` looks for one. Raises JobFailed."""

    def run_trial(row_count: int, start: int, end: int) -> Report:
        return run(replace(order, sifting=Sifting(row_count, start, end, is_trial=True)))

    def explain_trial(start: int, end: int) -> str | None:
        try:
            run_trial(row_count, start, end)
        except JobFailed as error:
            if not error.is_of_data:
                raise
            return str(error)
        return None

    order = replace(order, records_max=RECORDS_MAX)
    report = run_trial(NOT_KNOWN, 0, 0)
    if report.failure is not None:
        return report
    row_count = report.counts[ROW_COUNT]
    failed = find_failing(explain_trial, 0, row_count, 1 if only_first else row_count)
    return run(replace(order, sifting=Sifting(row_count, 0, row_count, failed)))


def find_failing(
    explain: Callable[[int, int], str | None], start: int, end: int, count_max: int
) -> list[tuple[int, str]]:
    """The first rows that fail, with the reasons. `explain` says why rows from start to end fail; None if none does."""
    if start == end or not count_max:
        return []
    reason = explain(start, end)
    if reason is None:
        return []
    if end - start == 1:
        return [(start, reason)]
    middle = (start + end) // 2
    first = find_failing(explain, start, middle, count_max)
    return first + find_failing(explain, middle, end, count_max - len(first))


def sift_rows(rows: pa.Table, sifting: Sifting | None) -> tuple[pa.Table, pa.Table]:
    """In a task: the rows for Spark, and those that are put aside."""
    if sifting is None:
        return rows, rows.slice(0, 0)
    if sifting.row_count not in (NOT_KNOWN, rows.num_rows):
        raise RowsChanged(f"the batch had {sifting.row_count} rows and has {rows.num_rows}")
    aside = {number for number, _ in sifting.failed}
    kept = [number for number in range(sifting.start, sifting.end) if number not in aside]
    return rows.take(pa.array(kept, pa.int64())), rows.take(pa.array(sorted(aside), pa.int64()))


def put_aside(plan: SubtopologyPlan, on_error: str, rows: pa.Table, reasons: Sequence[str]) -> list[FailedRows]:
    """In a task: the rows that Spark fails for, with the reasons. FunctionFailed if the app is set to fail then."""
    if not reasons:
        return []
    label = ", ".join(plan.column_labels)
    if on_error == FAIL:
        topic, partition, offset = (rows.column(name)[0].as_py() for name in (TOPIC, PARTITION, OFFSET))
        raise FunctionFailed(f"{label}: offset {offset} of {topic}-{partition}: {reasons[0]}")
    return [FailedRows(label, rows, reasons)]
