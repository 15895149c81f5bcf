"""Random records of every shape that a Kafka record can have. Only their bytes tell them apart."""

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
    """Whether the library accepts a null value in a header."""

    def send(self, bootstrap: str, topic: str, messages: Sequence[Sent], delivery: Delivery) -> None:
        """Send messages. Returns when all are acknowledged, or with acks=0 when all were written to the socket."""

    def receive(self, bootstrap: str, topic: str, partitions: int, count: int) -> list[Sent]:
        """Read the first `count` records of all partitions from their beginning, in the order of offsets of each
        partition."""


def messages(
    random: Random, count: int, partitions: int, *, largest: int = 2000, null_headers: bool = True
) -> list[Sent]:
    """Generate records: keys, values and headers that are null, empty or long, text that is not ASCII, times that
    jump."""
    now = 1_750_000_000_000
    found = []
    for _ in range(count):
        key, value = _part(random, 40), _part(random, largest)
        if value is None and key is None:
            key = b"deleted"  # aiokafka sends no record without key and value
        count_of_headers = random.choice((0, 0, 1, 3))
        headers = tuple((random.choice(NAMES), _header(random, null_headers)) for _ in range(count_of_headers))
        timestamp = now + random.randrange(-10_000, 10_000)
        found.append(Sent(random.randrange(partitions), key, value, headers, timestamp))
    return found


def _part(random: Random, largest: int) -> bytes | None:
    """Random bytes, half of which repeat, so that a codec can compress them."""
    length = random.choice((None, 0, 1, largest // 2, largest))
    if length is None:
        return None
    return random.randbytes(length // 2) + b"again " * (length // 12) + bytes(length % 2)


def _header(random: Random, null: bool) -> bytes | None:
    value = _part(random, 30)
    return b"" if value is None and not null else value


def group_by_partition(sent: Sequence[Sent]) -> dict[int, list[Sent]]:
    """The records of each partition in the order they were sent, which a partition keeps."""
    found: dict[int, list[Sent]] = {}
    for message in sent:
        found.setdefault(message.partition, []).append(message)
    return dict(sorted(found.items()))
