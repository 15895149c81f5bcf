"""Collects the metrics of a broker at the moment they are requested.

With many topics this takes longer than clients should have to wait, so `write_metrics` is a generator: it yields the
text in pieces, and other work may run between two of them. The number of series of single topics and partitions is
limited (metrics.topics.max, metrics.partitions.max; the oldest have theirs). Totals always cover everything.
"""

import sys
from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ottla import __version__
from ottla.broker.node import Node
from ottla.errors import ErrorCode
from ottla.observability import catalogue
from ottla.observability.client_telemetry import read_telemetry
from ottla.observability.coordinators import CoordinatorCollector
from ottla.observability.group_lag import GroupLagCollector
from ottla.observability.loop_watch import LoopWatch
from ottla.observability.metrics import (
    PAUSE_EVERY,
    FamilySeries,
    Labels,
    RequestMeters,
    TopicMeter,
    TopicMeters,
    format_family,
)
from ottla.observability.partitions import ClusterCollector, PartitionCollector
from ottla.observability.process import read_process
from ottla.observability.quotas import read_quotas
from ottla.replication.assembly import Replication
from ottla.replication.compaction import Compaction
from ottla.replication.replicas import Replicas
from ottla.server import Server

PIECE_LINES = 200
LATENESS_MS = 5 * 60_000
"""How long after the longest possible time-out an open transaction counts as hanging."""

RUNNING, STOPPING = 3, 6
"""Kafka's numbers for the state of a broker."""


