"""The batches of a subtopology as Spark jobs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from ottla.spark.jobs import REPORT, Jobs
from ottla.streams.rows import DELETED, ORDER, RESERVED
from ottla.streams.running.tasks import TaskPlan, process_rows, read_source, run_task, schema_of
from ottla.streams.running.work import Order, Report, order_fields, to_report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class JobRunner:
    """Runs batches of one subtopology, for one thread."""

    def __init__(self, spark: "SparkSession", plan: TaskPlan) -> None:
        self._column_steps: Sequence[Callable[[DataFrame], DataFrame]] = plan.subtopology.column_steps
        self._plan = replace(plan, subtopology=replace(plan.subtopology, column_steps=()))
        self._aside: Sequence[str] | None = None
        """Columns of ours that no Column step needs, once it is known. They do not go through Spark."""
        self._jobs = Jobs(spark, self._add_steps)

    def run(self, orders: Sequence[Order]) -> list[Report]:
        """The reports of all orders. Raises JobFailed."""
        return [to_report(fields) for fields in self._jobs.run([order_fields(each) for each in orders])]

    def _add_steps(self, frame: "DataFrame") -> "DataFrame":
        if not self._column_steps:
            return frame.mapInArrow(partial(run_task, self._plan), REPORT)
        from pyspark.sql.pandas.types import from_arrow_schema

        from ottla.streams.columns import apply_steps, find_untouched

        schema = schema_of(self._plan.subtopology.sources[0])

        def read(aside: Sequence[str]) -> "DataFrame":
            rows = pa.schema([each for each in schema if each.name not in aside])
            return frame.mapInArrow(partial(read_source, self._plan, aside), from_arrow_schema(rows))

        if self._aside is None:
            ours = [name for name in schema.names if name in RESERVED and name not in (ORDER, DELETED)]
            self._aside = find_untouched(read, self._column_steps, ours)
        computed = apply_steps(read(self._aside), self._column_steps)
        return computed.mapInArrow(partial(process_rows, self._plan), REPORT)
