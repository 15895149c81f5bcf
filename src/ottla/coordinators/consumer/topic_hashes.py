"""A hash of the topics that a group subscribes to. When it changes, the group needs a new assignment.

It covers everything that an assignment may depend on: the topics, their partitions, and the racks of these. It differs
from Kafka's hash, so a group whose state comes from Apache Kafka gets a new assignment once.
"""

from collections.abc import Iterable
from hashlib import blake2b

from ottla.cluster.image import Image, TopicImage


class TopicHashes:
    """Computes hashes, and keeps the hash of each topic until the topic changes."""

    __slots__ = ("_brokers", "_known")

    def __init__(self) -> None:
        self._known: dict[str, tuple[TopicImage, bytes]] = {}
        self._brokers: object = None

    def compute(self, names: Iterable[str], image: Image) -> int:
        """The hash of these topics; zero if none of them exists."""
        if self._brokers is not image.brokers:
            self._brokers = image.brokers
            self._known.clear()
        known: dict[str, tuple[TopicImage, bytes]] = {}
        for name in sorted(names):
            topic = image.topic(name)
            if topic is not None:
                before = self._known.get(name)
                same = before is not None and before[0] is topic
                known[name] = before if before is not None and same else (topic, _hash(topic, image))
        self._known = known
        if not known:
            return 0
        total = blake2b(b"".join(digest for _, digest in known.values()), digest_size=8).digest()
        return int.from_bytes(total, "big", signed=True)


def _hash(topic: TopicImage, image: Image) -> bytes:
    content = blake2b(topic.id, digest_size=8)
    content.update(f"{topic.name} {len(topic.partitions)}".encode())
    for number, partition in enumerate(topic.partitions):
        brokers = (image.broker(id) for id in partition.replicas)
        racks = sorted({broker.rack for broker in brokers if broker is not None and broker.rack is not None})
        if racks:
            content.update(f"{number} {racks}".encode())
    return content.digest()
