"""A whole broker in virtual time, with clients that are above their quota beside others that are not.

Bytes are counted by the clients themselves. A client waits for each answer and sends the next request at once, whatever
throttle_time_ms says: only the broker holds it back.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.cluster.quotas import QuotaAlteration, alter_quotas, make_entity
from ottla.cluster.topics import NewTopic, create_topic
from ottla.config import BrokerConfig, Listener
from ottla.errors import ErrorCode
from ottla.records.batch import encode
from ottla.server import Server
from ottla.wire import fetch, frames, produce
from ottla.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.message import Message
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.produce import PartitionData, ProduceRequest, TopicData
from tests.simulation.disk import SimulatedDisk
from tests.simulation.frame_client import FrameClient
from tests.simulation.loop import simulate
from tests.simulation.network import SimulatedNetwork
from tests.unit.handlers.one_broker import FixedClock, offload

PRODUCE_VERSION, FETCH_VERSION = 9, 11
BATCH = bytes(encode([(None, bytes(20_000), (), 1)]))
RATE = 100_000.0
Script = Callable[["World"], Awaitable[None]]


class World:
    """A broker with the topic `orders`, in a network."""

    def __init__(self) -> None:
        self.network = SimulatedNetwork(Random(1))
        self.broker = Broker(
            BrokerConfig.of({"log.retention.ms": "-1"}),
            "/data",
            disk=SimulatedDisk(Random(1)),
            clock=FixedClock(),
            random=Random(1),
            offload=offload,
            listen=self._listen,
        )

    async def _listen(self, server: Server, listener: Listener) -> int:
        self.network.listen("broker", 9092, server.protocol_factory(listener.name))
        return 9092

    async def start(self) -> None:
        await self.broker.start()
        topic = NewTopic("orders", 1)
        node = self.broker.node
        await node.metadata.change(lambda image: create_topic(image, topic, node.config, Random(2)))

    async def set_quota(self, entity: list[tuple[str, str | None]], **values: float | None) -> None:
        asked = [QuotaAlteration(make_entity(entity), values)]
        assert await self.broker.node.metadata.change(lambda image: alter_quotas(image, asked)) == [None]

    async def connect(self, client_id: str) -> "Client":
        return Client(await self.network.open_client(client_id, "broker", 9092), client_id)


class Client:
    """One connection. `throttled_ms` is the last throttle_time_ms, `bytes` what went through."""

    def __init__(self, connection: FrameClient, client_id: str) -> None:
        self.connection = connection
        self.client_id = client_id
        self.throttled_ms = 0
        self.bytes = 0
        self.empty_answers = 0
        self._offset = 0

    async def call(self, message: Message, version: int) -> Any:
        self.connection.write(frames.encode_request(message, version, 1, self.client_id))
        answer = await self.connection.read_frame()
        response: Any = frames.decode_response(frames.find_api_of(message).response, version, answer)[1]
        self.throttled_ms = response.throttle_time_ms
        return response

    async def produce(self, acks: int = 1) -> None:
        request = ProduceRequest(
            None, acks, 1000, [TopicData("orders", partitions=[PartitionData(0, memoryview(BATCH))])]
        )
        header = frames.request_header(frames.api(0), PRODUCE_VERSION, 1, self.client_id)
        body = produce.write_request(PRODUCE_VERSION, request, header)
        self.connection.write_frame(bytes(body))
        self.bytes += len(body)
        if acks:
            answer = await self.connection.read_frame()
            response = produce.read_response(PRODUCE_VERSION, answer, 5)
            assert response.topics[0].partitions[0].error_code == 0
            self.throttled_ms = response.throttle_time_ms

    async def fetch(self) -> None:
        asked = FetchPartition(0, fetch_offset=self._offset, max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic("orders", partitions=[asked])]
        )
        header = frames.request_header(frames.api(1), FETCH_VERSION, 1, self.client_id)
        body = fetch.write_request(FETCH_VERSION, request, header)
        self.connection.write_frame(bytes(body))
        answer = await self.connection.read_frame()
        response = fetch.read_response(FETCH_VERSION, answer, 4)
        self.throttled_ms = response.throttle_time_ms
        if not response.topics:
            self.empty_answers += 1
            return
        records = response.topics[0].partitions[0].records or b""
        assert isinstance(records, bytes | bytearray | memoryview)
        self.bytes += len(records)
        self._offset += len(records) // len(BATCH)


def run(script: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        world = World()
        await world.start()
        await script(world)
        await world.broker.stop(1)

    simulate(whole())


async def repeat(action: Callable[[], Awaitable[None]], seconds: float) -> float:
    """Do it again and again. Returns the seconds that it took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while loop.time() - began < seconds:
        await action()
    return loop.time() - began


