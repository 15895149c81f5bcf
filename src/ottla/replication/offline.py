"""Partitions of this broker that it cannot serve: their data directory failed, or its topic id cannot be read."""

from collections.abc import Iterator

from ottla.errors import ErrorCode, KafkaError
from ottla.topic_partition import TopicIdPartition

_REASON = "the partition is offline: its data directory failed"


class OfflinePartitions:
    def __init__(self) -> None:
        self._by_id: dict[bytes, dict[int, None]] = {}
        self._by_name: dict[str, dict[int, None]] = {}

    def add(self, topic: str, topic_id: bytes, index: int) -> None:
        indexes = self._by_id.setdefault(topic_id, {})
        indexes[index] = None
        self._by_name[topic] = indexes

    def forget(self, topic: str, topic_id: bytes) -> None:
        """Forget the partitions of a deleted topic."""
        if self._by_id.pop(topic_id, None) is not None:
            self._by_name.pop(topic, None)

    def knows(self, topic_id: bytes, index: int) -> bool:
        return index in self._by_id.get(topic_id, ())

    def require_online(self, topic: str, index: int) -> None:
        """KAFKA_STORAGE_ERROR if the partition is offline."""
        if index in self._by_name.get(topic, ()):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, _REASON)

    def require_online_by_id(self, topic_id: bytes, index: int) -> None:
        """Like `require_online`, for a topic that is known by its id."""
        if self.knows(topic_id, index):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, _REASON)

    def __iter__(self) -> Iterator[TopicIdPartition]:
        return ((topic_id, index) for topic_id, indexes in self._by_id.items() for index in indexes)

    def __len__(self) -> int:
        return sum(map(len, self._by_id.values()))
