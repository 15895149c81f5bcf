"""One partition of a topic, by name: the word for it from the disk to the command line."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        """The topic and the partition as Kafka writes them in logs and directory names: `orders-0`."""
        return f"{self.topic}-{self.partition}"
