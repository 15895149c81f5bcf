"""The part of a task that writes: steps, records, changelogs and offsets in one transaction of the task's own.

The transactional id `<app>-<subtopology>-<partition>` makes the task the only writer of its batch. Offsets are
committed with the records, so a batch is either there as a whole or not at all. If a report to the driver is lost, the
committed offsets tell what has become of the batch.

A task ends its transaction itself if it has read everything itself. Rows that come through Spark may be cut off without
notice: if a Column fails, or the Python worker before dies, Spark closes the connection, and Arrow takes that for the
end of the rows. Only the driver learns that the job has failed, so the driver ends those transactions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from ottla.client.client import Client
from ottla.client.sending import Sender
from ottla.client.transactions import (
    IMPLICIT,
    ProducerIdentity,
    commit_offsets_in_transaction,
    end_transaction,
    init_producer,
)
from ottla.pipeline.encoding import Encoder
from ottla.streams.kernels.kernel import FailedRows, KernelContext
from ottla.streams.running.bad_rows import refuse_bad_records, set_aside
from ottla.streams.running.positions import to_committed_offset
from ottla.streams.running.settings import transaction_timeout_ms
from ottla.streams.running.state_access import open_stores
from ottla.streams.running.work import NO_TIME, Order, Position, Report
from ottla.streams.tasks.running import run_steps
from ottla.topic_partition import TopicPartition
from pyspark_ottla.garbage import freeze_loaded_modules

if TYPE_CHECKING:
    from ottla.streams.running.tasks import TaskPlan


@dataclass(frozen=True)
class BatchInput:
    """What a task has read for a batch."""

    rows: Sequence[pa.Table]
    """One table for each source, or the one that Spark has made of the only source's rows."""
    bad: Sequence[pa.Table]
    """Records that cannot be decoded, with the reason, for each source."""
    source_times: Mapping[int, int]
    positions: Sequence[Position]
    row_count: int
    """How many rows were read, before Spark's Column steps."""
    failed: Sequence[FailedRows] = ()
    """Rows that are not among these because a Column fails for them."""


def commit_batch(plan: "TaskPlan", order: Order, batch: BatchInput) -> Report:
    """Process the rows and commit everything. Raises if it is not known to be committed."""
    report = write_batch(plan, order, batch)
    return end_batch(plan.client, report, transaction_timeout_ms(plan.options)) if report.is_open else report


def end_batch(client: Client, report: Report, timeout_ms: int) -> Report:
    """Commit the transaction that a report has left open. Raises if it is not known to be committed."""
    following = _end_transaction(client, report.producer, timeout_ms)
    return replace(report, producer=following, is_open=False, has_committed=True)


def write_batch(plan: "TaskPlan", order: Order, batch: BatchInput) -> Report:
    """Process the rows and write everything into a transaction that is left open, if there is anything to write."""
    refuse_bad_records(plan.options, batch.bad)
    stores = open_stores(plan.subtopology, order, plan.state_token)
    is_whole = all(position.offset >= each.end for position, each in zip(batch.positions, order.ranges, strict=True))
    idle_times = order.idle_times if is_whole else {}
    source_times = {**dict.fromkeys(order.awaited, NO_TIME), **batch.source_times}
    context = KernelContext(order.partition, order.now_ms, stores, source_times, idle_times)
    context.on_error = plan.options.on_error
    context.failed.extend(batch.failed)
    outgoing = run_steps(plan.subtopology, batch.rows, context, plan.partition_counts)
    aside = set_aside(plan.subtopology, plan.options, batch.bad, context)
    letters = [(plan.options.dead_letters, pa.Table.from_batches([each])) for each in aside.letters]
    records = [*outgoing.records, *letters]
    has_moved = [*batch.positions] != [(each.start, each.stream_time) for each in order.ranges]
    positions = {  # all of them every time, so that a broker's retention of offsets removes none before the others
        TopicPartition(source.topic, order.partition): to_committed_offset(position)
        for source, position in zip(plan.subtopology.sources, batch.positions, strict=True)
    }
    written = sum(rows.num_rows for _, rows in records)
    counts = {"read": batch.row_count, "written": written, **aside.counts}
    if not has_moved and not written and not order.must_commit:
        return Report(order.partition, order.producer, batch.positions, {}, counts)
    freeze_loaded_modules()
    ends = _send(plan, order.producer, records)
    commit_offsets_in_transaction(plan.client, order.producer, plan.subtopology.group, positions)
    changelogs = {each.spec.name: TopicPartition(each.changelog, order.partition) for each in plan.subtopology.stores}
    changelog_ends = {name: ends[where] for name, where in changelogs.items() if where in ends}
    return Report(order.partition, order.producer, batch.positions, changelog_ends, counts, is_open=True)


def _send(
    plan: "TaskPlan", producer: ProducerIdentity, records: Sequence[tuple[str, pa.Table]]
) -> Mapping[TopicPartition, int]:
    """Send records of these topics and wait for the acknowledgements. Returns the next offset of each partition."""
    sender = Sender(plan.client, producer, delivery_s=transaction_timeout_ms(plan.options) / 1000)
    for topic, rows in records:
        if rows.num_rows:
            encoder = Encoder(lambda name: _count_partitions(plan, name), plan.client.random, topic=topic)
            for batch in rows.combine_chunks().to_batches():
                sender.send_all(encoder.add(batch))
            sender.send_all(encoder.flush())
    sender.flush()
    return sender.next_offsets


def _count_partitions(plan: "TaskPlan", topic: str) -> int:
    known = plan.partition_counts.get(topic)
    return plan.client.count_partitions([topic])[topic] if known is None else known


def _end_transaction(client: Client, producer: ProducerIdentity, timeout_ms: int) -> ProducerIdentity:
    """Commit. Returns the identity for the next transaction, whose sequence numbers begin at zero again.

    The older transaction protocol keeps the epoch, and with it the sequence numbers: there the epoch is raised here.
    """
    following = end_transaction(client, producer, commit=True)
    if following.protocol == IMPLICIT:
        return following
    return init_producer(client, producer.transactional_id, timeout_ms)
