"""Collects the metrics of a broker at the moment they are requested.

With many topics this takes longer than clients should have to wait, so `write_metrics` is a generator: it yields the
text in pieces, and other work may run between two of them. The number of series of single topics and partitions is
limited (metrics.topics.max, metrics.partitions.max; the oldest have theirs). Totals always cover everything.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from ottla import __version__
from ottla.broker.node import Node
from ottla.errors import ErrorCode
from ottla.observability import catalogue
from ottla.observability.client_telemetry import read_telemetry
from ottla.observability.coordinators import CoordinatorCollector
from ottla.observability.metrics import (
    PAUSE_EVERY,
    FamilySeries,
    Labels,
    RequestMeters,
    Series,
    TopicMeter,
    TopicMeters,
    format_family,
)
from ottla.observability.process import read_process
from ottla.observability.quotas import read_quotas
from ottla.replication.assembly import Replication
from ottla.replication.compaction import Compaction
from ottla.replication.partition import Partition
from ottla.server import Server

PIECE_LINES = 200
LATENESS_MS = 5 * 60_000
"""How long after the longest possible time-out an open transaction counts as hanging."""

RUNNING, STOPPING = 3, 6
"""Kafka's numbers for the state of a broker."""


def write_metrics(node: Node, server: Server, *, stopping: bool) -> Iterator[str]:
    """All metrics as text, in pieces. An empty piece is only a pause."""
    settings = node.config
    topics = TopicCollector(settings.metrics_topics_max)
    yield from topics.collect(node.replicas.meters)
    late_ms = node.clock.now_ms() - settings.transaction_max_timeout_ms - LATENESS_MS
    partitions = PartitionCollector(settings.metrics_partitions_max, late_ms)
    yield from partitions.collect(node.replicas)
    coordinators = CoordinatorCollector(node)
    yield from coordinators.collect()
    cluster = ClusterCollector()
    yield from cluster.collect(node)
    metrics: Iterable[Iterator[FamilySeries]] = (
        topics.metrics(),
        read_requests(node.request_meters),
        read_server(server, [listener.name for listener in settings.endpoints.bound]),
        read_quotas(node.quotas, settings.metrics_quotas_max),
        read_telemetry(node.telemetry),
        partitions.metrics(),
        read_broker(node, stopping),
        read_replication(node.replication, settings.metrics_partitions_max),
        coordinators.metrics(),
        read_compaction(node.compaction, node.clock.now_ms()),
        cluster.metrics(),
        ((family, [((), value)]) for family, value in read_process()),
    )
    lines = (line for part in metrics for family, series in part for line in format_family(family, series))
    while piece := "".join(islice(lines, PIECE_LINES)):
        yield piece


@dataclass
class TopicCollector:
    """Every counter as a total, without a topic label, and for each topic up to the limit."""

    most: int
    left_out: int = 0
    total: TopicMeter = field(default_factory=TopicMeter)
    rows: list[tuple[Labels, TopicMeter]] = field(default_factory=list)

    def collect(self, meters: TopicMeters) -> Iterator[str]:
        self.total.add(meters.elsewhere)  # first, or a topic that is deleted during a pause would count twice
        found = list(meters.by_topic.items())
        self.left_out = max(0, len(found) - self.most)
        self.rows = [((topic,), meter) for topic, meter in found[: self.most]]
        for number, (_, meter) in enumerate(found):
            self.total.add(meter)
            if number % PAUSE_EVERY == PAUSE_EVERY - 1:
                yield ""

    def metrics(self) -> Iterator[FamilySeries]:
        for family, attribute in _TOPIC_NUMBERS:
            total = (("",), getattr(self.total, attribute))
            yield family, [total, *((labels, getattr(meter, attribute)) for labels, meter in self.rows)]
        yield catalogue.TOPICS_LEFT_OUT, [((), self.left_out)]


_TOPIC_NUMBERS = (
    (catalogue.MESSAGES_IN, "messages_in"),
    (catalogue.BYTES_IN, "bytes_in"),
    (catalogue.BYTES_OUT, "bytes_out"),
    (catalogue.PRODUCES, "produces"),
    (catalogue.FETCHES, "fetches"),
    (catalogue.FAILED_PRODUCES, "failed_produces"),
    (catalogue.FAILED_FETCHES, "failed_fetches"),
)


