"""Topics that clients ask for without creating them: created once, in the background, for clients that may be gone."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random

import pytest

from ottla.cluster import auto_creation
from ottla.cluster.auto_creation import AutoTopicCreation
from ottla.cluster.changes import Change, Endpoint
from ottla.cluster.decision import Decision
from ottla.cluster.entities import BrokerImage
from ottla.cluster.image import EMPTY, Image
from ottla.cluster.metadata import Metadata
from ottla.cluster.metadata_log import Entry
from ottla.cluster.topics import CONSUMER_OFFSETS, NewTopic, create_topic
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError

BROKER = BrokerImage(0, 1, (Endpoint("PLAINTEXT", "", 0, "PLAINTEXT"),), None, fenced=False, clean=True)
IMAGE = replace(EMPTY, brokers=EMPTY.brokers.set(0, BROKER))
OFFSETS_PARTITIONS = 7


class SlowLog:
    """A metadata log whose appends wait until the test lets one pass."""

    is_shared = False

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[None]] = []
        self.is_full = False

    async def append(
        self, expected_version: int, entry_id: bytes, changes: tuple[Change, ...], *, as_controller: bool = False
    ) -> int:
        if self.is_full:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no room")
        gate = asyncio.get_running_loop().create_future()
        self.waiting.append(gate)
        await gate
        return expected_version + 1

    async def read(self, after: int, *, newest: bool = True) -> tuple[Entry, ...]:
        return ()

    def wants_snapshot(self) -> bool:
        return False


class House:
    """The metadata of a broker, with a log that a test opens and closes."""

    def __init__(self) -> None:
        self.log = SlowLog()
        self.metadata = Metadata(self.log, Random(1), IMAGE)  # type: ignore[arg-type]
        self.creation = AutoTopicCreation(
            self.metadata, Random(1), lambda: BrokerConfig.of({}), {CONSUMER_OFFSETS: create_offsets}
        )

    async def let_pass(self) -> None:
        """Every append until none is left."""
        while True:
            for _ in range(5):
                await asyncio.sleep(0)
            if not self.log.waiting:
                return
            self.log.waiting.pop(0).set_result(None)

    @property
    def topics(self) -> dict[str, int]:
        return {topic.name: len(topic.partitions) for topic in self.metadata.image.topics()}


def create_offsets(image: Image, config: BrokerConfig, random: Random) -> Decision[None]:
    topic = NewTopic(CONSUMER_OFFSETS, OFFSETS_PARTITIONS)
    return Decision(create_topic(image, topic, config, random).changes, None)


def in_a_house(test: Callable[[House], Awaitable[None]]) -> None:
    async def run() -> None:
        await test(House())

    asyncio.run(run())


def test_a_topic_that_many_ask_for_is_created_once() -> None:
    # Also while it is being created, and after it was.
    async def scenario(house: House) -> None:
        for _ in range(3):
            house.creation.request(["orders", "orders", "payments"])
        await asyncio.sleep(0)
        house.creation.request(["orders"])
        await house.let_pass()
        house.creation.request(["orders"])
        await house.let_pass()
        assert house.topics == {"orders": 1, "payments": 1}
        assert house.metadata.image.version == IMAGE.version + 2

    in_a_house(scenario)


def test_whoever_asked_may_be_gone() -> None:
    # The task that requested the topic is cancelled, as that of a closed connection is; the topic comes all the same.
    async def scenario(house: House) -> None:
        async def ask() -> None:
            house.creation.request(["orders"])
            await asyncio.sleep(60)

        client = asyncio.create_task(ask())
        await asyncio.sleep(0)
        client.cancel()
        await asyncio.wait([client])
        await house.let_pass()
        assert house.topics == {"orders": 1}

    in_a_house(scenario)


def test_a_topic_that_cannot_be_created_stands_in_nobodys_way() -> None:
    # The name is too much like another's; a full disk. What comes later is created, also the same topic.
    async def scenario(house: House) -> None:
        house.creation.request(["metrics.of", "metrics_of", "orders"])
        await house.let_pass()
        assert house.topics == {"metrics.of": 1, "orders": 1}
        house.log.is_full = True
        house.creation.request(["late"])
        await house.let_pass()
        house.log.is_full = False
        house.creation.request(["late"])
        await house.let_pass()
        assert house.topics == {"metrics.of": 1, "orders": 1, "late": 1}

    in_a_house(scenario)


def test_internal_topics_keep_their_own_number_of_partitions() -> None:
    # Groups are spread over the partitions: __consumer_offsets with num.partitions would lose every group.
    async def scenario(house: House) -> None:
        house.creation.request([CONSUMER_OFFSETS])
        await house.let_pass()
        assert house.topics == {CONSUMER_OFFSETS: OFFSETS_PARTITIONS}

    in_a_house(scenario)


def test_the_number_of_pending_topics_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    # A client that makes up names faster than topics are created does not fill the memory.
    monkeypatch.setattr(auto_creation, "PENDING_MAX", 3)

    async def scenario(house: House) -> None:
        for number in range(10):
            house.creation.request([f"made-up-{number}"])
        await house.let_pass()
        assert list(house.topics) == ["made-up-0", "made-up-1", "made-up-2"]
        house.creation.request(["made-up-9"])
        await house.let_pass()
        assert "made-up-9" in house.topics

    in_a_house(scenario)


def test_stopping_waits_for_the_topic_that_is_being_created() -> None:
    # Its entry is on the way to the disk. Those behind it are forgotten, and later requests too.
    async def scenario(house: House) -> None:
        house.creation.request(["orders", "payments"])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        stopping = asyncio.create_task(house.creation.stop())
        await asyncio.sleep(0)
        assert not stopping.done() and house.topics == {}
        await house.let_pass()
        await stopping
        house.creation.request(["late"])
        await house.let_pass()
        assert house.topics == {"orders": 1}

    in_a_house(scenario)
