"""One partition of a topic, by name: the word for it from the disk to the command line."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        """As Kafka writes it in logs and directory names."""
        return f"{self.topic}-{self.partition}"