def write_metrics(
    node: Node, server: Server, watch: LoopWatch, address: str, *, stopping: bool
) -> Iterator[str | Coroutine[Any, Any, None]]:
    """All metrics as text, in pieces. An empty piece is only a pause, and a coroutine has to be waited for.

    `address`: where this broker listens.
    """
    settings = node.config
    topics = TopicCollector(settings.metrics_topics_max)
    yield from topics.collect(node.replicas.meters)
    late_ms = node.clock.now_ms() - settings.transaction_max_timeout_ms - LATENESS_MS
    partitions = PartitionCollector(settings.metrics_partitions_max, late_ms)
    yield from partitions.collect(node.replicas)
    coordinators = CoordinatorCollector(node)
    yield from coordinators.collect()
    lag = GroupLagCollector(node)
    yield from lag.collect()
    cluster = ClusterCollector(settings.metrics_topics_max, address)
    yield from cluster.collect(node)
    metrics: Iterable[Iterator[FamilySeries]] = (
        topics.metrics(),
        read_requests(node.request_meters),
        read_server(server, [listener.name for listener in settings.endpoints.bound]),
        read_quotas(node.quotas, settings.metrics_quotas_max),
        read_telemetry(node.telemetry),
        partitions.metrics(),
        read_broker(node, stopping),
        read_directories(node.replicas),
        read_loop(watch),
        read_replication(node.replication, settings.metrics_partitions_max),
        read_throttles(node.replication),
        coordinators.metrics(),
        lag.metrics(),
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
        yield catalogue.ELECTIONS, [((), self.total.elections)]
        yield catalogue.ELIGIBLE_ELECTIONS, [((), self.total.eligible_elections)]
        yield catalogue.UNCLEAN_ELECTIONS, [((), self.total.unclean_elections)]


_TOPIC_NUMBERS = (
    (catalogue.MESSAGES_IN, "messages_in"),
    (catalogue.BYTES_IN, "bytes_in"),
    (catalogue.BYTES_OUT, "bytes_out"),
    (catalogue.BYTES_REJECTED, "bytes_rejected"),
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
    yield catalogue.REQUEST_QUEUE_TIME, [((meter.request,), meter.queue_times()) for meter in used]
    yield catalogue.REQUEST_LOCAL_TIME, [((meter.request,), meter.local_times()) for meter in used]
    yield catalogue.REQUEST_REMOTE_TIME, [((meter.request,), meter.remote_times()) for meter in used]
    delayed = (meter for meter in meters.by_key.values() if meter.request in ("Produce", "Fetch"))
    yield catalogue.PURGATORY, [((meter.request,), meter.waits.waiting) for meter in delayed]
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
    counted = [((listener,), by_listener[listener]) for listener in listeners]
    yield catalogue.CONNECTIONS, counted
    yield catalogue.CONNECTIONS_OF_STRIMZI, counted
    yield catalogue.CONNECTIONS_MADE, [((), traffic.accepted)]
    yield catalogue.CONNECTIONS_REFUSED, [((), traffic.refused)]
    yield catalogue.SOCKET_BYTES_IN, [((), traffic.bytes_in)]
    yield catalogue.SOCKET_BYTES_OUT, [((), traffic.bytes_out)]
    yield catalogue.REQUEST_MEMORY, [((), traffic.queued)]
    yield catalogue.ANSWER_MEMORY, [((), traffic.unsent_memory)]
    logins = server.logins_by_listener()
    for family, attribute in _LOGIN_NUMBERS:
        yield family, [((listener,), getattr(meter, attribute)) for listener, meter in logins.items()]


_LOGIN_NUMBERS = (
    (catalogue.LOGINS, "successful"),
    (catalogue.FAILED_LOGINS, "failed"),
    (catalogue.LOGINS_AGAIN, "successful_again"),
    (catalogue.FAILED_LOGINS_AGAIN, "failed_again"),
    (catalogue.EXPIRED_LOGINS, "expired"),
)


def read_loop(watch: LoopWatch) -> Iterator[FamilySeries]:
    idle = [((), round(watch.idle_share, 4))]
    yield catalogue.HANDLER_IDLE, idle
    yield catalogue.NETWORK_IDLE, idle
    yield catalogue.LOOP_DELAY, [((), watch.delays.durations())]


def read_replication(replication: Replication, most: int) -> Iterator[FamilySeries]:
    """What this broker does as a leader with followers, and as a follower. All 0 on a broker alone."""
    proposals, fetchers = replication.proposals, replication.fetchers
    yield catalogue.ISR_SHRINKS, [((), 0 if proposals is None else proposals.shrinks)]
    yield catalogue.ISR_EXPANDS, [((), 0 if proposals is None else proposals.expansions)]
    yield catalogue.FAILED_ISR_UPDATES, [((), 0 if proposals is None else proposals.failures)]
    yield catalogue.REPLICATION_BYTES_IN, [((), 0 if fetchers is None else fetchers.bytes_in)]
    yield catalogue.REPLICATION_BYTES_OUT, [((), replication.replicas.meters.replication_bytes_out)]
    yield catalogue.REASSIGNMENT_BYTES_IN, [((), 0 if fetchers is None else fetchers.reassignment_bytes_in)]
    yield catalogue.REASSIGNMENT_BYTES_OUT, [((), replication.replicas.meters.reassignment_bytes_out)]
    yield catalogue.MAX_LAG, [((), 0 if fetchers is None else fetchers.max_lag)]
    yield catalogue.FAILED_FETCHES_OF_REPLICAS, [((), 0 if fetchers is None else fetchers.failed_count)]
    yield catalogue.FOLLOWED, [((), 0 if fetchers is None else fetchers.partition_count)]
    lags = () if fetchers is None else islice(fetchers.lags(), most)
    yield catalogue.REPLICA_LAG, [((lag.partition.topic, str(lag.partition.index)), lag.records) for lag in lags]


def read_throttles(replication: Replication) -> Iterator[FamilySeries]:
    fetchers = replication.fetchers
    counts = {
        "LeaderReplication": replication.leader_throttle.bytes,
        "FollowerReplication": 0 if fetchers is None else fetchers.throttle.bytes,
        "AlterLogDirsReplication": replication.moves.throttle.bytes,
    }
    yield catalogue.REPLICATION_THROTTLED, [((throttle,), count) for throttle, count in counts.items()]


def read_broker(node: Node, stopping: bool) -> Iterator[FamilySeries]:
    yield catalogue.FETCH_SESSIONS, [((), len(node.fetch_sessions))]
    yield catalogue.BROKER_STATE, [((), STOPPING if stopping else RUNNING)]
    yield catalogue.METADATA_VERSION, [((), node.image.version)]
    yield catalogue.STORE_CONNECTED, [((), int(node.is_connected()))]
    yield catalogue.STORE_DISCONNECTS, [((), node.store_meter.disconnects)]
    yield catalogue.STORE_EXPIRATIONS, [((), node.store_meter.expirations)]
    yield catalogue.ELECTION_TIME, [((), node.metadata.elections.durations())]
    yield catalogue.OFFLINE_REPLICAS, [((), len(node.replicas.offline))]
    failed = [((directory.path,), int(directory.failure is not None)) for directory in node.replicas.directories]
    yield catalogue.OFFLINE_DIRECTORIES, [((), sum(value for _, value in failed))]
    yield catalogue.DIRECTORY_OFFLINE, failed
    is_cordoned = node.config.is_cordoned
    cordoned = [((directory.path,), int(is_cordoned(directory.path))) for directory in node.replicas.directories]
    yield catalogue.CORDONED_DIRECTORIES, [((), sum(value for _, value in cordoned))]
    yield catalogue.DIRECTORY_CORDONED, cordoned
    yield catalogue.BUILD, [((__version__, sys.version.split()[0]), 1)]


def read_directories(replicas: Replicas) -> Iterator[FamilySeries]:
    """The space on the volumes of the data directories that are in service."""
    spaces = []
    for directory in replicas.directories_in_service():
        try:
            spaces.append(((directory.path,), directory.space()))
        except OSError:
            continue  # it has just failed, and a write will find out
    yield catalogue.DIRECTORY_FREE, [(labels, space.usable) for labels, space in spaces]
    yield catalogue.DIRECTORY_TOTAL, [(labels, space.total) for labels, space in spaces]


def read_compaction(compaction: Compaction, now_ms: int) -> Iterator[FamilySeries]:
    meter = compaction.meter
    uncleanable = [((directory.path,), found) for directory, found in compaction.list_uncleanable().items()]
    yield catalogue.UNCLEANABLE_PARTITIONS, [(labels, len(found)) for labels, found in uncleanable]
    yield (
        catalogue.UNCLEANABLE_BYTES,
        [
            (labels, sum(compaction.measure_dirty_bytes(partition) for partition in found))
            for labels, found in uncleanable
        ],
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
