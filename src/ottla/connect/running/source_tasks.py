"""What runs in Spark's Python workers for a source: one batch of one task, from reading to the committed transaction.

A task never raises: it reports its failure, so that the other tasks of the job come to their end.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ottla.client.client import Client
from ottla.connect.connector import MAX_ROWS, Part, Source
from ottla.connect.errors import ConnectError
from ottla.connect.running.conversion import Conversion
from ottla.connect.running.failures import explain_failure
from ottla.connect.running.tolerance import ErrorHandler, ErrorPolicy
from ottla.connect.running.topics import TopicGroup
from ottla.connect.running.work import FENCED, Order, PartOrder, Report
from ottla.connect.running.writing import TransactionWriter
from pyspark_ottla.options import RecordShape

ROUND_S: Final = 1.0
"""A task that has read MAX_ROWS rows goes on for so long, because a round costs time of its own."""


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


def run_source_order(plan: SourcePlan, order: Order) -> Report:
    errors = ErrorHandler(plan.policy, plan.source.context.name, order.task, plan.client)
    batch = SourceOrder(plan, order, errors)
    try:
        return batch.run()
    except Exception as error:
        plan.client.close()  # answers that nobody will read may be in flight
        failure = explain_failure(batch.find_cause(error))
        return Report(order.task, order.producer, counts=errors.counts, log=errors.log_lines, failure=failure)


class SourceOrder:
    """One order, in one transaction.

    Brokers abort a transaction that is open for longer than transaction.timeout.ms, so reading ends at the first offset
    after half of that time.
    """

    def __init__(self, plan: SourcePlan, order: Order, errors: ErrorHandler) -> None:
        self._plan = plan
        self._order = order
        self._errors = errors
        self._writer = TransactionWriter(
            plan.client, order.producer, plan.shape, plan.topic_groups, plan.transaction_timeout_ms
        )
        self._counts: Counter[str] = Counter()
        self._offsets: dict[str, Mapping[str, Any]] = {}
        self._began_s: float | None = None
        """When the first record was written, and with it the transaction began."""
        self._writing_s = 0.0

    def run(self) -> Report:
        """Raises if it is not known that everything is committed."""
        order, writer = self._order, self._writer
        for part in order.parts:
            self._read(part)
            if self._is_enough:
                break
        producer = order.producer
        source = self._plan.source
        if source.follows_up and self._counts["source-record-write-total"]:
            for records in source.follow_up(writer.find_runs()):
                writer.write(records.topic, records.rows)
        if self._offsets or self._counts["source-record-write-total"]:
            writer.write_offsets(self._plan.offsets_topic, self._offsets.items())
            producer = writer.commit()
        counts = self._counts + self._errors.counts
        return Report(order.task, producer, self._offsets, (), writer.topics, counts, self._errors.log_lines)

    def find_cause(self, error: Exception) -> Exception:
        """What a user has to know about a failure: that reading took too long, if the transaction was lost by that."""
        timeout_ms = self._plan.transaction_timeout_ms
        reading_s = self._elapsed_s - self._writing_s
        if explain_failure(error).kind != FENCED or reading_s * 1000 < timeout_ms:
            return error
        return ConnectError(
            f"the source took {reading_s:.0f} s to read up to its next offset, and its transaction was aborted after"
            f" transaction.timeout.ms={timeout_ms}; set producer.override.transaction.timeout.ms to more than that"
        )

    @property
    def _elapsed_s(self) -> float:
        return 0.0 if self._began_s is None else time.monotonic() - self._began_s

    @property
    def _is_enough(self) -> bool:
        """Whether the transaction is to be committed at this offset."""
        elapsed_s = self._elapsed_s
        if elapsed_s * 1000 > self._plan.transaction_timeout_ms / 2:
            return True
        return self._counts["source-record-poll-total"] >= MAX_ROWS and elapsed_s >= ROUND_S

    def _read(self, order: PartOrder) -> None:
        for batch in self._plan.source.read(Part(order.partition, order.work), order.offset):
            for rows in (*batch.rows, *batch.raw):
                self._counts["source-record-poll-total"] += len(rows)
                for topic, records in self._plan.conversion.to_topics(rows, self._errors):
                    self._write(topic, records)
                    self._counts["source-record-write-total"] += records.num_rows
            if batch.offset is not None:
                self._offsets[order.key] = batch.offset
                if self._is_enough:
                    return

    def _write(self, topic: str, records: pa.RecordBatch) -> None:
        now_s = time.monotonic()
        self._began_s = self._began_s or now_s
        self._writer.write(topic, records)
        self._writing_s += time.monotonic() - now_s