def read_requests(meters: RequestMeters) -> Iterator[FamilySeries]:
    """Metrics of the APIs that were used."""
    used = [meter for meter in meters.by_key.values() if any(map(any, meter.by_version))]
    yield (
        catalogue.REQUESTS,
        [
            ((meter.request, str(version)), sum(buckets))
            for meter in used
            for version, buckets in enumerate(meter.by_version)
            if any(buckets)
        ],
    )
    yield catalogue.REQUEST_TIME, [((meter.request,), meter.durations()) for meter in used]
    yield (
        catalogue.REQUEST_ERRORS,
        [
            ((meters.by_key[key].request, ErrorCode(code).name), count)
            for (key, code), count in sorted(meters.errors.items())
        ],
    )
    yield catalogue.MALFORMED, [((), meters.malformed)]
    yield catalogue.UNSUPPORTED, [((), meters.unsupported)]


def read_server(server: Server, listeners: Iterable[str]) -> Iterator[FamilySeries]:
    traffic = server.traffic
    by_listener = server.connections_by_listener()
    yield catalogue.CONNECTIONS, [((listener,), by_listener[listener]) for listener in listeners]
    yield catalogue.CONNECTIONS_MADE, [((), traffic.accepted)]
    yield catalogue.CONNECTIONS_REFUSED, [((), traffic.refused)]
    yield catalogue.SOCKET_BYTES_IN, [((), traffic.bytes_in)]
    yield catalogue.SOCKET_BYTES_OUT, [((), traffic.bytes_out)]
    yield catalogue.REQUEST_MEMORY, [((), traffic.queued)]
    yield catalogue.ANSWER_MEMORY, [((), traffic.unsent_memory)]


def read_replication(replication: Replication, most: int) -> Iterator[FamilySeries]:
    """What this broker does as a leader with followers, and as a follower. All 0 on a broker alone."""
    proposals, fetchers = replication.proposals, replication.fetchers
    yield catalogue.ISR_SHRINKS, [((), 0 if proposals is None else proposals.shrinks)]
    yield catalogue.ISR_EXPANDS, [((), 0 if proposals is None else proposals.expansions)]
    yield catalogue.FAILED_ISR_UPDATES, [((), 0 if proposals is None else proposals.failures)]
    yield catalogue.REPLICATION_BYTES_IN, [((), 0 if fetchers is None else fetchers.bytes_in)]
    yield catalogue.MAX_LAG, [((), 0 if fetchers is None else fetchers.max_lag)]
    yield catalogue.FAILED_FETCHES_OF_REPLICAS, [((), 0 if fetchers is None else fetchers.failed_count)]
    yield catalogue.FOLLOWED, [((), 0 if fetchers is None else fetchers.partition_count)]
    lags = () if fetchers is None else islice(fetchers.lags(), most)
    yield catalogue.REPLICA_LAG, [((lag.partition.topic, str(lag.partition.index)), lag.records) for lag in lags]


def read_broker(node: Node, stopping: bool) -> Iterator[FamilySeries]:
    yield catalogue.FETCH_SESSIONS, [((), len(node.fetch_sessions))]
    yield catalogue.BROKER_STATE, [((), STOPPING if stopping else RUNNING)]
    yield catalogue.METADATA_VERSION, [((), node.image.version)]
    yield catalogue.OFFLINE_REPLICAS, [((), len(node.replicas.offline))]
    failed = [((directory.path,), int(directory.failure is not None)) for directory in node.replicas.directories]
    yield catalogue.OFFLINE_DIRECTORIES, [((), sum(value for _, value in failed))]
    yield catalogue.DIRECTORY_OFFLINE, failed
    yield catalogue.BUILD, [((__version__, sys.version.split()[0]), 1)]


