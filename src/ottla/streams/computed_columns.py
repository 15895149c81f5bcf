"""Column steps in the test driver: Spark computes them for all records that are there at once.

Spark takes some 50 ms for a DataFrame, however few rows it has. A topology's test with random cuts has hundreds of
batches, so rows are computed ahead, for all tasks of a subtopology together, and handed out batch by batch. Columns see
one row at a time, and stream times do not depend on the cuts, so that makes no difference to the rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ottla.streams import parcels
from ottla.streams.planning.plan import PARCELS, SourcePlan, SubtopologyPlan
from ottla.streams.rows import HIDDEN, OFFSET, ORDER
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

    def has(self, start: int, end: int) -> bool:
        return self.start <= start and end <= self.start + len(self.ends) - 1

    def take(self, start: int, end: int) -> pa.Table:
        first, last = self.ends[start - self.start], self.ends[end - self.start]
        return self.rows.filter(pa.array((self.places >= first) & (self.places < last)))


class ComputedColumns:
    """The rows of a subtopology after its Column steps."""

    def __init__(self, plan: SubtopologyPlan, spark: "Callable[[], SparkSession]") -> None:
        self._plan = plan
        self._spark = spark
        self._computed: dict[int, _Computed] = {}

    def take(self, partition: int, start: int, end: int, find_unread: Callable[[], Mapping[int, Unread]]) -> pa.Table:
        """The rows that come from these offsets of a partition. `find_unread` has the records of all partitions."""
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
        computed = self._run_spark(pa.concat_tables(parts))
        places = computed[ORDER].to_numpy()
        self._computed = {
            partition: _Computed(each.start, counts[partition], computed, places) for partition, each in unread.items()
        }

    def _run_spark(self, rows: pa.Table) -> pa.Table:
        schema = self._plan.columns_after
        assert schema is not None
        if not rows.num_rows:
            return schema.empty_table()
        frame = self._spark().createDataFrame(rows.combine_chunks())  # of several chunks Spark takes the first only
        for step in self._plan.column_steps:
            frame = step(frame)
        return frame.toArrow().select(schema.names).cast(schema)


def _count_rows(source: SourcePlan, records: pa.Table, rows: pa.Table) -> list[int]:
    """How many rows each record makes: a parcel many, a bad record none."""
    if source.holds == PARCELS:
        return [parcels.unpack([each], schema_of(source)).rows.num_rows for each in records["value"].to_pylist()]
    made = set(rows[OFFSET].to_pylist())
    return [1 if offset in made else 0 for offset in records["offset"].to_pylist()]
