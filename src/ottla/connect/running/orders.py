"""What a Spark task of a source and of a sink have in common: it takes its order, runs it and reports."""

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from ottla.connect.running.work import Order, Report, report_fields, to_order
from ottla.spark.jobs import take_order, to_report
from pyspark_ottla.garbage import freeze_loaded_modules


def run_task(run_order: Callable[[Order], Report], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In Spark's Python worker. The input is a row of `spark.range`, which only says how many tasks there are."""
    for _ in batches:
        pass
    fields = take_order()
    if fields is not None:
        freeze_loaded_modules()
        yield to_report(report_fields(run_order(to_order(fields))))