def read_compaction(compaction: Compaction, now_ms: int) -> Iterator[FamilySeries]:
    meter = compaction.meter
    uncleanable = [((directory.path,), found) for directory, found in compaction.uncleanable().items()]
    yield catalogue.UNCLEANABLE_PARTITIONS, [(labels, len(found)) for labels, found in uncleanable]
    yield (
        catalogue.UNCLEANABLE_BYTES,
        [(labels, sum(compaction.dirty_bytes(partition) for partition in found)) for labels, found in uncleanable],
    )
    yield catalogue.MAX_DIRTY_PERCENT, [((), int(meter.dirtiest * 100))]
    yield catalogue.SINCE_LAST_CLEANING, [((), max(now_ms - meter.looked_at_ms, 0))]
    yield catalogue.MAP_USED_PERCENT, [((), int(meter.last_map_used * 100))]
    yield catalogue.RECOPY_PERCENT, [((), int(meter.last_recopied * 100))]
    yield catalogue.CLEAN_TIME, [((), round(meter.last_seconds, 3))]
    yield catalogue.COMPACTION_DELAY, [((), meter.overdue_ms // 1000)]
    yield catalogue.COMPACTIONS, [((), meter.runs)]
    yield catalogue.COMPACTION_READ, [((), meter.bytes_read)]
    yield catalogue.COMPACTION_WRITTEN, [((), meter.bytes_written)]
    yield catalogue.COMPACTION_RECORDS_READ, [((), meter.records_read)]
    yield catalogue.COMPACTION_RECORDS_WRITTEN, [((), meter.records_written)]


LogRow = tuple[tuple[str, str], int, int, int, int]
"""Topic and partition; size, log start, log end, segments."""


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
        if partition.is_leader:
            self.leaders += 1
            self.under_replicated += len(state.isr) < len(state.replicas)
            needed = min(partition.config.min_insync_replicas, len(state.replicas))
            self.under_min_isr += len(state.isr) < needed
            self.at_min_isr += len(state.isr) == needed
            self.reassigning += bool(state.adding or state.removing)
        if len(self.rows) < self.most:
            labels = (partition.topic, str(partition.index))
            self.rows.append((labels, log.size, log.log_start_offset, log.end_offset, len(log.segments)))

    def metrics(self) -> Iterator[FamilySeries]:
        yield catalogue.PARTITIONS, [((), self.partitions)]
        yield catalogue.LEADERS, [((), self.leaders)]
        yield catalogue.UNDER_REPLICATED, [((), self.under_replicated)]
        yield catalogue.UNDER_MIN_ISR, [((), self.under_min_isr)]
        yield catalogue.AT_MIN_ISR, [((), self.at_min_isr)]
        yield catalogue.REASSIGNING, [((), self.reassigning)]
        yield catalogue.PRODUCER_IDS, [((), self.producer_ids)]
        yield catalogue.LATE_TRANSACTIONS, [((), self.late_transactions)]
        yield catalogue.LOG_SIZE, self._column(lambda row: row[1])
        yield catalogue.LOG_START, self._column(lambda row: row[2])
        yield catalogue.LOG_END, self._column(lambda row: row[3])
        yield catalogue.LOG_SEGMENTS, self._column(lambda row: row[4])
        yield catalogue.PARTITIONS_LEFT_OUT, [((), self.partitions - len(self.rows))]

    def _column(self, value: Callable[[LogRow], int]) -> Series:
        return ((row[0], value(row)) for row in self.rows)


@dataclass
class ClusterCollector:
    """Counts over the whole cluster. They are 0 on a broker that is not the controller."""

    is_controller: bool = False
    brokers: int = 0
    fenced: int = 0
    topics: int = 0
    partitions: int = 0
    leaderless: int = 0
    imbalance: int = 0

    def collect(self, node: Node) -> Iterator[str]:
        image = node.image
        self.is_controller = image.controller is not None and image.controller.broker_id == node.broker_id
        if not self.is_controller:
            return
        self.brokers = len(image.alive_brokers())
        self.fenced = len(image.brokers) - self.brokers
        for topic in image.topics_by_name.values():
            self.topics += 1
            self.partitions += len(topic.partitions)
            for partition in topic.partitions:
                self.leaderless += partition.leader < 0
                self.imbalance += 0 <= partition.leader != partition.replicas[0]
            if self.topics % PAUSE_EVERY == 0:
                yield ""

    def metrics(self) -> Iterator[FamilySeries]:
        yield catalogue.ACTIVE_CONTROLLER, [((), int(self.is_controller))]
        yield catalogue.ACTIVE_BROKERS, [((), self.brokers)]
        yield catalogue.FENCED_BROKERS, [((), self.fenced)]
        yield catalogue.CLUSTER_TOPICS, [((), self.topics)]
        yield catalogue.CLUSTER_PARTITIONS, [((), self.partitions)]
        yield catalogue.OFFLINE_PARTITIONS, [((), self.leaderless)]
        yield catalogue.PREFERRED_IMBALANCE, [((), self.imbalance)]
