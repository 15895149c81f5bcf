"""Collects the metrics of the partitions of this broker, and those of the whole cluster.

What kafka_exporter tells about partitions is told by their leaders, and what it tells about brokers and topics by the
controller. So a sum over all brokers counts everything once.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.broker.node import Node
from ottla.cluster.image import BrokerImage, PartitionImage
from ottla.observability import catalogue
from ottla.observability.metrics import PAUSE_EVERY, FamilySeries, Labels, Series
from ottla.replication.partition import Partition


class LogRow(NamedTuple):
    labels: tuple[str, str]
    size: int
    start: int
    end: int
    segments: int


class LeaderRow(NamedTuple):
    """A partition that this broker leads."""

    labels: tuple[str, str]
    high_watermark: int
    start: int
    state: PartitionImage
    in_sync_needed: int


@dataclass
class PartitionCollector:
    """Counts over all partitions of this broker."""

    most: int
    late_ms: int
    """An open transaction is late if its producer was last active before this time."""
    partitions: int = 0
    leaders: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    reassigning: int = 0
    producer_ids: int = 0
    late_transactions: int = 0
    rows: list[LogRow] = field(default_factory=list)
    led: list[LeaderRow] = field(default_factory=list)

    def collect(self, partitions: Iterable[Partition]) -> Iterator[str]:
        for partition in list(partitions):
            self._count(partition)
            if self.partitions % PAUSE_EVERY == 0:
                yield ""

    def _count(self, partition: Partition) -> None:
        state = partition.state
        if state is None:
            return  # deleted since the collection began
        log = partition.log
        self.partitions += 1
        self.producer_ids += len(log.producers.producers)
        self.late_transactions += log.producers.has_transaction_since(self.late_ms)
        has_row = len(self.rows) < self.most
        labels = (partition.topic, str(partition.index)) if has_row else ("", "")
        if partition.is_leader:
            self.leaders += 1
            # As in Kafka, replicas that a reassignment adds are not missed.
            self.under_replicated += len(state.isr) < len(state.replicas) - len(state.adding)
            needed = min(partition.config.min_insync_replicas, len(state.replicas))
            self.under_min_isr += len(state.isr) < needed
            self.at_min_isr += len(state.isr) == needed
            self.reassigning += bool(state.adding or state.removing)
            if has_row:
                self.led.append(LeaderRow(labels, partition.high_watermark.value, log.log_start_offset, state, needed))
        if has_row:
            self.rows.append(LogRow(labels, log.size, log.log_start_offset, log.end_offset, len(log.segments)))

    def metrics(self) -> Iterator[FamilySeries]:
        yield catalogue.PARTITIONS, [((), self.partitions)]
        yield catalogue.LEADERS, [((), self.leaders)]
        yield catalogue.UNDER_REPLICATED, [((), self.under_replicated)]
        yield catalogue.UNDER_MIN_ISR, [((), self.under_min_isr)]
        yield catalogue.AT_MIN_ISR, [((), self.at_min_isr)]
        yield catalogue.REASSIGNING, [((), self.reassigning)]
        yield catalogue.PRODUCER_IDS, [((), self.producer_ids)]
        yield catalogue.LATE_TRANSACTIONS, [((), self.late_transactions)]
        yield catalogue.LOG_SIZE, ((row.labels, row.size) for row in self.rows)
        yield catalogue.LOG_START, ((row.labels, row.start) for row in self.rows)
        yield catalogue.LOG_END, ((row.labels, row.end) for row in self.rows)
        yield catalogue.LOG_SEGMENTS, ((row.labels, row.segments) for row in self.rows)
        yield catalogue.PARTITION_END, ((row.labels, row.high_watermark) for row in self.led)
        yield catalogue.PARTITION_START, ((row.labels, row.start) for row in self.led)
        yield catalogue.PARTITION_LEADER, self._read_led(lambda row: row.state.leader)
        yield catalogue.PARTITION_PREFERRED, self._read_led(lambda row: row.state.leader == row.state.replicas[0])
        yield catalogue.PARTITION_REPLICAS, self._read_led(lambda row: len(row.state.replicas))
        yield catalogue.PARTITION_ISR, self._read_led(lambda row: len(row.state.isr))
        yield (
            catalogue.PARTITION_UNDER_REPLICATED,
            self._read_led(lambda row: len(row.state.isr) < len(row.state.replicas)),
        )
        yield catalogue.PARTITION_UNDER_MIN_ISR, self._read_led(lambda row: len(row.state.isr) < row.in_sync_needed)
        yield catalogue.PARTITION_AT_MIN_ISR, self._read_led(lambda row: len(row.state.isr) == row.in_sync_needed)
        yield catalogue.PARTITIONS_LEFT_OUT, [((), self.partitions - len(self.rows))]

    def _read_led(self, read: Callable[[LeaderRow], int]) -> Series:
        return ((row.labels, int(read(row))) for row in self.led)


@dataclass
class ClusterCollector:
    """Counts over the whole cluster. They are 0 on a broker that is not the controller."""

    most: int
    address: str
    """Where this broker listens."""
    is_controller: bool = False
    brokers: tuple[BrokerImage, ...] = ()
    fenced: int = 0
    topics: int = 0
    partitions: int = 0
    leaderless: int = 0
    imbalance: int = 0
    rows: list[tuple[Labels, int]] = field(default_factory=list)
    """Topics and the number of their partitions."""

    def collect(self, node: Node) -> Iterator[str]:
        image = node.image
        self.is_controller = image.controller is not None and image.controller.broker_id == node.broker_id
        if not self.is_controller:
            return
        self.brokers = image.alive_brokers()
        self.fenced = len(image.brokers) - len(self.brokers)
        for topic in image.topics_by_name.values():
            self.topics += 1
            self.partitions += len(topic.partitions)
            if len(self.rows) < self.most:
                self.rows.append(((topic.name,), len(topic.partitions)))
            for partition in topic.partitions:
                self.leaderless += partition.leader < 0
                self.imbalance += partition.leader != partition.replicas[0]
            if self.topics % PAUSE_EVERY == 0:
                yield ""

    def metrics(self) -> Iterator[FamilySeries]:
        yield catalogue.ACTIVE_CONTROLLER, [((), int(self.is_controller))]
        yield catalogue.ACTIVE_BROKERS, [((), len(self.brokers))]
        yield catalogue.FENCED_BROKERS, [((), self.fenced)]
        yield catalogue.CLUSTER_TOPICS, [((), self.topics)]
        yield catalogue.CLUSTER_PARTITIONS, [((), self.partitions)]
        yield catalogue.OFFLINE_PARTITIONS, [((), self.leaderless)]
        yield catalogue.PREFERRED_IMBALANCE, [((), self.imbalance)]
        if self.is_controller:
            yield catalogue.BROKERS, [((), len(self.brokers))]
            yield catalogue.BROKER_INFO, [((str(each.id), self._find_address(each)), 1) for each in self.brokers]
            yield catalogue.TOPIC_PARTITIONS, self.rows

    def _find_address(self, broker: BrokerImage) -> str:
        """The address of the first listener. Only a broker that is alone may have registered none: this one."""
        return next((f"{each.host}:{each.port}" for each in broker.endpoints if each.port), self.address)
