"""What a Spark task of a source and of a sink have in common: it takes its order, runs it and reports."""

from collections.abc import Callable, Iterable, Iterator

from ottla.connect.running.work import Order, Report, report_fields, to_order
from ottla.spark.jobs import take_order, to_json
from pyspark_ottla.garbage import freeze_loaded_modules


def run_task(run_order: Callable[[Order], Report], nothing: Iterable[object]) -> Iterator[str]:
    """In Spark's Python worker, which Spark uses again only if its input was read to the end."""
    for _ in nothing:
        pass
    fields = take_order()
    if fields is not None:
        freeze_loaded_modules()
        yield to_json(report_fields(run_order(to_order(fields))))