async def measure_slowest(client: Client, seconds: float) -> float:
    """Send a small request every 100 ms. Returns the longest time to an answer."""
    loop = asyncio.get_running_loop()
    slowest, end = 0.0, loop.time() + seconds
    while loop.time() < end:
        began = loop.time()
        await client.call(ListGroupsRequest(), 4)
        assert client.throttled_ms == 0
        slowest = max(slowest, loop.time() - began)
        await asyncio.sleep(0.1)
    return slowest


def test_a_noisy_producer_is_held_to_its_quota_and_a_quiet_client_waits_for_nothing() -> None:
    async def script(world: World) -> None:
        await world.set_quota([("client-id", "noisy")], producer_byte_rate=RATE)
        noisy, quiet = await world.connect("noisy"), await world.connect("quiet")
        task = asyncio.create_task(measure_slowest(quiet, 60))
        seconds = await repeat(noisy.produce, 100)
        assert 0.9 * RATE <= noisy.bytes / seconds <= 1.1 * RATE
        assert noisy.throttled_ms > 0
        assert await task < 0.1

    run(script)


@pytest.mark.parametrize("entity", [[("user", "ANONYMOUS")], [("user", None)]])
def test_ten_connections_of_a_user_share_its_quota(entity: list[tuple[str, str | None]]) -> None:
    # Also if each has another client id. acks=0 gets no answer, and is held back all the same.
    async def script(world: World) -> None:
        await world.set_quota(entity, producer_byte_rate=RATE)
        clients = [await world.connect(f"id-{number}") for number in range(10)]
        took = await asyncio.gather(*(repeat(client.produce, 200) for client in clients[:9]))
        silent = clients[9]
        sent = sum(client.bytes for client in clients[:9])
        assert 0.9 * RATE <= sent / max(took) <= 1.1 * RATE
        for _ in range(5):
            await silent.produce(acks=0)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await silent.call(ListGroupsRequest(), 4)
        assert loop.time() - began > 0.1

    run(script)


def test_a_noisy_consumer_gets_empty_answers_and_its_quota() -> None:
    async def script(world: World) -> None:
        producer = await world.connect("filler")
        for _ in range(700):
            await producer.produce()
        await world.set_quota([("client-id", None)], consumer_byte_rate=RATE)
        noisy = await world.connect("noisy")
        seconds = await repeat(noisy.fetch, 100)
        assert 0.9 * RATE <= noisy.bytes / seconds <= 1.1 * RATE
        assert noisy.empty_answers > 0
        # Without the quota the rest comes at once.
        await world.set_quota([("client-id", None)], consumer_byte_rate=None)
        before = noisy.empty_answers
        while noisy.bytes < 700 * len(BATCH):
            await noisy.fetch()
        assert noisy.empty_answers == before

    run(script)


