"""A broker whose metadata has two more brokers, for handlers of a leader or follower. The others do not run."""

from random import Random
from typing import Any

from ottla.broker.broker import Broker
from ottla.broker.call import Call, Client
from ottla.cluster.changes import (
    Change,
    ChangePartition,
    CreatePartition,
    CreateTopic,
    Endpoint,
    FenceBroker,
    RegisterBroker,
    UnfenceBroker,
)
from ottla.cluster.decision import Decision
from ottla.records.batch import check, encode
from ottla.replication.partition import Partition
from tests.simulation.disk import SimulatedDisk
from tests.unit.handlers.one_broker import broker_on

TOPIC, TOPIC_ID = "shared", b"s" * 16
OTHERS = (7, 8)
CLIENT = Client(1, "PLAINTEXT", ("127.0.0.1", 1), ("127.0.0.1", 2))


async def change(broker: Broker, *changes: Change) -> None:
    await broker.node.metadata.change(lambda image: Decision(changes, None))


async def start(leader: int | None = None, rack: str | None = None) -> Broker:
    """A broker with the topic `shared`: one partition on three brokers. `leader`: None for this broker."""
    broker = broker_on(SimulatedDisk(Random(1)))
    await broker.start()
    me = broker.node.broker_id
    for other in OTHERS:
        endpoint = Endpoint("PLAINTEXT", f"host-{other}", 9000 + other, "PLAINTEXT")
        await change(broker, RegisterBroker(other, (bytes([other]) * 16,), (endpoint,), rack or f"rack-{other}"))
        registered = broker.node.image.broker(other)
        assert registered is not None
        await change(broker, UnfenceBroker(other, registered.epoch))
    replicas = (me, *OTHERS)
    leads = me if leader is None else leader
    await change(broker, CreateTopic(TOPIC_ID, TOPIC), CreatePartition(TOPIC_ID, 0, replicas, replicas, leads))
    return broker


def shared(broker: Broker) -> Partition:
    return broker.node.replicas.get(TOPIC, 0)


def epoch_of(broker: Broker, other: int) -> int:
    registered = broker.node.image.broker(other)
    assert registered is not None
    return registered.epoch


async def move_leader(broker: Broker, leader: int) -> None:
    state = broker.node.image.partition(TOPIC, 0)
    assert state is not None
    await change(broker, ChangePartition(TOPIC_ID, 0, state.partition_epoch, leader=leader))


async def fence(broker: Broker, other: int) -> None:
    await change(broker, FenceBroker(other, epoch_of(broker, other)))


def follow(broker: Broker, other: int, offset: int, log_start_offset: int = 0) -> None:
    """Another broker has fetched up to `offset`."""
    shared(broker).note_follower_fetch(other, epoch_of(broker, other), offset, log_start_offset, 0.0)


def append(partition: Partition, count: int = 1) -> None:
    batch = bytearray(encode([(None, b"value", (), 1) for _ in range(count)]))
    partition.append(memoryview(batch), check(batch), 1, 1)


def ask(api_key: int, version: int, body: Any) -> Call[Any]:
    return Call(api_key, version, 1, None, body, CLIENT)
