"""A whole broker with three data directories on a simulated disk, one partition of a topic in each."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

from ottla.broker.broker import Broker
from ottla.cluster.topics import NewTopic, create_topic
from ottla.config import BrokerConfig
from ottla.errors import KafkaError
from ottla.records.batch import check, encode
from ottla.replication.partition import Partition
from tests.simulation.disk import SimulatedDisk
from tests.unit.handlers.one_broker import FixedClock, listen, offload

DIRECTORIES = ("/one", "/two", "/three")
TOPIC = "orders"


def broker_on(disk: SimulatedDisk, directories: Sequence[str] = DIRECTORIES) -> Broker:
    return Broker(
        BrokerConfig.of({"log.dirs": ",".join(directories)}),
        DIRECTORIES[0],
        disk=disk,
        clock=FixedClock(),
        random=Random(1),
        offload=offload,
        listen=listen,
    )


async def started(disk: SimulatedDisk, directories: Sequence[str] = DIRECTORIES) -> Broker:
    broker = broker_on(disk, directories)
    await broker.start()
    return broker


async def filled(disk: SimulatedDisk) -> Broker:
    """Partition n of the topic is in directory n, with one record."""
    broker = await started(disk)
    await create(broker, TOPIC, 3)
    for index in range(3):
        append(broker.node.replicas.get(TOPIC, index), b"%d" % index)
    return broker


async def create(broker: Broker, topic: str, partitions: int = 1, **configs: str) -> None:
    wanted = NewTopic(topic, partitions, configs={name.replace("_", "."): value for name, value in configs.items()})
    await broker.node.metadata.change(lambda image: create_topic(image, wanted, broker.node.config, broker.node.random))


def append(partition: Partition, value: bytes) -> int:
    batch = bytearray(encode([(None, value, (), 1)]))
    return partition.append(memoryview(batch), check(batch), 1, 1).base_offset


def directory_of(broker: Broker, topic: str, index: int) -> str:
    return broker.node.replicas.get(topic, index).log.directory.rpartition("/")[0]


def refusal(broker: Broker, index: int, topic: str = TOPIC) -> Any:
    """The code with which the partition refuses a record; None if it takes it."""
    try:
        append(broker.node.replicas.get(topic, index), b"more")
    except KafkaError as error:
        return error.code
    return None


async def settled() -> None:
    """Whatever was put off to the end of this iteration of the loop has happened."""
    for _ in range(5):
        await asyncio.sleep(0)