def test_requests_behind_a_muted_one_wait_in_order() -> None:
    # Ten requests in one piece: the first two are above the quota; the others are answered when the time is over.
    async def script(world: World) -> None:
        await world.set_quota([("client-id", "noisy")], producer_byte_rate=1000.0)
        noisy = await world.connect("noisy")
        await noisy.produce()
        waits_ms = noisy.throttled_ms
        assert waits_ms > 9_000
        loop = asyncio.get_running_loop()
        began = loop.time()
        request = frames.encode_request(ListGroupsRequest(), 4, 1, "noisy")
        noisy.connection.write(request * 10)
        for _ in range(10):
            await noisy.connection.read_frame()
        assert waits_ms / 1000 - 0.1 <= loop.time() - began <= waits_ms / 1000 + 1

    run(script)


def test_time_of_requests_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    # A handler that takes 20 ms of processor time for each request may run five times a second with 10 percent.
    async def script(world: World) -> None:
        ticks = iter(range(10**9))
        monkeypatch.setattr("ottla.broker.throttling.stopwatch", lambda: next(ticks) * 0.02)
        monkeypatch.setattr("ottla.broker.dispatch.stopwatch", lambda: next(ticks) * 0.02)
        await world.set_quota([("user", None), ("client-id", "noisy")], request_percentage=10.0)
        noisy, quiet = await world.connect("noisy"), await world.connect("quiet")
        answered = 0

        async def ask() -> None:
            nonlocal answered
            await noisy.call(ListGroupsRequest(), 4)
            answered += 1

        task = asyncio.create_task(measure_slowest(quiet, 30))
        seconds = await repeat(ask, 100)
        assert await task < 0.1
        assert 0 < noisy.throttled_ms <= 1000
        assert answered / seconds <= 5 * 1.15

    run(script)


def test_partitions_are_created_at_the_quota_only() -> None:
    # 11 windows of two partitions may come at once; then new versions are refused and old ones wait.
    async def script(world: World) -> None:
        await world.set_quota([("user", "ANONYMOUS")], controller_mutation_rate=2.0)
        admin = await world.connect("admin")

        async def create(name: str, partitions: int, version: int = 7) -> int:
            topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
            response: CreateTopicsResponse = await admin.call(
                CreateTopicsRequest(topics=[topic], timeout_ms=1000), version
            )
            return response.topics[0].error_code

        assert await create("a", 20) == 0
        assert await create("b", 6) == 0
        assert admin.throttled_ms == 0
        assert await create("c", 1) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert 1500 < admin.throttled_ms <= 2000
        assert await create("a", 1) == ErrorCode.TOPIC_ALREADY_EXISTS  # costs nothing
        assert await create("c", 1) == 0  # the connection was muted until the bucket was full enough
        assert await create("d", 20, version=5) == 0
        assert admin.throttled_ms > 5000

    run(script)


def test_topics_that_clients_only_ask_for_count_too() -> None:
    # Metadata of 100 missing topics creates as many as the quota allows at once, and no more.
    async def script(world: World) -> None:
        await world.set_quota([("user", None)], controller_mutation_rate=2.0)
        client = await world.connect("curious")
        topics = [MetadataRequestTopic(name=f"missing-{number}") for number in range(100)]
        await client.call(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 12)
        await asyncio.sleep(0.1)
        created = [topic.name for topic in world.broker.node.image.topics() if topic.name.startswith("missing-")]
        assert 22 <= len(created) <= 24

    run(script)


def test_a_muted_connection_can_be_closed_from_both_sides() -> None:
    # The timer of a muted connection keeps neither the connection nor the stop of the broker waiting.
    async def script(world: World) -> None:
        await world.set_quota([("client-id", "noisy")], producer_byte_rate=1.0)
        noisy, other = await world.connect("noisy"), await world.connect("noisy")
        await noisy.produce()
        await other.produce()
        assert noisy.throttled_ms > 3_600_000
        noisy.connection.close()
        await asyncio.sleep(1)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await world.broker.stop(30)
        assert loop.time() - began < 5

    async def whole() -> None:
        world = World()
        await world.start()
        await script(world)

    simulate(whole())
