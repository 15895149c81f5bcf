"""Brokers that do nothing but replicate: real logs, partitions, servers and fetchers, on simulated disks and network.

The test is the metadata: it says who leads which partition, and which brokers learn it.
"""

import asyncio
from collections.abc import Iterable, Mapping
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from ottla.broker.dispatch import Dispatch
from ottla.broker.handler_table import HandlerTable
from ottla.broker.node import Node
from ottla.cluster.changes import Endpoint
from ottla.cluster.image import PartitionImage
from ottla.config import BrokerConfig, TopicConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.observability.metrics import RequestMeters
from ottla.quotas.quotas import Quotas
from ottla.records import batch
from ottla.replication.checkpoints import Checkpoints
from ottla.replication.directory_failures import DirectoryFailures
from ottla.replication.fetch_sessions import FetchSessions
from ottla.replication.fetchers import Fetchers
from ottla.replication.log_starts import LogStarts
from ottla.replication.partition import Partition
from ottla.replication.peers import Peers
from ottla.replication.removals import Removals
from ottla.replication.replicas import Replicas
from ottla.replication.throttles import ReplicationThrottle
from ottla.server import Server, ServerSettings
from ottla.storage.directories import DataDirectory
from ottla.storage.log import Appended, Log, LogSettings
from ottla.storage.opening import create_log, open_log
from tests.simulation.disk import SimulatedDisk
from tests.simulation.network import SimulatedNetwork
from tests.simulation.process import MachineClock, ProcessThreads
from tests.unit.storage.cleaner.compactions import Pair, pairs

TOPIC, TOPIC_ID = "orders", b"o" * 16
LISTENER = "INTERNAL"
PORT = 9092


class FakeImage:
    """As much of the metadata as replication looks at."""

    def __init__(self, epochs: dict[int, int]) -> None:
        self.version = 1
        self.features: dict[str, int] = {}
        self.derived: dict[Any, Any] = {}
        self._brokers = {
            broker_id: SimpleNamespace(
                id=broker_id,
                epoch=epoch,
                endpoint=lambda name, broker_id=broker_id: Endpoint(name, f"b{broker_id}", PORT, "PLAINTEXT"),
            )
            for broker_id, epoch in epochs.items()
        }

    def broker(self, broker_id: int) -> Any:
        return self._brokers.get(broker_id)

    def alive_brokers(self) -> list[Any]:
        return list(self._brokers.values())

    def topic(self, name: str) -> None:
        return None

    def topic_by_id(self, topic_id: bytes) -> None:
        return None


