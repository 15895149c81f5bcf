"""What runs in Spark's Python workers for a sink: ranges of offsets, from the topic to the target.

A task writes one range after the other, up to a batch of each. Then it commits the offsets to the connector's group, in
the same transaction as the dead letters of these ranges, with the task's transactional id: a task that was fenced moves
no offset. A target that keeps offsets itself commits them earlier. The dead letters before such an offset are therefore
committed before it (`SinkBatch.set_aside`), in a transaction of their own. A task never raises: it reports its failure,
together with what it has committed.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.client.client import Client
from ottla.client.fetching import fetch
from ottla.client.groups import CommittedOffset
from ottla.client.transactions import ProducerIdentity, commit_offsets_in_transaction
from ottla.connect.connector import MAX_ROWS, RefusedRecord, Sink, SinkBatch
from ottla.connect.errors import RecordError
from ottla.connect.running.conversion import RECORDS, Conversion, list_originals
from ottla.connect.running.failures import explain_failure
from ottla.connect.running.tolerance import TASK_PUT, DeadLetter, ErrorHandler, ErrorPolicy, Original, RecordFailure
from ottla.connect.running.topics import TopicGroup
from ottla.connect.running.work import Failure, Order, RangeOrder, Report
from ottla.connect.running.writing import TransactionWriter
from ottla.pipeline.decoding import COLUMNS, decode_up_to
from ottla.topic_partition import TopicPartition
from pyspark_ottla.options import RecordShape

ROUND_S: Final = 1.0
"""A task begins no further batch after so long."""
MAX_BYTES: Final = 64 * 1024 * 1024
"""A range ends once so many bytes were read, even if it has fewer than MAX_ROWS rows."""

_COLUMNS: Final = (*COLUMNS, "headers")


@dataclass(frozen=True)
class SinkPlan:
    """What the tasks of a sink need. It is sent to Spark's Python workers with the function that runs."""

    sink: Sink
    conversion: Conversion
    policy: ErrorPolicy
    consumer: Client
    producer: Client
    shape: RecordShape
    isolation: int
    group: str
    transaction_timeout_ms: int


def run_sink_order(plan: SinkPlan, order: Order) -> Report:
    """A task that has written a whole batch, and has another one before it, goes on for a while: a round costs time."""
    began_s = time.monotonic()
    producer, ranges = order.producer, order.ranges
    positions: dict[TopicPartition, int] = {}
    counts: Counter[str] = Counter()
    log_lines: list[str] = []
    failure: Failure | None = None
    while ranges and failure is None:
        errors = ErrorHandler(plan.policy, plan.sink.context.name, order.task, plan.producer)
        batch = _SinkBatch(plan, producer, ranges, errors)
        failure = batch.run()
        positions |= batch.positions
        producer = batch.producer
        counts += batch.counts + errors.counts
        log_lines += errors.log_lines
        ranges = batch.list_rest() if time.monotonic() - began_s < ROUND_S else ()
    if failure is not None:
        for client in (plan.consumer, plan.producer):
            client.close()  # answers that nobody will read may be in flight
    reached = [(*where, offset) for where, offset in positions.items()]
    return Report(order.task, producer, {}, reached, (), counts, log_lines, failure)


