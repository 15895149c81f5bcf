"""What runs in Spark's Python workers for a source: one batch of one task, from reading to the committed transaction.

A task never raises: it reports its failure, so that the other tasks of the job come to their end.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ottla.client.client import Client
from ottla.connect.connector import MAX_ROWS, Part, Source
from ottla.connect.running.conversion import Conversion
from ottla.connect.running.failures import explain_failure
from ottla.connect.running.tolerance import ErrorHandler, ErrorPolicy
from ottla.connect.running.topics import TopicGroup
from ottla.connect.running.work import Order, PartOrder, Report, report_fields, to_order
from ottla.connect.running.writing import TransactionWriter
from ottla.spark.jobs import take_order, to_report
from pyspark_ottla.garbage import freeze_loaded_modules
from pyspark_ottla.options import RecordShape


@dataclass(frozen=True)
class SourcePlan:
    """What the tasks of a source need. It is sent to Spark's Python workers with the function that runs."""

    source: Source
    conversion: Conversion
    policy: ErrorPolicy
    client: Client
    shape: RecordShape
    topic_groups: Sequence[TopicGroup]
    offsets_topic: str
    transaction_timeout_ms: int


def run_source_task(plan: SourcePlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The input is a row of `spark.range`, which only says how many tasks there are."""
    for _ in batches:
        pass
    fields = take_order()
    if fields is not None:
        yield to_report(report_fields(run_source_order(plan, to_order(fields))))


def run_source_order(plan: SourcePlan, order: Order) -> Report:
    freeze_loaded_modules()
    errors = ErrorHandler(plan.policy, plan.source.context.name, order.task, plan.client)
    try:
        return _SourceBatch(plan, order, errors).run()
    except Exception as error:
        plan.client.close()  # answers that nobody will read may be in flight
        return Report(
            order.task, order.producer, counts=errors.counts, log=errors.log_lines, failure=explain_failure(error)
        )


class _SourceBatch:
    def __init__(self, plan: SourcePlan, order: Order, errors: ErrorHandler) -> None:
        self._plan = plan
        self._order = order
        self._errors = errors
        self._writer = TransactionWriter(
            plan.client, order.producer, plan.shape, plan.topic_groups, plan.transaction_timeout_ms
        )
        self._counts: Counter[str] = Counter()
        self._offsets: dict[str, Mapping[str, Any]] = {}

    def run(self) -> Report:
        """Raises if it is not known that everything is committed."""
        order, writer = self._order, self._writer
        for part in order.parts:
            self._read(part)
            if self._counts["source-record-poll-total"] >= MAX_ROWS:
                break
        producer = order.producer
        if self._offsets or self._counts["source-record-write-total"]:
            writer.write_offsets(self._plan.offsets_topic, self._offsets.items())
            producer = writer.commit()
        counts = self._counts + self._errors.counts
        return Report(order.task, producer, self._offsets, (), writer.topics, counts, self._errors.log_lines)

    def _read(self, order: PartOrder) -> None:
        for batch in self._plan.source.read(Part(order.partition, order.work), order.offset):
            for rows in batch.rows:
                self._counts["source-record-poll-total"] += len(rows)
                for topic, records in self._plan.conversion.to_topics(rows, self._errors):
                    self._writer.write(topic, records)
                    self._counts["source-record-write-total"] += records.num_rows
            if batch.offset is not None:
                self._offsets[order.key] = batch.offset
