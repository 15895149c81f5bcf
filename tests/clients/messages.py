"""What the clients send: records of every shape that a Kafka record can have, told apart by nothing but their bytes."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple, Protocol

NAMES = ("trace", "", "größe")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Headers = tuple[tuple[str, bytes | None], ...]


class Sent(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int


class Delivery(NamedTuple):
    """How a producer is to send."""

    codec: str = "none"
    idempotent: bool = False
    acks: int = -1


class Client(Protocol):
    """One client library, reduced to what every library can do."""

    NULL_HEADERS: bool
    """Whether it lets a header be null."""

    def send(self, bootstrap: str, topic: str, messages: Sequence[Sent], delivery: Delivery) -> None:
        """Returns when all are acknowledged, or with acks=0 when all have left."""

    def receive(self, bootstrap: str, topic: str, partitions: int, count: int) -> list[Sent]:
        """The first `count` records of all partitions from their beginning; per partition in the order of offsets."""


def messages(
    random: Random, count: int, partitions: int, *, largest: int = 2000, null_headers: bool = True
) -> list[Sent]:
    """Keys, values and headers that are null, empty or long; text that is not ASCII; times that jump."""
    now = 1_750_000_000_000
    found = []
    for _ in range(count):
        key, value = _part(random, 40), _part(random, largest)
        if value is None and key is None:
            key = b"deleted"  # aiokafka sends no record without both
        count_of_headers = random.choice((0, 0, 1, 3))
        headers = tuple((random.choice(NAMES), _header(random, null_headers)) for _ in range(count_of_headers))
        timestamp = now + random.randrange(-10_000, 10_000)
        found.append(Sent(random.randrange(partitions), key, value, headers, timestamp))
    return found


def _part(random: Random, largest: int) -> bytes | None:
    """Half of it repeats itself, so that a codec has something to do."""
    length = random.choice((None, 0, 1, largest // 2, largest))
    if length is None:
        return None
    return random.randbytes(length // 2) + b"again " * (length // 12) + bytes(length % 2)


def _header(random: Random, null: bool) -> bytes | None:
    value = _part(random, 30)
    return b"" if value is None and not null else value


def by_partition(sent: Sequence[Sent]) -> dict[int, list[Sent]]:
    """In the order they were sent, which is the order that a partition keeps."""
    found: dict[int, list[Sent]] = {}
    for message in sent:
        found.setdefault(message.partition, []).append(message)
    return dict(sorted(found.items()))
