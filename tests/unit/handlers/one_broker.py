"""A whole broker on a simulated disk, for tests of handlers in which the disk fails or forgets what was not synced."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from ottla.broker.broker import Broker
from ottla.broker.call import Call, Client
from ottla.cluster.topics import NewTopic, create_topic
from ottla.config import BrokerConfig, Listener
from ottla.records.batch import check, encode
from ottla.server import Server
from ottla.wire.frames import find_api_of
from ottla.wire.message import Message
from tests.simulation.disk import SimulatedDisk

DIRECTORY = "/data"
RECORDS = 6


class FixedClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000


def offload(function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
    future = asyncio.get_running_loop().create_future()
    try:
        future.set_result(function(*arguments))
    except Exception as error:
        future.set_exception(error)
    return future


async def listen(server: Server, listener: Listener) -> int:
    return listener.port


def broker_on(disk: SimulatedDisk) -> Broker:
    return Broker(
        BrokerConfig.of({}),
        DIRECTORY,
        disk=disk,
        clock=FixedClock(),
        random=Random(1),
        offload=offload,
        listen=listen,
    )


async def filled(disk: SimulatedDisk) -> Broker:
    """A started broker with the topic `orders`: records in two segments, all of them on the platter."""
    broker = broker_on(disk)
    await broker.start()
    topic = NewTopic("orders", 1, configs={"segment.bytes": str(1 << 20)})
    await broker.node.metadata.change(lambda image: create_topic(image, topic, broker.node.config, Random(2)))
    partition = broker.node.replicas.get("orders", 0)
    for _ in range(RECORDS):
        batch = bytearray(encode([(None, bytes(300_000), (), 1)]))
        partition.append(memoryview(batch), check(batch), 1, 1)
    partition.log.flush()
    await broker.node.replication.checkpoints.write_recovery_points()
    return broker


def call(request: Message) -> Call[Any]:
    """The request as a handler gets it, in its newest version."""
    client = Client(1, "PLAINTEXT", ("", 0), ("", 0))
    return Call(find_api_of(request).key, type(request).VERSIONS[-1], 1, None, request, client)
