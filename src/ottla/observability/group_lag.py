"""Collects how far groups are behind, under the names of kafka_exporter.

The coordinator of a group reports it, so each group is reported by one broker. It has the committed offsets; the ends
come from the logs on this broker, and for partitions without a replica here from their leaders, which are asked while
the page is made. All of this happens only when somebody asks for the page. At most metrics.groups.max groups and
metrics.offsets.max committed offsets have series.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from ottla.broker.node import Node
from ottla.errors import KafkaError
from ottla.observability import catalogue
from ottla.observability.metrics import PAUSE_EVERY, FamilySeries
from ottla.observability.quotas import shorten
from ottla.records.lag import count_lag, find_age_s
from ottla.replication.partition import Partition
from ottla.storage.timestamps import find_time_at
from ottla.topic_partition import TopicPartition
from ottla.wire.message import Message
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.peer import PeerUnavailable

LATEST = -1
ASK_TIMEOUT_S = 5.0
"""For another broker to say where its logs end. Prometheus gives up after ten seconds."""

AGES_PER_PIECE = 50
"""Batch headers that are read from files before other work of the event loop gets its turn."""


class Ends(Protocol):
    """A way to ask other brokers."""

    async def request(self, broker_id: int, message: Message, *, timeout_s: float) -> Any: ...


class Committed(NamedTuple):
    group: str
    where: TopicPartition
    offset: int


class GroupLagCollector:
    """Members, committed offsets and lag of the groups that this broker coordinates."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._now_ms = node.clock.now_ms()
        self._members: list[tuple[tuple[str], int]] = []
        self._committed: list[Committed] = []
        self._ends: dict[TopicPartition, int] = {}
        self._ages: list[float | None] = []
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
                    Committed(name, TopicPartition(topic, index), stored.value.offset)
                    for topic, partitions in found
                    for index, stored in partitions.items()
                ]
                self._committed += committed[:room]
                self.left_out += len(committed) > room
                yield ""

    def _collect_ends(self) -> Iterator[str | Coroutine[Any, Any, None]]:
        elsewhere: dict[int, dict[TopicPartition, None]] = {}
        image = self._node.image
        for number, each in enumerate(self._committed):
            where = each.where
            partition = self._find_log(where)
            if partition is not None:
                self._ends[where] = partition.high_watermark.value
            elif (state := image.partition(*where)) is not None and state.leader >= 0:
                elsewhere.setdefault(state.leader, {})[where] = None
            if number % PAUSE_EVERY == PAUSE_EVERY - 1:
                yield ""
        fetchers = self._node.replication.fetchers
        if elsewhere and fetchers is not None:
            yield self._ask(fetchers.peers, elsewhere)

    async def _ask(self, peers: Ends, elsewhere: Mapping[int, Mapping[TopicPartition, None]]) -> None:
        answers = await asyncio.gather(
            *(ask_ends(peers, broker_id, list(wanted)) for broker_id, wanted in elsewhere.items())
        )
        for answer in answers:
            self._ends.update(answer)

    def _collect_ages(self) -> Iterator[str]:
        """Read when the first unread records were written. Those of partitions without a replica here stay unknown."""
        read = 0
        for each in self._committed:
            end, partition = self._ends.get(each.where), self._find_log(each.where)
            if end is not None and each.offset >= end:
                self._ages.append(0.0)
                continue
            self._ages.append(None if end is None or partition is None else self._find_age(partition, each.offset, end))
            read += 1
            if read % AGES_PER_PIECE == 0:
                yield ""

    def _find_age(self, partition: Partition, offset: int, end: int) -> float | None:
        try:
            written_ms = find_time_at(partition.log, offset, end)
        except (KafkaError, OSError):
            return None  # damaged, or the disk has failed: those who read it are told
        return 0.0 if written_ms is None else find_age_s(written_ms, self._now_ms)

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
            [(labels, age) for (labels, _), age in zip(rows, self._ages, strict=True) if age is not None],
        )
        yield catalogue.GROUPS_LEFT_OUT, [((), self.left_out)]


async def ask_ends(peers: Ends, broker_id: int, wanted: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Ask the leader of these partitions where they end. What it does not say is left out."""
    topics: dict[str, ListOffsetsTopic] = {}
    for topic, index in wanted:
        asked = topics.setdefault(topic, ListOffsetsTopic(name=topic))
        asked.partitions.append(ListOffsetsPartition(partition_index=index, timestamp=LATEST))
    request = ListOffsetsRequest(replica_id=-1, topics=list(topics.values()))
    try:
        answer = await peers.request(broker_id, request, timeout_s=ASK_TIMEOUT_S)
    except (PeerUnavailable, KafkaError):
        return {}
    return {
        TopicPartition(topic.name, each.partition_index): each.offset
        for topic in answer.topics
        for each in topic.partitions
        if not each.error_code and each.offset >= 0
    }
