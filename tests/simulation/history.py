"""What clients did and saw, and how brokers ended, as plain data in the order it happened. `checker` judges it.

Time is told in lives: a broker's first life ends with its first crash or shutdown. A client knows from which life an
answer came, so nothing depends on when an answer that was still on its way reached it.
"""

from dataclasses import dataclass, field
from enum import Enum

from ottla.topic_partition import TopicPartition

PADDING = b"x"


def token(value: bytes) -> bytes:
    """What stands for a value in a history: its name and its length. A value with any other byte has another token."""
    return value.rstrip(PADDING) + b"%d" % len(value)


class Ending(Enum):
    KILL = "kill -9"
    POWER_CUT = "power cut"
    SHUTDOWN = "clean shutdown"


@dataclass(frozen=True, slots=True)
class Batch:
    """Records that a producer sends together. Values, told by their tokens, are unique in the whole history.

    `identity` changes whenever the producer starts anew (a new producer id; without idempotence, a new connection):
    within one the `number`s count up, and the log must keep their order.
    """

    producer: str
    identity: int
    number: int
    partition: TopicPartition
    values: tuple[bytes, ...]
    idempotent: bool
    keys: tuple[bytes | None, ...] = ()
    """One for each value, if they have any."""
    transaction: str | None = None
    """The transaction that the batch belongs to. The names of transactions are unique in the whole history."""

    def __str__(self) -> str:
        return f"{self.producer}/{self.identity}/{self.number}"


@dataclass(frozen=True, slots=True)
class Sent:
    batch: Batch


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The broker says that the batch is in the log; the offset is None if it does not know where."""

    batch: Batch
    life: int
    base_offset: int | None


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker will never take this batch: its sequence number does not fit what the broker remembers."""

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
    """A consumer was told that the offset it has reached does not exist."""

    consumer: str
    partition: TopicPartition
    life: int
    position: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A life of the broker is over."""

    life: int
    ending: Ending


@dataclass(frozen=True, slots=True)
class Committing:
    """A group sends an offset to be stored."""

    group: str
    offset: int


@dataclass(frozen=True, slots=True)
class OffsetKnown:
    """The broker says that this is a group's offset: it was stored, or it was read back. -1 is none."""

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
    """A consumer begins to read a partition at this offset: its next polls go on from there."""

    consumer: str
    partition: TopicPartition
    position: int


@dataclass(frozen=True, slots=True)
class Polled:
    """Records that a client library handed to its application, which does not see where the library fetched them."""

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
    """The whole log of each partition, read when everything is over."""
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    """Where each of these logs begins, if not with its first record."""
    compacted_topics: frozenset[str] = frozenset()
    expiring_topics: frozenset[str] = frozenset()
    """Topics that lose their oldest records by retention."""
    final_offsets: dict[str, int] = field(default_factory=dict)
    """What each group that committed has in the end."""
    committed: dict[TopicPartition, tuple[tuple[int, bytes], ...]] = field(default_factory=dict)
    """What read_committed shows of each partition of `transactional_topics`, read when everything is over."""
    transactional_topics: frozenset[str] = frozenset()
    """Topics that transactions write to. Their markers take offsets too, so the offsets of records are not dense."""