class _SinkBatch:
    def __init__(
        self, plan: SinkPlan, producer: ProducerIdentity, ranges: Sequence[RangeOrder], errors: ErrorHandler
    ) -> None:
        self._plan = plan
        self._ranges = ranges
        self._errors = errors
        self._is_unknown = False
        """Whether it is not known what became of a transaction: then no other can be begun."""
        self.producer = producer
        """For the next transaction."""
        self.positions: dict[TopicPartition, int] = {}
        """Up to where each range was written."""
        self.counts: Counter[str] = Counter()

    def run(self) -> Failure | None:
        """Write the ranges and commit their offsets."""
        failure = self.write_ranges()
        try:
            self.commit()
        except Exception as error:
            self.positions.clear()
            failure = explain_failure(error)
        return failure

    def list_rest(self) -> list[RangeOrder]:
        """What is left of ranges in which there was progress, where it is another whole batch."""
        found = [
            each._replace(start=self.positions.get(TopicPartition(each.topic, each.partition), each.start))
            for each in self._ranges
        ]
        return [
            rest
            for rest, each in zip(found, self._ranges, strict=True)
            if rest.start > each.start and rest.end - rest.start >= MAX_ROWS
        ]

    def write_ranges(self) -> Failure | None:
        """Write ranges until one fails."""
        for wanted in self._ranges:
            letters = len(self._errors.dead_letters)
            try:
                self.positions[TopicPartition(wanted.topic, wanted.partition)] = self._write(wanted)
            except Exception as error:
                del self._errors.dead_letters[letters:]
                return explain_failure(error)
        return None

    def _write(self, wanted: RangeOrder) -> int:
        plan, errors = self._plan, self._errors
        first = len(errors.dead_letters)
        found, end = self._fetch(wanted)
        rows = [plan.conversion.from_topic(wanted.topic, wanted.partition, each, errors) for each in found]
        handled: set[int] = set()

        def set_aside(refused: Sequence[RefusedRecord], before: int) -> None:
            new = [each for each in refused if each.record.offset not in handled]
            handled.update(each.record.offset or 0 for each in new)
            if new:
                self._handle_refused(new, wanted, found)
            due = [each for each in errors.dead_letters[first:] if each.offset < before]
            if due:
                self._commit_transaction(due, {})
                errors.dead_letters[first:] = [each for each in errors.dead_letters[first:] if each.offset >= before]

        filled = [each for each in rows if len(each)]
        written = plan.sink.write(SinkBatch(wanted.topic, wanted.partition, wanted.start, end, filled, set_aside))
        late = [each for each in written.refused if each.record.offset not in handled]
        if late:
            self._handle_refused(late, wanted, found)
        if written.end is not None and written.end < end:  # what was found out about the rest is found out again
            end = written.end
            errors.dead_letters[first:] = [each for each in errors.dead_letters[first:] if each.offset < end]
        self.counts["sink-record-read-total"] += sum(each.num_rows for each in found)
        if end > wanted.start:
            self.counts["sink-record-send-total"] += sum(len(each) for each in rows) - len(written.refused)
        return end

    def _fetch(self, wanted: RangeOrder) -> tuple[list[pa.RecordBatch], int]:
        """Records from the start of the range to its end, or fewer if there are many; and the next offset."""
        topic, partition, start, end = wanted
        answers = fetch(self._plan.consumer, topic, partition, start, end, isolation=self._plan.isolation)
        return decode_up_to(MAX_ROWS, MAX_BYTES, answers, topic, partition, start, end, _COLUMNS)

    def _handle_refused(
        self, refused: Sequence[RefusedRecord], wanted: RangeOrder, found: Sequence[pa.RecordBatch]
    ) -> None:
        offsets = pa.array([each.record.offset for each in refused], pa.int64())
        originals: dict[int, Original] = {}
        for batch in found:
            chosen = batch.filter(pc.is_in(batch.column("offset"), offsets))
            timestamps = pc.divide(chosen.column("timestamp").cast(pa.int64()), 1000)
            for original in list_originals(wanted.topic, wanted.partition, chosen, timestamps):
                originals[original.offset] = original
        operator = f"{type(self._plan.sink).__module__}.{type(self._plan.sink).__qualname__}"
        for each in refused:
            failure = RecordFailure(TASK_PUT, operator, RecordError(each.reason))
            self._errors.handle(failure, originals[each.record.offset or 0])

    def commit(self) -> None:
        """Commit the offsets of what was written, with its dead letters. Raises if it is not known to be committed."""
        if self._is_unknown:
            self.positions.clear()
        starts = {TopicPartition(each.topic, each.partition): each.start for each in self._ranges}
        moved = {where: offset for where, offset in self.positions.items() if offset > starts[where]}
        if moved:
            self._commit_transaction(self._errors.dead_letters, moved)

    def _commit_transaction(self, letters: Sequence[DeadLetter], moved: Mapping[TopicPartition, int]) -> None:
        plan = self._plan
        self._is_unknown = True
        writer = TransactionWriter(
            plan.producer, self.producer, plan.shape, [TopicGroup()], plan.transaction_timeout_ms
        )
        if letters:
            writer.write(plan.policy.dead_letter_topic, _to_rows(letters))
            writer.flush()
        if moved:
            offsets = {where: CommittedOffset(offset) for where, offset in moved.items()}
            commit_offsets_in_transaction(plan.producer, self.producer, plan.group, offsets)
        self.producer = writer.commit()
        self._is_unknown = False


def _to_rows(letters: Sequence[DeadLetter]) -> pa.RecordBatch:
    headers = [[{"key": name, "value": value} for name, value in each.headers] for each in letters]
    columns = {
        "key": [each.key for each in letters],
        "value": [each.value for each in letters],
        "timestamp": [each.timestamp for each in letters],
        "partition": [None] * len(letters),
        "headers": headers,
    }
    return pa.record_batch([pa.array(columns[field.name], field.type) for field in RECORDS], schema=RECORDS)
