"""The batches of a subtopology as Spark jobs: of DataFrames if the app has Column steps, otherwise of RDDs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from ottla.spark.jobs import REPORT, Jobs, RddJobs
from ottla.streams.rows import ORDER
from ottla.streams.running.tasks import TaskPlan, process_rows, read_source, run_arrow_task, run_task, schema_of
from ottla.streams.running.work import Order, Report, order_fields, to_report

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession


class JobRunner:
    """Runs batches of one subtopology, for one thread."""

    def __init__(self, spark: "SparkSession | SparkContext", plan: TaskPlan) -> None:
        """A SparkContext is enough if no subtopology of the app has Column steps."""
        from pyspark import SparkContext

        self._column_steps: Sequence[Callable[[DataFrame], DataFrame]] = plan.subtopology.column_steps
        self._plan = replace(plan, subtopology=replace(plan.subtopology, column_steps=()))
        self._trace: tuple[Sequence[str], Sequence[str]] | None = None
        """Columns that no Column step reads, and those that come out of them as they were, once both are known. The
        first do not go to Spark, the second do not come back from there."""
        self._jobs: Jobs | RddJobs
        if isinstance(spark, SparkContext):
            self._jobs = RddJobs(spark, partial(run_task, self._plan))
        else:
            self._jobs = Jobs(spark, self._add_steps)

    def run(self, orders: Sequence[Order]) -> list[Report]:
        """The reports of all orders. Raises JobFailed."""
        return [to_report(fields) for fields in self._jobs.run([order_fields(each) for each in orders])]

    def _add_steps(self, frame: "DataFrame") -> "DataFrame":
        if not self._column_steps:
            return frame.mapInArrow(partial(run_arrow_task, self._plan), REPORT)
        from pyspark.sql.pandas.types import from_arrow_schema

        from ottla.streams.columns import apply_to_fewer, trace

        after = self._plan.subtopology.columns_after
        assert after is not None
        schema = schema_of(self._plan.subtopology.sources[0])

        def read(unread: Sequence[str], passed: Sequence[str]) -> "DataFrame":
            rows = pa.schema([each for each in schema if each.name not in unread])
            return frame.mapInArrow(partial(read_source, self._plan, unread, passed), from_arrow_schema(rows))

        if self._trace is None:
            found = trace(read([], []), self._column_steps)
            self._trace = (
                [name for name in found.unread if name != ORDER],
                [name for name in found.passed if name in after.names and name != ORDER],
            )
        unread, passed = self._trace
        wanted = [name for name in after.names if name not in passed]
        computed = apply_to_fewer(read(unread, passed), self._column_steps, from_arrow_schema(schema), wanted)
        return computed.mapInArrow(partial(process_rows, self._plan), REPORT)
