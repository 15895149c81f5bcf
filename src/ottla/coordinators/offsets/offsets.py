"""Committed offsets of the groups of one partition of `__consumer_offsets`.

An offset that is committed in a transaction is pending until the transaction's marker. An abort marker drops it; a
commit marker makes it count, unless a commit that came later in the log counts already. While an offset is pending, a
reader that asks for stable offsets is told to try again.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.coordinators.formats import OffsetCommitKey, OffsetCommitValue
from ottla.coordinators.machine import StoredRecord
from ottla.topic_partition import TopicPartition


class StoredOffset(NamedTuple):
    order: int
    """The position of the commit in the log: of two commits the later one has the higher number."""
    value: OffsetCommitValue


class GroupOffsets:
    """The offsets of one group."""

    __slots__ = ("by_topic", "pending")

    def __init__(self) -> None:
        self.by_topic: dict[str, dict[int, StoredOffset]] = {}
        self.pending: dict[TopicPartition, dict[int, StoredOffset]] = {}
        """The offsets that open transactions will commit, by producer id."""

    @property
    def is_empty(self) -> bool:
        return not self.by_topic and not self.pending

    @property
    def count(self) -> int:
        """The number of committed offsets, without the pending ones."""
        return sum(map(len, self.by_topic.values()))

    def partitions(self) -> Iterator[TopicPartition]:
        """Every partition with an offset, committed or pending."""
        for topic, partitions in self.by_topic.items():
            for partition in partitions:
                yield TopicPartition(topic, partition)
        for pending in self.pending:
            if pending.partition not in self.by_topic.get(pending.topic, ()):
                yield pending

    def put(self, topic: str, partition: int, committed: StoredOffset) -> None:
        partitions = self.by_topic.get(topic)
        if partitions is None:
            partitions = self.by_topic[topic] = {}
        known = partitions.get(partition)
        if known is None or known.order < committed.order:
            partitions[partition] = committed

    def remove(self, topic: str, partition: int) -> None:
        partitions = self.by_topic.get(topic)
        if partitions is not None:
            partitions.pop(partition, None)
            if not partitions:
                del self.by_topic[topic]


class Offsets:
    """The offsets of all groups. Changed by replay only."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupOffsets] = {}
        self._transactions: dict[int, dict[tuple[str, str, int], None]] = {}
        """The pending offsets of each open transaction, by producer id: group, topic, partition."""
        self._replayed = 0

    # Lookup

    def find_group(self, group_id: str) -> GroupOffsets | None:
        return self._groups.get(group_id)

    def find_groups_of_topic(self, topic: str) -> list[str]:
        """The groups with an offset of this topic, committed or pending."""
        return [
            group_id
            for group_id, group in self._groups.items()
            if topic in group.by_topic or any(pending.topic == topic for pending in group.pending)
        ]

    def find_committed(self, group_id: str, topic: str, partition: int) -> OffsetCommitValue | None:
        group = self._groups.get(group_id)
        if group is None:
            return None
        found = group.by_topic.get(topic, {}).get(partition)
        return None if found is None else found.value

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        group = self._groups.get(group_id)
        return group is not None and (topic, partition) in group.pending

    def has_offset(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether the partition has an offset, committed or pending."""
        return self.find_committed(group_id, topic, partition) is not None or self.is_pending(
            group_id, topic, partition
        )

    def tombstones(self, group_id: str, partitions: Sequence[TopicPartition] | None = None) -> list[StoredRecord]:
        """Records that delete these offsets of a group, or all of them."""
        group = self._groups.get(group_id)
        if group is None:
            return []
        wanted = group.partitions() if partitions is None else partitions
        return [
            StoredRecord(OffsetCommitKey(group_id=group_id, topic=topic, partition=partition), None)
            for topic, partition in wanted
        ]

    # Replay

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer_id: int | None) -> None:
        self._replayed += 1
        group_id, topic, partition = key.group_id, key.topic, key.partition
        group = self._groups.get(group_id)
        if value is None:
            if group is not None:
                self._delete(group_id, group, topic, partition)
            return
        if group is None:
            group = self._groups[group_id] = GroupOffsets()
        committed = StoredOffset(self._replayed, value)
        if producer_id is None:
            group.put(topic, partition, committed)
        else:
            group.pending.setdefault(TopicPartition(topic, partition), {})[producer_id] = committed
            self._transactions.setdefault(producer_id, {})[group_id, topic, partition] = None

    def end_transaction(self, producer_id: int, committed: bool) -> list[str]:
        """Commit or drop the pending offsets of a transaction. Returns the groups that had any."""
        groups: dict[str, None] = {}
        for group_id, topic, partition in self._transactions.pop(producer_id, {}):
            group = self._groups[group_id]
            groups[group_id] = None
            key = TopicPartition(topic, partition)
            pending = group.pending[key]
            offset = pending.pop(producer_id)
            if not pending:
                del group.pending[key]
            if committed:
                group.put(topic, partition, offset)
            elif group.is_empty:
                del self._groups[group_id]
        return list(groups)

    def _delete(self, group_id: str, group: GroupOffsets, topic: str, partition: int) -> None:
        group.remove(topic, partition)
        for producer_id in group.pending.pop(TopicPartition(topic, partition), ()):
            pending = self._transactions[producer_id]
            del pending[group_id, topic, partition]
            if not pending:
                del self._transactions[producer_id]
        if group.is_empty:
            del self._groups[group_id]
