"""What runs in Spark's Python workers for a source: one batch of one task, from reading to the committed transaction.

A source that is midway at an offset goes on after the commit, in another transaction of the same task: it would have to
read much again. So that the driver is not kept waiting for long, it goes on for a few times as long as its first row
took, and what is read again is a fraction of the work. If the run is paused or stopped meanwhile, the task ends at its
next commit.

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
from ottla.connect.running.ownership import is_called_back
from ottla.connect.running.tolerance import ErrorHandler, ErrorPolicy
from ottla.connect.running.topics import TopicGroup
from ottla.connect.running.work import FENCED, Order, PartOrder, Report
from ottla.connect.running.writing import TransactionWriter
from pyspark_ottla.options import RecordShape

ROUND_S: Final = 1.0
"""A task that has read MAX_ROWS rows goes on for so long, because a round costs time of its own."""
MIDWAY_FACTOR: Final = 4
"""A source that is midway goes on for so many times as long as it took to its first rows."""


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
        counts = batch.counts + errors.counts
        return Report(
            order.task, order.producer, batch.offsets, (), batch.topics, counts, errors.log_lines, failure=failure
        )


class SourceOrder:
    """One order, in one transaction or in several.

    Brokers abort a transaction that is open for longer than transaction.timeout.ms, so reading ends at the first offset
    after half of that time.
    """

    def __init__(self, plan: SourcePlan, order: Order, errors: ErrorHandler) -> None:
        self._plan = plan
        self._order = order
        self._errors = errors
        self.producer = order.producer
        """For the next transaction."""
        self.offsets: dict[str, Mapping[str, Any]] = {}
        """Of the transactions that are committed, as are topics and counts."""
        self.topics: list[str] = []
        self.counts: Counter[str] = Counter()
        self._begin()

    def _begin(self) -> None:
        """Prepare a transaction. It begins with its first record."""
        plan = self._plan
        self._writer = TransactionWriter(
            plan.client, self.producer, plan.shape, plan.topic_groups, plan.transaction_timeout_ms
        )
        self._open_counts: Counter[str] = Counter()
        self._open_offsets: dict[str, Mapping[str, Any]] = {}
        self._began_s: float | None = None
        """When the first record was written."""
        self._writing_s = 0.0

    def run(self) -> Report:
        """Raises if it is not known that everything is committed."""
        for part in self._order.parts:
            self._read(part)
            if self._is_enough:
                break
        self._commit()
        counts = self.counts + self._errors.counts
        return Report(self._order.task, self.producer, self.offsets, (), self.topics, counts, self._errors.log_lines)

    def _commit(self) -> None:
        source, writer, counts = self._plan.source, self._writer, self._open_counts
        has_written = bool(counts["source-record-write-total"])
        if source.follows_up and has_written:
            for records in source.follow_up(writer.find_runs()):
                writer.write(records.topic, records.rows)
        if self._open_offsets or has_written:
            writer.write_offsets(self._plan.offsets_topic, self._open_offsets.items())
            self.producer = writer.commit()
        self.offsets |= self._open_offsets
        self.topics += [each for each in writer.topics if each not in self.topics]
        self.counts += counts

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
        return self._open_counts["source-record-poll-total"] >= MAX_ROWS and elapsed_s >= ROUND_S

    def _read(self, order: PartOrder) -> None:
        began_s, end_s = time.monotonic(), None
        for batch in self._plan.source.read(Part(order.partition, order.work), order.offset):
            if end_s is None:
                end_s = began_s + MIDWAY_FACTOR * (time.monotonic() - began_s)
            for rows in (*batch.rows, *batch.raw):
                self._open_counts["source-record-poll-total"] += len(rows)
                for topic, records in self._plan.conversion.to_topics(rows, self._errors):
                    self._write(topic, records)
                    self._open_counts["source-record-write-total"] += records.num_rows
            if batch.offset is not None:
                self._open_offsets[order.key] = batch.offset
                if self._is_enough:
                    if not batch.is_midway or time.monotonic() >= end_s:
                        return
                    self._commit()
                    self._begin()
                    if self._order.run is not None and is_called_back(self._plan.client, self._order.run):
                        return

    def _write(self, topic: str, records: pa.RecordBatch) -> None:
        now_s = time.monotonic()
        self._began_s = self._began_s or now_s
        self._writer.write(topic, records)
        self._writing_s += time.monotonic() - now_s
