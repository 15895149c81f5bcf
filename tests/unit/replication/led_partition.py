"""A partition that this broker leads, with followers in a cluster that the test makes up."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from ottla.cluster.image import PartitionImage
from ottla.config import BrokerConfig, TopicConfig
from ottla.records import batch
from ottla.replication.in_sync import IsrProposer
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.storage.directories import DataDirectory
from ottla.storage.log import Appended, LogSettings
from ottla.storage.opening import create_log
from tests.simulation.disk import SimulatedDisk

LEADER, SECOND, THIRD = 1, 2, 3
REPLICAS = (LEADER, SECOND, THIRD)
EPOCHS = {LEADER: 10, SECOND: 20, THIRD: 30}
LEADER_EPOCH = 4
TOPIC, TOPIC_ID = "orders", b"o" * 16
NOW_MS = 1_700_000_000_000


class FakeProposer:
    """Takes proposals, and knows which brokers may join."""

    def __init__(self) -> None:
        self.lag_s_max = 30.0
        self.proposed: list[Partition] = []
        self.epochs = dict(EPOCHS)
        self.now = asyncio.get_running_loop().time

    def may_join(self, broker_id: int, broker_epoch: int) -> bool:
        return self.epochs.get(broker_id) == broker_epoch

    def add(self, partition: Partition) -> None:
        self.proposed.append(partition)

    def note_incomplete(self, partition: Partition) -> None:
        pass

    def note_full_disk(self, topic_id: bytes, index: int) -> None:
        pass


def run_at_once(function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_result(function(*arguments))
    return future


def make_state(isr: tuple[int, ...] = REPLICAS, leader: int = LEADER, **fields: Any) -> PartitionImage:
    known: dict[str, Any] = {"replicas": REPLICAS, "isr": isr, "leader": leader, "leader_epoch": LEADER_EPOCH}
    return PartitionImage(**known | fields)


def lead(
    proposer: IsrProposer,
    state: PartitionImage | None = None,
    index: int = 0,
    topic_id: bytes = TOPIC_ID,
    **config: str,
) -> Partition:
    disk = SimulatedDisk(Random(1))
    disk.make_directory("/data")
    log = create_log(disk, f"/data/{TOPIC}-{index}", topic_id, LogSettings(), NOW_MS)
    settings = TopicConfig.of({name.replace("_", "."): value for name, value in config.items()}, BrokerConfig.of({}))
    partition = Partition(TOPIC, topic_id, index, log, settings, LEADER, run_at_once, 0, isr_proposer=proposer)
    partition.become(state or make_state())
    return partition


def keep(*partitions: Partition) -> Replicas:
    """The partitions as a broker keeps them."""
    disk = SimulatedDisk(Random(1))
    disk.make_directory("/data")
    directory = DataDirectory.open(disk, "/data")
    replicas = Replicas([directory])
    for partition in partitions:
        replicas.add(partition, directory)
    return replicas


def produce(partition: Partition, *values: bytes, acks: int = -1) -> Appended:
    data = memoryview(batch.encode([(None, value, (), NOW_MS) for value in values]))
    return partition.append(data, batch.check_client_batch(data), NOW_MS, acks)
