"""What a connector is. A connector of one's own is a class that derives from `Source` or `Sink`.

A connector object is made on the worker's driver from checked settings. Its methods that say "in a Spark task" run on a
copy of it that was pickled after `start`, in Python workers that may be on other machines: whatever such a method
needs has to survive pickling, and connections are opened where they are used. The other methods run on the driver, in
the connector's own thread, one at a time.

**Source.** In each round the driver asks `plan` which source partitions have something to read. Each part becomes one
Spark task, which reads from the committed offset and writes the rows to topics together with the new offset in one
transaction, so what `read` returns need not be the same if it is repeated.

**Sink.** The driver gives each topic partition a range of offsets; one Spark task writes it. If the target can keep
offsets together with the rows, the sink keeps them there and returns them from `find_positions`: it then writes each
record exactly once. Otherwise the offsets are those committed by the group `connect-<name>`. A sink that keeps offsets
calls `batch.set_aside` before the target remembers one, because nobody looks at the records before it again.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from ottla.client.sending import OffsetRun
from ottla.connect.data.columns import RawRecords, RecordColumns
from ottla.connect.data.record import Record
from ottla.connect.errors import ConnectError
from ottla.connect.settings.definition import Settings
from ottla.topic_partition import TopicPartition

SourcePartition = Mapping[str, Any]
"""Names a part of a source that has an offset of its own: a file, a table, a replication slot. A flat JSON object."""
SourceOffset = Mapping[str, Any]
"""How far a source partition has been read. A flat JSON object."""


def partition_key(partition: SourcePartition) -> str:
    """The same text for the same source partition, whatever the order of its names."""
    return json.dumps(partition, sort_keys=True)


MAX_ROWS: Final = 100_000
"""Rows of a task in one round, so that a transaction and a status stay short. A source that has so many within less
than a second may go on until the second is over: a round costs time of its own."""


@dataclass(frozen=True)
class ConnectorContext:
    """What a connector may know about where it runs."""

    name: str
    """The connector's."""
    worker_group: str
    """group.id of the worker, or its name in standalone mode. With `name` it is unique in the Kafka cluster."""
    tasks_max: int
    client_settings: Mapping[str, str]
    """With which the worker reaches its Kafka cluster."""


class Connector(ABC):
    """The base of sources and sinks."""

    settings: ClassVar[Settings]
    """The declared settings besides those that every connector has."""
    prefixes: ClassVar[tuple[str, ...]] = ()
    """How the names of further settings begin that the connector reads; `("",)` if it reads any."""
    version: ClassVar[str] = "0"

    def __init__(self, config: Mapping[str, Any], context: ConnectorContext) -> None:
        """`config` has the parsed value of each declared setting, and others as they were given."""
        self.config = config
        self.context = context

    def start(self) -> None:  # noqa: B027 - few connectors need it
        """Prepare what `plan` or `find_positions` needs. Called before everything else, again if it raises
        RetriableError."""

    def stop(self) -> None:  # noqa: B027 - few connectors need it
        """Free what `start` has taken. Called once, also after a failure."""


@dataclass(frozen=True)
class Part:
    """A source partition that has something to read now."""

    partition: SourcePartition
    work: Mapping[str, Any] = field(default_factory=dict)
    """What the driver wants to tell the task besides: an end to read up to, for example. A JSON object."""


@dataclass(frozen=True)
class SourceBatch:
    """Rows of a source partition, and the offset after them."""

    rows: Sequence[RecordColumns | Sequence[Record]]
    """In the order in which they are to be written."""
    offset: SourceOffset | None
    """None: the offset stays, and the rows come again if the task ends here."""
    raw: Sequence[RawRecords] = ()
    """Rows that no converter sees, after the others."""
    is_midway: bool = False
    """Whether `read` would have to begin again far before this offset, as inside a large transaction of a database. The
    task commits here when it has enough, and then goes on instead of ending."""


