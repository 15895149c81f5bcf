"""Collects how far groups are behind, under the names of kafka_exporter.

The coordinator of a group reports it, so each group is reported by one broker. It has the committed offsets; ends and
ages come from the logs on this broker, and for partitions without a replica here from their leaders, which are asked
while the page is made. All of this happens only when somebody asks for the page. At most metrics.groups.max groups and
metrics.offsets.max committed offsets have series.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, NamedTuple

from ottla.broker.node import Node
from ottla.errors import KafkaError
from ottla.observability import catalogue
from ottla.observability.asking import PartitionOffset, Peers, ask_ends, ask_times
from ottla.observability.metrics import PAUSE_EVERY, FamilySeries
from ottla.observability.quotas import shorten
from ottla.records.lag import count_lag, find_age_s
from ottla.replication.partition import Partition
from ottla.storage.timestamps import find_time_at
from ottla.topic_partition import TopicPartition

AGES_PER_PIECE = 50
"""Batch headers that are read from files before other work of the event loop gets its turn."""


class GroupCommit(NamedTuple):
    group: str
    where: TopicPartition
    offset: int


class GroupLagCollector:
    """Members, committed offsets and lag of the groups that this broker coordinates."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._now_ms = node.clock.now_ms()
        self._members: list[tuple[tuple[str], int]] = []
        self._committed: list[GroupCommit] = []
        self._ends: dict[TopicPartition, int] = {}
        self._ages: dict[GroupCommit, float] = {}
        self.left_out = 0

    def collect(self) -> Iterator[str | Coroutine[Any, Any, None]]:
        yield from self._collect_offsets()
        yield from self._collect_ends()
        yield from self._collect_ages()

    def _collect_offsets(self) -> Iterator[str]:
        groups_max, offsets_max = self._node.config.metrics_groups_max, self._node.config.metrics_offsets_max
        for machine in self._node.groups.machines():
            for group in list(machine.groups.values()):
                if len(self._members) >= groups_max:
                    self.left_out += 1
                    continue
                name = shorten(group.id)
                self._members.append(((name,), group.size))
                offsets = machine.offsets.find_group(group.id)
                found = [] if offsets is None else list(offsets.by_topic.items())
                room = offsets_max - len(self._committed)
                committed = [
                    GroupCommit(name, TopicPartition(topic, index), stored.value.offset)
                    for topic, partitions in found
                    for index, stored in partitions.items()
                ]
                self._committed += committed[:room]
                self.left_out += len(committed) > room
                yield ""

    def _collect_ends(self) -> Iterator[str | Coroutine[Any, Any, None]]:
        elsewhere: dict[int, dict[TopicPartition, None]] = {}
        for number, each in enumerate(self._committed):
            partition = self._find_log(each.where)
            if partition is not None:
                self._ends[each.where] = partition.high_watermark.value
            elif (leader := self._find_leader(each.where)) is not None:
                elsewhere.setdefault(leader, {})[each.where] = None
            if number % PAUSE_EVERY == PAUSE_EVERY - 1:
                yield ""
        fetchers = self._node.replication.fetchers
        if elsewhere and fetchers is not None:
            yield self._ask_ends(fetchers.peers, elsewhere)

    def _find_leader(self, where: TopicPartition) -> int | None:
        state = self._node.image.partition(*where)
        return None if state is None or state.leader < 0 else state.leader

    async def _ask_ends(self, peers: Peers, elsewhere: Mapping[int, Mapping[TopicPartition, None]]) -> None:
        for answer in await asyncio.gather(*(ask_ends(peers, *each) for each in elsewhere.items())):
            self._ends.update(answer)

    def _collect_ages(self) -> Iterator[str | Coroutine[Any, Any, None]]:
        """Find out when the first unread records were written."""
        elsewhere: dict[int, list[PartitionOffset]] = {}
        read = 0
        for each in self._committed:
            end, partition = self._ends.get(each.where), self._find_log(each.where)
            if end is None:
                continue
            if each.offset >= end:
                self._ages[each] = 0.0
            elif partition is not None:
                self._read_age(each, partition, end)
                read += 1
                if read % AGES_PER_PIECE == 0:
                    yield ""
            elif (leader := self._find_leader(each.where)) is not None:
                topic = self._node.image.topic(each.where.topic)
                assert topic is not None, "it has a leader"
                elsewhere.setdefault(leader, []).append(PartitionOffset(each.where, topic.id, each.offset))
        fetchers = self._node.replication.fetchers
        if elsewhere and fetchers is not None:
            yield self._ask_ages(fetchers.peers, elsewhere)

    def _read_age(self, committed: GroupCommit, partition: Partition, end: int) -> None:
        try:
            written_ms = find_time_at(partition.log, committed.offset, end)
        except (KafkaError, OSError):
            return  # damaged, or the disk has failed: those who read it are told
        self._ages[committed] = 0.0 if written_ms is None else find_age_s(written_ms, self._now_ms)

    async def _ask_ages(self, peers: Peers, elsewhere: Mapping[int, list[PartitionOffset]]) -> None:
        found: dict[tuple[TopicPartition, int], int] = {}
        for answer in await asyncio.gather(*(ask_times(peers, *each) for each in elsewhere.items())):
            found.update(answer)
        for each in self._committed:
            written_ms = found.get((each.where, each.offset))
            if written_ms is not None:
                self._ages[each] = find_age_s(written_ms, self._now_ms)

    def _find_log(self, where: TopicPartition) -> Partition | None:
        """The replica on this broker. One that follows is as good as its leader, but for a moment."""
        partition = self._node.replicas.of_topic(where.topic).get(where.partition)
        return partition if partition is not None and partition.state is not None else None

    def metrics(self) -> Iterator[FamilySeries]:
        yield catalogue.GROUP_MEMBERS, self._members
        rows = [((each.group, each.where.topic, str(each.where.partition)), each) for each in self._committed]
        yield catalogue.GROUP_OFFSET, [(labels, each.offset) for labels, each in rows]
        offset_sums: dict[tuple[str, str], int] = {}
        lag_sums: dict[tuple[str, str], int] = {}
        lags: list[tuple[tuple[str, str, str], int]] = []
        for labels, each in rows:
            of_topic = labels[:2]
            offset_sums[of_topic] = offset_sums.get(of_topic, 0) + each.offset
            end = self._ends.get(each.where)
            if end is not None:
                lag = count_lag(each.offset, end)
                lags.append((labels, lag))
                lag_sums[of_topic] = lag_sums.get(of_topic, 0) + lag
        yield catalogue.GROUP_OFFSET_SUM, offset_sums.items()
        yield catalogue.GROUP_LAG, lags
        yield catalogue.GROUP_LAG_SUM, lag_sums.items()
        yield (
            catalogue.GROUP_LAG_SECONDS,
            [(labels, self._ages[each]) for labels, each in rows if each in self._ages],
        )
        yield catalogue.GROUPS_LEFT_OUT, [((), self.left_out)]
