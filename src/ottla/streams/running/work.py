"""What the driver orders from a task for one batch, and what the task reports. Both travel as JSON lists."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ottla.client.transactions import ProducerIdentity

NO_TIME: Final = -1
"""The stream time of a source partition that has had no record."""


class SourceRange(NamedTuple):
    """The offsets of one source's partition that a task may read in a batch."""

    start: int
    end: int
    stream_time: int


class StateVersion(NamedTuple):
    """Where a store's partition is served, and up to which offset its changelog must be applied."""

    address: str
    upto: int


class Sifting(NamedTuple):
    """Which rows of a batch Spark computes, because it has failed for some of them."""

    row_count: int
    """The rows of the batch; -1 if it is not known. If there are others by now, the batch is tried again."""
    start: int
    end: int
    """The rows that are tried, by their numbers in the batch."""
    failed: Sequence[tuple[int, str]] = ()
    """The rows that are put aside, with the reasons."""
    is_trial: bool = False
    """Nothing is written."""


@dataclass(frozen=True)
class Order:
    """One batch of one task."""

    partition: int
    producer: ProducerIdentity
    ranges: Sequence[SourceRange]
    """In the order of the subtopology's sources."""
    now_ms: int
    state: Mapping[str, StateVersion] = field(default_factory=dict)
    idle_times: Mapping[int, int] = field(default_factory=dict)
    awaited: Sequence[int] = ()
    """Numbers of source partitions that hold up windows until the task has heard of them."""
    must_commit: bool = False
    """The positions are to be committed even if they are what they were."""
    records_max: int | None = None
    """At most so many records of each source; None for the app's batch_rows."""
    sifting: Sifting | None = None


class Position(NamedTuple):
    """How far a task has read a source's partition: the next offset, and the stream time up to there."""

    offset: int
    stream_time: int


@dataclass(frozen=True)
class Failure:
    """Why a task did not commit its batch."""

    kind: str
    message: str


BROKEN: Final = "broken"
"""A broker or a state server did not answer, or something unexpected was raised: the batch is tried again."""
STILL_RESTORING: Final = "still restoring"
"""State that the task needs is being restored, and has come further while the task waited: the batch is tried again."""
FENCED: Final = "fenced"
"""The task's transaction was ended by somebody else: another copy of the app, or a time-out."""
REFUSED: Final = "refused"
"""A bad record, a failing function or data that is gone: a repetition would fail too."""


@dataclass(frozen=True)
class Report:
    """What has become of an order. Nothing of the batch is committed if there is a failure."""

    partition: int
    producer: ProducerIdentity
    """With which the task's next transaction must be made."""
    positions: Sequence[Position] = ()
    """In the order of the sources."""
    changelog_ends: Mapping[str, int] = field(default_factory=dict)
    """The offset after the last record written to a changelog, by the name of the store."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """rows read and written, bad records, failed rows and late ones; milliseconds of the batch's phases."""
    failure: Failure | None = None
    has_committed: bool = False
    """Whether there was a transaction, with the positions of all sources."""
    is_open: bool = False
    """The driver has to end the transaction, once it knows that the job was successful."""


def to_order(fields: Sequence[Any]) -> Order:
    """The order that `order_fields` has made a list of."""
    partition, producer, ranges, now_ms, state, idle, awaited, must_commit, records_max, sifting = fields
    return Order(
        partition,
        ProducerIdentity(*producer),
        [SourceRange(*each) for each in ranges],
        now_ms,
        {name: StateVersion(*version) for name, version in state.items()},
        {int(source): milliseconds for source, milliseconds in idle.items()},
        awaited,
        must_commit,
        records_max,
        None if sifting is None else Sifting(*sifting),
    )


def order_fields(order: Order) -> list[Any]:
    return [
        order.partition,
        order.producer,
        order.ranges,
        order.now_ms,
        order.state,
        order.idle_times,
        order.awaited,
        order.must_commit,
        order.records_max,
        order.sifting,
    ]


def report_fields(report: Report) -> list[Any]:
    failure = None if report.failure is None else [report.failure.kind, report.failure.message]
    fields = [report.partition, report.producer, report.positions, report.changelog_ends, report.counts, failure]
    return [*fields, report.has_committed, report.is_open]


def to_report(fields: Sequence[Any]) -> Report:
    """The report that `report_fields` has made a list of."""
    partition, producer, positions, changelog_ends, counts, failure, has_committed, is_open = fields
    return Report(
        partition,
        ProducerIdentity(*producer),
        [Position(*each) for each in positions],
        changelog_ends,
        counts,
        None if failure is None else Failure(*failure),
        has_committed,
        is_open,
    )
