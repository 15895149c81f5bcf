"""Runs orders as small Spark jobs. The plan of a job is made once for each number of Spark partitions and run again.

`Jobs` runs the steps of a DataFrame. `RddJobs` runs a Python function, without any of Spark's SQL. Spark starts Python
for each of them, so a program has jobs of one kind only.

A Spark partition runs one order. Orders are JSON values in a local property of the job, so Spark neither analyses nor
plans anything for a batch; it only schedules tasks. A task reports one JSON list. All reports come back in one call:
Scala shows an array of rows as `Array([report], [report])` and one of texts as `Array(report, report)`, so what is in
the brackets is JSON.

A task reports its failure instead of raising it, so that the other tasks of the job come to their end. A task that
Spark itself repeats raises: two attempts would write with the same producer id.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

import pyarrow as pa

from ottla.spark.class_archive import mark_archive

if TYPE_CHECKING:
    from pyspark import SparkContext, TaskContext
    from pyspark.sql import DataFrame, SparkSession

REPORT: Final = "report string"
"""The schema of what the last step of a job returns."""

SESSION_SETTINGS: Final[Mapping[str, str]] = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.speculation": "false",
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
}
"""Settings of a session for many small jobs.

Spark connects the JVM and its Python workers by TCP unless told otherwise. The JVM sends the head of a job's data in
two small packets, and the second one waits 40 ms for the acknowledgement of the first (Nagle's algorithm against
delayed acknowledgements). A Unix socket has neither: an empty job takes 25 ms instead of 70. No stage has an exchange,
so adaptive execution only costs time. All jobs share the cores fairly. A task is never run again by Spark: whether that
is right only the driver knows."""

_DATA_ERRORS: Final = ("22", "38", "P0")
"""Classes of SQLSTATE: data exceptions such as a bad cast, errors of Python functions, and `raise_error`."""

_ORDERS: Final = "ottla.orders"
_REPORT_SCHEMA: Final = pa.schema([("report", pa.string())])

_with_job: "WeakSet[SparkContext]" = WeakSet()
"""Contexts that have run a job."""


class JobFailed(Exception):
    """A job has failed as a whole, so it is unknown what has become of its tasks. The message is one line."""

    def __init__(self, message: str, *, is_of_data: bool = False) -> None:
        """`is_of_data` says that a Column, or a Python function in one, does not accept a value of some row."""
        super().__init__(message)
        self.is_of_data = is_of_data


class Jobs:
    """Runs jobs of one kind. Used by one thread, which Spark's local properties belong to."""

    def __init__(self, spark: "SparkSession", add_steps: "Callable[[DataFrame], DataFrame]") -> None:
        """`add_steps` makes the job from a DataFrame with a row for each task. Its last step returns a `REPORT`."""
        self._spark = spark
        self._add_steps = add_steps
        self._plans: dict[int, Any] = {}

    def run(self, orders: Sequence[Any]) -> list[Any]:
        """The reports of all orders. Raises JobFailed."""
        count = _count_partitions(orders)
        plan = self._plans.get(count)
        if plan is None:
            frame = self._add_steps(self._spark.range(0, count, 1, count))
            plan = self._plans[count] = frame._jdf.queryExecution().executedPlan()
        return [row[0] for row in _run(self._spark.sparkContext, orders, plan.executeCollectPublic)]


class RddJobs:
    """Like `Jobs`, for tasks that are all Python. The JVM loads half as many classes as for a DataFrame."""

    def __init__(self, context: "SparkContext", run_task: Callable[[Iterable[Any]], Iterator[str]]) -> None:
        """`run_task` is called in a Python worker. What it is given is empty; what it yields are reports as JSON."""
        self._context = context
        self._run_task = run_task
        self._plans: dict[int, Any] = {}

    def run(self, orders: Sequence[Any]) -> list[Any]:
        """The reports of all orders. Raises JobFailed."""
        count = _count_partitions(orders)
        plan = self._plans.get(count)
        if plan is None:
            tasks = self._context.parallelize([], count).mapPartitions(self._run_task)
            to_texts = self._context._jvm.SerDeUtil.pythonToJava  # type: ignore[union-attr]
            plan = self._plans[count] = to_texts(tasks._jrdd, True).rdd()
        return _run(self._context, orders, plan.collect)


def _count_partitions(orders: Sequence[Any]) -> int:
    """A power of two, so that there are few plans."""
    return 1 << (len(orders) - 1).bit_length()


def _run(context: "SparkContext", orders: Sequence[Any], collect: Callable[[], Any]) -> list[Any]:
    """Run a job with these orders. Returns what Scala shows of each of its results, read as JSON."""
    context.setLocalProperty(_ORDERS, json.dumps(orders, separators=(",", ":")))
    try:
        text = context._jvm.scala.runtime.ScalaRunTime.stringOf(collect())  # type: ignore[union-attr]
    except Exception as error:
        raise explain_failure(context, error) from None
    if context not in _with_job:
        _with_job.add(context)
        mark_archive(context.getConf().get("spark.driver.extraJavaOptions", "") or "")
    return list(json.loads(f"[{text.removeprefix('Array(').removesuffix(')')}]"))


def explain_failure(context: "SparkContext", error: Exception) -> JobFailed:
    """What Spark says, in one line. Its Java exception is there even if PySpark fails to make its own of it."""
    thrown = list(_list_spark_errors(context, error))
    for each in thrown:
        if str(each.getSqlState() or "").startswith(_DATA_ERRORS):
            return JobFailed(_shorten(str(each.getMessage())), is_of_data=True)
    return JobFailed(_shorten(str(thrown[0].getMessage() if thrown else error) or type(error).__name__))


def _list_spark_errors(context: "SparkContext", error: BaseException | None) -> Iterator[Any]:
    """Spark's Java exceptions behind a Python exception, and their causes: a thread of Spark that waits for another
    one wraps what the other has thrown."""
    from py4j.java_gateway import is_instance_of  # type: ignore[import-untyped]

    while error is not None:
        thrown = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
        while thrown is not None:
            if is_instance_of(context._gateway, thrown, "org.apache.spark.SparkThrowable"):
                yield thrown
            thrown = thrown.getCause()
        error = error.__cause__ or error.__context__


def take_order() -> Any | None:
    """In a task: its order. None if there is none: a job may have more Spark partitions than orders."""
    context = get_task_context()
    if context.attemptNumber() > 0:
        raise RuntimeError("a task of Ottla was run again by Spark; only Ottla's driver may do that")
    orders = json.loads(context.getLocalProperty(_ORDERS) or "[]")
    number = context.partitionId()
    return orders[number] if number < len(orders) else None


def to_report(fields: Sequence[Any]) -> pa.RecordBatch:
    """In a task of `Jobs`: the row that it returns, a JSON list in ASCII."""
    return pa.record_batch([pa.array([to_json(fields)])], schema=_REPORT_SCHEMA)


def to_json(fields: Sequence[Any]) -> str:
    """In a task of `RddJobs`: what it yields, a JSON list in ASCII."""
    return json.dumps(fields, separators=(",", ":"))


def get_task_context() -> "TaskContext":
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context


def _shorten(message: str) -> str:
    """Without stack traces. Of a Python exception, the last line says what it was."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("at ", "An error occurred", "Traceback", "File ", "=="))]
    is_python = any(line.startswith("Traceback") or "Traceback (most recent" in line for line in lines)
    return " ".join((telling or lines or [message])[-1 if is_python else 0].split())[:500]
