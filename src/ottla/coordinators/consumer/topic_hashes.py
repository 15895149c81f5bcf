"""A number for the topics that a group subscribes to: another number means that the group needs another assignment.

It covers what an assignment may rest on: which topics there are, their partitions, and the racks these are in. Ours is
no Kafka's: a group that comes from there is assigned anew once.
"""

from collections.abc import Iterable
from hashlib import blake2b

from ottla.cluster.image import Image, TopicImage


class TopicHashes:
    """Remembers the hash of each topic for as long as the image has the same one."""

    __slots__ = ("_brokers", "_known")

    def __init__(self) -> None:
        self._known: dict[str, tuple[TopicImage, bytes]] = {}
        self._brokers: object = None

    def of(self, names: Iterable[str], image: Image) -> int:
        """Zero if none of the topics exists."""
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
