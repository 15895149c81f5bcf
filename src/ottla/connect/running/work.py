"""What the driver orders from a task for one batch, and what the task reports. Both travel as JSON lists."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ottla.client.transactions import ProducerIdentity


class PartOrder(NamedTuple):
    """A source partition that a task is to read."""

    key: str
    """Of its record in the offsets topic."""
    partition: Mapping[str, Any]
    work: Mapping[str, Any]
    offset: Mapping[str, Any] | None


class RangeOrder(NamedTuple):
    """The offsets of a topic partition that a task is to write, as far as one batch may go."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class Order:
    """One batch of one task."""

    task: int
    producer: ProducerIdentity
    parts: Sequence[PartOrder] = ()
    ranges: Sequence[RangeOrder] = ()
    run: ProducerIdentity | None = None
    """Of a source: the identity of the run when it gave the order."""


RETRY: Final = "retry"
"""A server is away, or the task's process has died: the batch is tried again."""
FENCED: Final = "fenced"
"""The task's transaction was ended by somebody else: another run of the connector, or a time-out."""
FAILED: Final = "failed"
"""A repetition would fail too: the task stays FAILED until somebody restarts it."""


@dataclass(frozen=True)
class Failure:
    kind: str
    trace: str
    """The first line says in one sentence what is wrong."""

    @property
    def message(self) -> str:
        return self.trace.partition("\n")[0]


@dataclass(frozen=True)
class Report:
    """What has become of an order. What it names as done is committed, even if there is a failure."""

    task: int
    producer: ProducerIdentity
    """With which the task's next transaction is to be made."""
    offsets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of a source: the committed offsets by `PartOrder.key`."""
    positions: Sequence[tuple[str, int, int]] = ()
    """Of a sink: topic, partition and the committed offset."""
    topics: Sequence[str] = ()
    """Topics that were written to."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """By Kafka's names of metrics."""
    log: Sequence[str] = ()
    """Lines about records that were left out, for the driver's log."""
    failure: Failure | None = None


def order_fields(order: Order) -> list[Any]:
    return [order.task, order.producer, order.parts, order.ranges, order.run]


def to_order(fields: Sequence[Any]) -> Order:
    task, producer, parts, ranges, run = fields
    return Order(
        task,
        ProducerIdentity(*producer),
        [PartOrder(*each) for each in parts],
        [RangeOrder(*each) for each in ranges],
        None if run is None else ProducerIdentity(*run),
    )


def report_fields(report: Report) -> list[Any]:
    failure = None if report.failure is None else [report.failure.kind, report.failure.trace]
    done = [report.task, report.producer, report.offsets, report.positions, report.topics]
    return [*done, report.counts, report.log, failure]


def to_report(fields: Sequence[Any]) -> Report:
    task, producer, offsets, positions, topics, counts, log, failure = fields
    return Report(
        task,
        ProducerIdentity(*producer),
        offsets,
        [(topic, partition, offset) for topic, partition, offset in positions],
        topics,
        counts,
        log,
        None if failure is None else Failure(*failure),
    )
