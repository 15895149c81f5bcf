"""Runs orders as Spark jobs. The plan of a job is made once for each number of Spark partitions and then run again.

A Spark partition runs one order. What differs between two batches is in a local property, so Spark neither analyses nor
plans anything for a batch; it only schedules tasks. All reports come back in one call: a report is a JSON list, and
Scala shows an array of rows as `Array([report], [report])`, so the text without the word is JSON.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.streams.running.tasks import REPORT, TaskPlan, process_rows, read_source, run_task, schema_of
from ottla.streams.running.work import ORDERS, Order, Report, encode_orders, to_report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class JobFailed(Exception):
    """A job has failed as a whole, so it is unknown what has become of its tasks. The message is one line."""


class JobRunner:
    """Runs batches of one subtopology. Used by one thread, which Spark's local properties belong to."""

    def __init__(self, spark: "SparkSession", plan: TaskPlan) -> None:
        self._spark = spark
        self._column_steps: Sequence[Callable[[DataFrame], DataFrame]] = plan.subtopology.column_steps
        self._plan = replace(plan, subtopology=replace(plan.subtopology, column_steps=()))
        self._plans: dict[int, Any] = {}

    def run(self, orders: Sequence[Order]) -> list[Report]:
        """The reports of all orders. Raises JobFailed."""
        count = 1 << (len(orders) - 1).bit_length()
        plan = self._plans.get(count)
        if plan is None:
            plan = self._plans[count] = self._prepare(count)
        self._spark.sparkContext.setLocalProperty(ORDERS, encode_orders(orders))
        try:
            rows = plan.executeCollectPublic()
            text = self._spark.sparkContext._jvm.scala.runtime.ScalaRunTime.stringOf(rows)  # type: ignore[union-attr]
        except Exception as error:
            raise JobFailed(_explain(error)) from None
        return [to_report(row[0]) for row in json.loads(f"[{text.removeprefix('Array(').removesuffix(')')}]")]

    def _prepare(self, count: int) -> Any:
        """Spark's physical plan of a job with so many tasks."""
        from pyspark.sql.pandas.types import from_arrow_schema

        frame = self._spark.range(0, count, 1, count)
        source = self._plan.subtopology.sources[0]
        if self._column_steps:
            rows = from_arrow_schema(schema_of(source))
            frame = frame.mapInArrow(partial(read_source, self._plan), rows)
            for step in self._column_steps:
                frame = step(frame)
            frame = frame.mapInArrow(partial(process_rows, self._plan), REPORT)
        else:
            frame = frame.mapInArrow(partial(run_task, self._plan), REPORT)
        return frame._jdf.queryExecution().executedPlan()


def _explain(error: Exception) -> str:
    """The line of Spark's message that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("at ", "An error occurred", "Traceback", "File "))]
    return " ".join((telling or lines or [type(error).__name__])[0].split())[:500]
