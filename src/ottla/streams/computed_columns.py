"""Column steps in the test driver: Spark computes them for all records that are there at once.

Spark takes some 50 ms for a DataFrame, however few rows it has. A topology's test with random cuts has hundreds of
batches, so rows are computed ahead, for all tasks of a subtopology together, and handed out batch by batch. Columns see
one row at a time, and stream times do not depend on the cuts, so that makes no difference to the rows. Rows for which
Spark fails are found as in a running app, by trials with halves of the rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ottla.spark.jobs import JobFailed, explain_failure
from ottla.streams import parcels
from ottla.streams.kernels.kernel import FailedRows
from ottla.streams.options import FAIL
from ottla.streams.planning.plan import PARCELS, SourcePlan, SubtopologyPlan
from ottla.streams.rows import HIDDEN, OFFSET, ORDER
from ottla.streams.running.sifting import find_failing, put_aside
from ottla.streams.tasks.reading import read_rows, schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Unread:
    """The records of a task's only source that the task has not processed."""

    start: int
    """The offset of the first of them."""
    records: pa.Table
    stream_time: int
    number: int

    @property
    def end(self) -> int:
        return self.start + int(self.records.num_rows)


@dataclass(frozen=True)
class _Computed:
    start: int
    ends: Any
    """How many rows the first records make, from none to all of them: a numpy array."""
    rows: pa.Table
    places: Any
    """The place of the row before Spark that each row comes from: a numpy array."""
    failed: Sequence[FailedRows]
    """The rows that Spark fails for, each with its place."""

    def has(self, start: int, end: int) -> bool:
        return self.start <= start and end <= self.start + len(self.ends) - 1

    def take(self, start: int, end: int) -> tuple[pa.Table, list[FailedRows]]:
        first, last = self.ends[start - self.start], self.ends[end - self.start]
        rows = self.rows.filter(pa.array((self.places >= first) & (self.places < last)))
        return rows, [each for each in self.failed if first <= each.rows[ORDER][0].as_py() < last]


class ComputedColumns:
    """The rows of a subtopology after its Column steps."""

    def __init__(self, plan: SubtopologyPlan, spark: "Callable[[], SparkSession]", on_error: str) -> None:
        self._plan = plan
        self._spark = spark
        self._on_error = on_error
        self._computed: dict[int, _Computed] = {}

    def take(
        self, partition: int, start: int, end: int, find_unread: Callable[[], Mapping[int, Unread]]
    ) -> tuple[pa.Table, list[FailedRows]]:
        """The rows that come from these offsets of a partition, and those for which a Column fails. FunctionFailed if
        the app is set to fail then. `find_unread` has the records of all partitions."""
        known = self._computed.get(partition)
        if known is None or not known.has(start, end):
            self._compute(find_unread())
        return self._computed[partition].take(start, end)

    def _compute(self, unread: Mapping[int, Unread]) -> None:
        (source,) = self._plan.sources
        counts: dict[int, Any] = {}
        parts, before = [schema_of(source).empty_table()], 0
        for partition, each in unread.items():
            rows = read_rows(source, each.records, stream_time=each.stream_time, number=each.number, order=before).rows
            at = rows.schema.get_field_index(ORDER)
            places = pa.array(np.arange(before, before + rows.num_rows, dtype=np.int64))
            parts.append(rows.set_column(at, HIDDEN.field(ORDER), places))
            counts[partition] = before + np.cumsum([0, *_count_rows(source, each.records, rows)])
            before += rows.num_rows
        computed, failed = self._sift(pa.concat_tables(parts))
        places = computed[ORDER].to_numpy()
        self._computed = {
            partition: _Computed(each.start, counts[partition], computed, places, failed)
            for partition, each in unread.items()
        }

    def _sift(self, rows: pa.Table) -> tuple[pa.Table, list[FailedRows]]:
        """What Spark makes of the rows, without those it fails for."""

        def explain(start: int, end: int) -> str | None:
            try:
                self._run_spark(rows.take(pa.array(range(start, end))))  # PySpark cannot take a slice
            except JobFailed as error:
                if not error.is_of_data:
                    raise
                return str(error)
            return None

        try:
            return self._run_spark(rows), []
        except JobFailed as error:
            if not error.is_of_data:
                raise
        found = dict(find_failing(explain, 0, rows.num_rows, 1 if self._on_error == FAIL else rows.num_rows))
        failed = [
            each
            for number, reason in found.items()
            for each in put_aside(self._plan, self._on_error, rows.slice(number, 1), [reason])
        ]
        kept = [number for number in range(rows.num_rows) if number not in found]
        return self._run_spark(rows.take(pa.array(kept, pa.int64()))), failed

    def _run_spark(self, rows: pa.Table) -> pa.Table:
        """Raises JobFailed."""
        schema = self._plan.columns_after
        assert schema is not None
        if not rows.num_rows:
            return schema.empty_table()
        from ottla.streams.columns import apply_steps

        spark = self._spark()
        frame = spark.createDataFrame(rows.combine_chunks())  # of several chunks Spark takes the first only
        try:
            computed = apply_steps(frame, self._plan.column_steps).toArrow()
        except Exception as error:
            raise explain_failure(spark.sparkContext, error) from None
        return computed.select(schema.names).cast(schema)


def _count_rows(source: SourcePlan, records: pa.Table, rows: pa.Table) -> list[int]:
    """How many rows each record makes: a parcel many, a bad record none."""
    if source.holds == PARCELS:
        return [parcels.unpack([each], schema_of(source)).rows.num_rows for each in records["value"].to_pylist()]
    made = set(rows[OFFSET].to_pylist())
    return [1 if offset in made else 0 for offset in records["offset"].to_pylist()]