class SmallBroker:
    """One broker: its partitions, the server that its followers fetch from, and its own fetchers."""

    def __init__(self, cluster: "SmallCluster", broker_id: int, **config: str) -> None:
        self.id = broker_id
        self.name = f"b{broker_id}"
        self.cluster = cluster
        self.settings = {name.replace("_", "."): value for name, value in config.items()}
        self.disk = SimulatedDisk(Random(broker_id))
        self.disk.make_directory("/data")
        self.start()

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        cluster = self.cluster
        self.config = BrokerConfig.of({"node.id": str(self.id), **self.settings})
        self.threads = ProcessThreads(loop, Random(self.id))
        self.directory = DataDirectory.open(self.disk, "/data")
        self.replicas = Replicas([self.directory])
        self.replicas.image = cast(Any, cluster.image)
        self.clock = MachineClock(loop)
        self.peers = Peers(
            self.id, lambda: cast(Any, cluster.image), cluster.network.connector(self.name), LISTENER, Random(self.id)
        )
        self.throttle = ReplicationThrottle(lambda: self.config.follower_replication_throttled_rate, loop.time)
        self.leader_throttle = ReplicationThrottle(lambda: self.config.leader_replication_throttled_rate, loop.time)
        failures = DirectoryFailures(self.replicas, self.threads)
        checkpoints = Checkpoints(self.replicas, failures, self.threads)
        self.fetchers = Fetchers(
            self.id,
            lambda: cluster.epochs[self.id],
            self.peers,
            self.clock,
            self.threads,
            lambda: self.config,
            self.throttle,
            checkpoints,
            LogStarts(self.replicas, checkpoints, Removals(self.threads), failures),
        )
        self.server = Server(self._make_dispatch(), ServerSettings(), self.threads)
        cluster.network.listen(self.name, PORT, self.server.protocol_factory(LISTENER))
        self.peers.apply(cast(Any, cluster.image))

    def _make_dispatch(self) -> Dispatch:
        table = {key: handler for key, handler in HandlerTable().items() if key in (1, 2, 18)}
        node = SimpleNamespace(
            broker_id=self.id,
            config=self.config,
            clock=self.clock,
            image=self.cluster.image,
            replicas=self.replicas,
            replication=SimpleNamespace(leader_throttle=self.leader_throttle),
            fetch_sessions=FetchSessions(100, 120.0, Random(self.id)),
            request_meters=RequestMeters(),
            apis={key: handler.versions for key, handler in table.items()},
            faults=None,
            quotas=Quotas(self.config, lambda: 0.0),
            authorizer=None,
        )
        return Dispatch(cast(Node, node), table)

    def create(self, index: int, config: TopicConfig, settings: LogSettings) -> Partition:
        log = create_log(self.disk, f"/data/{TOPIC}-{index}", TOPIC_ID, settings, self.clock.now_ms())
        partition = Partition(TOPIC, TOPIC_ID, index, log, config, self.id, self.threads, 0)
        self.replicas.add(partition, self.directory)
        return partition

    def partition(self, index: int = 0) -> Partition:
        return self.replicas.get(TOPIC, index)

    def log(self, index: int = 0) -> Log:
        return self.partition(index).log

    def learn(self, index: int, state: PartitionImage) -> None:
        """Learn from the metadata who leads the partition."""
        partition = self.partition(index)
        partition.become(state)
        self.fetchers.follow(partition)

    def produce(self, *values: bytes, index: int = 0) -> Appended:
        """Append one batch as the leader."""
        data = memoryview(batch.encode([(None, value, (), self.clock.now_ms()) for value in values]))
        return self.partition(index).append(data, batch.check_client_batch(data), self.clock.now_ms(), 1)

    def die(self, *, lose_unsynced: bool = False) -> None:
        """End the process with kill -9, or by a power cut that takes what is not on the disk."""
        self.threads.closed = True
        self.fetchers.abort()
        self.peers.close()
        for partition in self.replicas:
            partition.retire(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self.cluster.network.crash(self.name)
        self.server.abort()
        self.disk.crash(lose_unsynced)

    def restart(self, *, high_watermark: int = 0, log_starts: Mapping[int, int] | None = None) -> None:
        """Start again with the logs that are on the disk, all of them with one high watermark in the checkpoint.

        `log_starts`: the log starts in the checkpoint, by partition.
        """
        kept = [(partition.index, partition.config, partition.log.settings) for partition in self.replicas]
        self.start()
        for index, config, settings in kept:
            path = f"/data/{TOPIC}-{index}"
            log = open_log(
                self.disk,
                path,
                settings,
                clean=False,
                recovery_point=0,
                log_start_offset=(log_starts or {}).get(index, 0),
                now_ms=self.clock.now_ms(),
            )
            partition = Partition(TOPIC, TOPIC_ID, index, log, config, self.id, self.threads, high_watermark)
            self.replicas.add(partition, self.directory)


class SmallCluster:
    def __init__(
        self,
        *broker_ids: int,
        seed: int = 1,
        partitions: int = 1,
        topic: dict[str, str] | None = None,
        settings: LogSettings | None = None,
        **config: str,
    ) -> None:
        self.network = SimulatedNetwork(Random(seed))
        self.epochs = {broker_id: 10 * broker_id for broker_id in broker_ids}
        self.image = FakeImage(self.epochs)
        self.states: dict[int, PartitionImage] = {}
        self.brokers = {broker_id: SmallBroker(self, broker_id, **config) for broker_id in broker_ids}
        for broker in self.brokers.values():
            for index in range(partitions):
                broker.create(index, TopicConfig.of(topic or {}, broker.config), settings or LogSettings())

    def __getitem__(self, broker_id: int) -> SmallBroker:
        return self.brokers[broker_id]

    def elect(
        self,
        leader: int,
        *,
        index: int = 0,
        isr: Iterable[int] | None = None,
        epoch: int | None = None,
        learners: Iterable[int] | None = None,
    ) -> PartitionImage:
        """Make `leader` the leader in the next epoch. All brokers learn it, or only `learners`."""
        known = self.states.get(index)
        epoch = epoch if epoch is not None else 0 if known is None else known.leader_epoch + 1
        state = PartitionImage(
            tuple(self.brokers),
            tuple(isr or self.brokers),
            leader,
            epoch,
            0 if known is None else known.partition_epoch + 1,
        )
        self.states[index] = state
        for broker_id in self.brokers if learners is None else learners:
            self.brokers[broker_id].learn(index, state)
        return state

    async def wait_for(self, condition: Any, timeout_s: float = 60.0) -> None:
        """Let virtual time pass until the condition holds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while not condition():
            assert loop.time() < deadline, "the condition does not become true"
            await asyncio.sleep(0.001)

    async def wait_for_copies(self, index: int = 0) -> None:
        """Wait until every broker's log of the partition ends where the leader's does."""
        leader = self.states[index].leader
        await self.wait_for(
            lambda: all(
                broker.log(index).end_offset == self.brokers[leader].log(index).end_offset
                for broker in self.brokers.values()
            )
        )

    async def close(self) -> None:
        for broker in self.brokers.values():
            await broker.fetchers.close()
            broker.peers.close()
            broker.server.abort()
        await asyncio.sleep(0.1)


def put(broker: SmallBroker, *records: Pair, **options: Any) -> None:
    """Append one batch of keys and values as the leader."""
    now_ms = broker.clock.now_ms()
    data = memoryview(pairs(*records, timestamp=now_ms, **options))
    broker.partition().append(data, batch.check_client_batch(data), now_ms, 1)


def read(log: Log) -> list[tuple[int, int, bytes | None]]:
    """Offset, leader epoch and value of every record from the log start on."""
    found = []
    offset = log.log_start_offset
    while offset < log.end_offset:
        got = log.read(offset, 1 << 20, up_to=log.end_offset, at_least_one=True)
        assert got is not None
        data = got.slice.read()
        for position, header in batch.headers(data):
            for record in batch.decode(data, position):
                if record.offset >= log.log_start_offset:  # its batch may begin before that
                    found.append((record.offset, header.leader_epoch, record.value))
        offset = got.next_offset
    return found