class Source(Connector):
    follows_up: ClassVar[bool] = False
    """Whether `follow_up` has something to add."""

    @abstractmethod
    def plan(self, offsets: Mapping[str, SourceOffset]) -> Sequence[Part]:
        """The parts to read now, at most one for each source partition; empty if there is nothing new.

        `offsets` has the committed offset of each partition that has one, by `partition_key(partition)`.
        """

    @abstractmethod
    def read(self, part: Part, offset: SourceOffset | None) -> Iterator[SourceBatch]:
        """In a Spark task: what follows the offset, in pieces of bounded size.

        The task stops reading at the first offset after `MAX_ROWS` rows, once a second has passed, unless the offset
        is midway. A source that has less in each round stops by itself.
        """

    def follow_up(self, written: Mapping[TopicPartition, Sequence[OffsetRun]]) -> Sequence[RawRecords]:
        """In a Spark task, when everything that it read is written and not yet committed: records for the same
        transaction that say where the others are. `written` has the offsets of each partition's records, in order."""
        return ()

    def after_commit(self, offsets: Mapping[str, SourceOffset]) -> None:
        """After each round that committed something, with all committed offsets: let the source forget what is safe.

        It may be repeated, and it may never be called for the last round before a crash.
        """

    def check_offset(self, partition: SourcePartition, offset: SourceOffset | None) -> None:
        """Raise ConnectError if `read` could not go on at an offset that a user wants to set; None forgets the offset.

        Called on a connector that was not started.
        """

    def is_done(self) -> bool:
        """True if the source has an end and has reached it."""
        return False


@dataclass(frozen=True)
class RefusedRecord:
    """A record that the target does not take, for the dead letters or the failure of the task."""

    record: Record
    reason: str


@dataclass(frozen=True)
class SinkBatch:
    """Records of one topic partition, with the range of offsets that they come from.

    Records that were filtered out, or set aside because they are bad, leave gaps in the range. A sink that keeps
    offsets stores `end`.
    """

    topic: str
    """The topic that was read. Transformations may have changed the topic of the records."""
    partition: int
    start: int
    end: int
    """The offset after the last record."""
    rows: Sequence[RecordColumns | Sequence[Record]]
    set_aside: Callable[[Sequence[RefusedRecord], int], None] = lambda refused, end: None
    """What a sink that keeps offsets calls with the refused records before an offset, as the last act before it commits
    this offset to the target. Every bad record before the offset is a committed dead letter afterwards, also those that
    could not be converted. Raises if bad records are not tolerated, or if brokers do not answer: then the sink commits
    nothing. If the target does not commit after all, the dead letters come again with the batch."""


@dataclass(frozen=True)
class Written:
    """What has become of a batch."""

    refused: Sequence[RefusedRecord] = ()
    """What the target does not take, among the records before `end`, whether `set_aside` was told about it or not."""
    end: int | None = None
    """The offset up to which the batch was written; None: all of it. The rest comes again with what follows it."""


class Sink(Connector):
    def is_due(self, where: TopicPartition, start: int, end: int) -> bool:
        """On the driver: whether these offsets are worth a batch now. A sink that writes large files waits for more."""
        return True

    def find_positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Shut out earlier owners and return the next offset of each partition that the target keeps one for.

        Called after `start`, and again whenever partitions are added or a batch has failed.
        """
        return {}

    def alter_positions(self, positions: Mapping[TopicPartition, int | None]) -> bool:
        """Change what `find_positions` returns, as the user of a stopped connector wants it; None forgets a position.

        Called after `start`, once earlier runs are shut out; it may be repeated. False: the target keeps no positions.
        A sink that cannot change them raises ConnectError, which refuses the whole change.
        """
        if type(self).find_positions is Sink.find_positions:
            return False
        raise ConnectError("the target of this connector keeps the offsets, and the connector cannot change them there")

    @abstractmethod
    def write(self, batch: SinkBatch) -> Written:
        """In a Spark task: write the batch durably before returning. It may have no rows, only an end to remember.

        Raises RetriableError if the target is away. A sink that cannot go on without a refused record raises.
        """

    def after_commit(self, positions: Mapping[TopicPartition, int]) -> None:
        """On the driver, after the offsets of a round were committed to the group."""
