"""What clients did and saw, and how brokers ended, as plain data in the order it happened. `checker` checks it.

Times are given as lives: a broker's first life ends with its first crash or shutdown. A client knows which life of the
broker answered it, so an answer that arrives late still counts for the right life.
"""

from dataclasses import dataclass, field
from enum import Enum

from ottla.topic_partition import TopicPartition

PADDING = b"x"


def token(value: bytes) -> bytes:
    """A short form of a value for the history: its name and its length. If any byte was changed, the token is another
    one."""
    return value.rstrip(PADDING) + b"%d" % len(value)


class Ending(Enum):
    KILL = "kill -9"
    POWER_CUT = "power cut"
    SHUTDOWN = "clean shutdown"


@dataclass(frozen=True, slots=True)
class Batch:
    """Records that a producer sends together. Values are stored as tokens, and are unique in the whole history.

    `identity` changes whenever the producer starts anew: with a new producer id or, without idempotence, with a new
    connection. Within one identity the `number`s count up, and the log must keep their order.
    """

    producer: str
    identity: int
    number: int
    partition: TopicPartition
    values: tuple[bytes, ...]
    idempotent: bool
    keys: tuple[bytes | None, ...] = ()
    """The key of each value; empty if the records have no keys."""
    transaction: str | None = None
    """The transaction that the batch belongs to. The names of transactions are unique in the whole history."""

    def __str__(self) -> str:
        return f"{self.producer}/{self.identity}/{self.number}"


@dataclass(frozen=True, slots=True)
class Sent:
    batch: Batch


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The broker said that the batch is in the log. The offset is None if the broker did not know it."""

    batch: Batch
    life: int
    base_offset: int | None


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker refused this batch for good: its sequence number does not fit what the broker remembers."""

    batch: Batch
    life: int
    error: str


@dataclass(frozen=True, slots=True)
class Fetched:
    consumer: str
    partition: TopicPartition
    life: int
    position: int
    records: tuple[tuple[int, bytes], ...]
    high_watermark: int


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """A consumer was told that the offset it wants to read does not exist."""

    consumer: str
    partition: TopicPartition
    life: int
    position: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A life of the broker ended."""

    life: int
    ending: Ending


@dataclass(frozen=True, slots=True)
class Committing:
    """A group sent an offset to be stored."""

    group: str
    offset: int


@dataclass(frozen=True, slots=True)
class OffsetKnown:
    """The broker said that this is a group's offset: the offset was stored, or it was read back. -1 means none."""

    group: str
    life: int
    offset: int


@dataclass(frozen=True, slots=True)
class NotWritten:
    """The producer was told that the batch is not in the log and never will be."""

    batch: Batch
    error: str


class Outcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """A producer was told how its transaction ended. A transaction without this event has an unknown outcome."""

    transaction: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Assigned:
    """A consumer began to read a partition at this offset. Its next polls continue from there."""

    consumer: str
    partition: TopicPartition
    position: int


@dataclass(frozen=True, slots=True)
class Polled:
    """Records that a client library returned to its application, which does not see at which broker they were
    fetched."""

    consumer: str
    partition: TopicPartition
    records: tuple[tuple[int, bytes], ...]
    read_committed: bool = False


@dataclass(frozen=True, slots=True)
class WatermarksSeen:
    """The earliest and the latest offset of a partition, as ListOffsets told them to one observer."""

    observer: str
    partition: TopicPartition
    log_start: int
    high_watermark: int


Event = (
    Sent
    | Acknowledged
    | Refused
    | NotWritten
    | Fetched
    | OutOfRange
    | Ended
    | Committing
    | OffsetKnown
    | TransactionEnded
    | Assigned
    | Polled
    | WatermarksSeen
)


@dataclass(slots=True)
class History:
    durable_topics: frozenset[str]
    """Topics with flush.messages=1: what was acknowledged or seen there survives a power cut."""
    events: list[Event] = field(default_factory=list)
    final: dict[TopicPartition, tuple[tuple[int, bytes], ...]] = field(default_factory=dict)
    """The whole log of each partition, read after the last fault."""
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    """The first offset of each of these logs, if it is not that of the first record."""
    compacted_topics: frozenset[str] = frozenset()
    expiring_topics: frozenset[str] = frozenset()
    """Topics that lose their oldest records by retention."""
    final_offsets: dict[str, int] = field(default_factory=dict)
    """The offset of each group that committed, read after the last fault."""
    committed: dict[TopicPartition, tuple[tuple[int, bytes], ...]] = field(default_factory=dict)
    """The records that read_committed shows of each partition of `transactional_topics`, read after the last fault."""
    transactional_topics: frozenset[str] = frozenset()
    """Topics that transactions write to. Their markers take offsets too, so the offsets of records are not dense."""
    is_replicated: bool = False
    """The brokers of a cluster answered. After a change of leader the high watermark of Fetch may lag for a moment."""
