"""One partition of a topic, by name or by id: the words for it from the disk to the command line."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        """The topic and the partition as Kafka writes them in logs and directory names: `orders-0`."""
        return f"{self.topic}-{self.partition}"


TopicIdPartition = tuple[bytes, int]
"""A partition by the id of its topic. A plain tuple, because a busy broker makes many of them."""
