"""Changes of the metadata: decided on the newest image, appended once, replayed in order before they are answered."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.cluster.changes import Change, CreateTopic, DeleteTopic, Endpoint, SetConfig, SetFeature
from ottla.cluster.changes import ConfigResource as Resource
from ottla.cluster.decision import Decision
from ottla.cluster.image import Image, ReplayError
from ottla.cluster.metadata import Metadata
from ottla.cluster.metadata_log import Conflict, Entry, LogDisconnected, LogUnavailable
from ottla.cluster.producer_ids import BLOCK, ProducerIds, reserve_producer_ids
from ottla.cluster.registration import BrokerRegistration, register_broker
from ottla.errors import ErrorCode, KafkaError

T = TypeVar("T")


class SharedLog:
    """A metadata log in memory that several brokers share; every call takes a few iterations of the loop."""

    is_shared = True
    obstacle = ""

    def __init__(self, random: Random) -> None:
        self.entries: list[Entry] = []
        self.snapshots: list[Image] = []
        self.conflicts = 0
        self.failing_reads = 0
        self.failure: Exception = LogDisconnected("ConnectionLoss")
        self.snapshot_after = 1 << 30
        self._random = random

    async def append(
        self, expected_version: int, entry_id: bytes, changes: Sequence[Change], *, as_controller: bool = False
    ) -> int:
        await self._pause()
        if expected_version != len(self.entries):
            self.conflicts += 1
            raise Conflict
        self.entries.append(Entry(expected_version + 1, entry_id, tuple(changes)))
        version = len(self.entries)
        await self._pause()
        return version

    async def read(self, after: int, *, newest: bool = True) -> Sequence[Entry]:
        await self._pause()
        if self.failing_reads:
            self.failing_reads -= 1
            raise self.failure
        return self.entries[after:]

    async def wait_for_growth(self, beyond: int) -> None:
        while len(self.entries) <= beyond:
            await asyncio.sleep(0)

    def wants_snapshot(self) -> bool:
        return len(self.entries) >= self.snapshot_after

    async def save_snapshot(self, image: Image) -> None:
        self.snapshots.append(image)

    async def _pause(self) -> None:
        for _ in range(self._random.randrange(4)):
            await asyncio.sleep(0)


def run(main: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(main)


def counting(name: str) -> Callable[[Image], Decision[int]]:
    """Adds one to a feature's level: wrong as soon as a decision is used on another image than it was made on."""

    def decide(image: Image) -> Decision[int]:
        level = image.features.get(name, 0) + 1
        return Decision([SetFeature(name, level)], level)

    return decide


@given(st.integers(0, 2**32), st.integers(1, 4), st.booleans())
@settings(max_examples=30, deadline=None)
def test_concurrent_changes_of_several_brokers_are_decided_again(seed: int, brokers: int, following: bool) -> None:
    """Each increment is seen exactly once, whoever wins; all brokers replay the same history, without a gap."""

    async def main() -> None:
        random = Random(seed)
        log = SharedLog(random)
        members = [Metadata(log, Random(seed + number)) for number in range(brokers)]
        seen: list[list[int]] = [[] for _ in members]
        for member, versions in zip(members, seen, strict=True):
            member.on_change(lambda old, new, changes, versions=versions: versions.append(new.version))  # type: ignore[misc]
        tails = [asyncio.create_task(member.follow()) for member in members if following]
        work = [member.change(counting("n")) for member in members for _ in range(4)]
        results = await asyncio.gather(*work)
        assert sorted(results) == list(range(1, 4 * brokers + 1))
        for member, versions in zip(members, seen, strict=True):
            await member.refresh()
            assert versions == list(range(1, len(log.entries) + 1))
            assert member.image == members[0].image
        assert len({entry.id for entry in log.entries}) == len(log.entries)
        for tail in tails:
            tail.cancel()

    run(main())


def test_a_conflict_asks_the_decider_again() -> None:
    """The second decision is made on the newer image, and may come to nothing."""

    async def main() -> None:
        log = SharedLog(Random(1))
        first, second = Metadata(log, Random(1)), Metadata(log, Random(2))
        asked: list[int] = []

        def create_once(image: Image) -> Decision[str]:
            asked.append(image.version)
            if image.topic("t") is not None:
                return Decision([], "it is there")
            return Decision([CreateTopic(b"\x01" * 16, "t")], "created")

        assert await first.change(create_once) == "created"
        assert await second.change(create_once) == "it is there"
        assert asked == [0, 0, 1]
        assert log.conflicts == 1
        assert len(log.entries) == 1

    run(main())


def test_listeners_know_before_the_caller() -> None:
    """A created topic is in place when CreateTopics is answered; listeners get old image, new image and changes."""

    async def main() -> None:
        metadata = Metadata(SharedLog(Random(1)), Random(1))
        told: list[tuple[int, int, Sequence[Change]]] = []
        metadata.on_change(lambda old, new, changes: told.append((old.version, new.version, changes)))
        change = CreateTopic(b"\x01" * 16, "t")
        await metadata.change(lambda image: Decision([change], None))
        assert told == [(0, 1, (change,))]

    run(main())


def test_a_decider_that_refuses_changes_nothing() -> None:
    """Its error reaches the caller, and the next change is not held up."""

    async def main() -> None:
        log = SharedLog(Random(1))
        metadata = Metadata(log, Random(1))

        def refuse(image: Image) -> Decision[None]:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "no")

        with pytest.raises(KafkaError, match="no"):
            await metadata.change(refuse)
        with pytest.raises(ReplayError, match="no topic has id"):
            await metadata.change(lambda image: Decision([DeleteTopic(b"\x01" * 16)], None))
        assert log.entries == []
        assert await metadata.change(counting("n")) == 1

    run(main())


def test_an_entry_too_large_for_zookeeper_is_refused_before_it_is_sent() -> None:
    """512 KiB is the limit of every log, so that a cluster of one cannot do what three brokers cannot."""

    async def main() -> None:
        log = SharedLog(Random(1))
        changes = [SetConfig(Resource.BROKER, "", "key", Random(1).randbytes(600 << 10).hex())]
        with pytest.raises(KafkaError) as refusal:
            await Metadata(log, Random(1)).change(lambda image: Decision(changes, None))
        assert refusal.value.code is ErrorCode.POLICY_VIOLATION
        assert log.entries == []

    run(main())


def test_waiting_for_a_version() -> None:
    """Returns when that version was replayed, at once if it was."""

    async def main() -> None:
        metadata = Metadata(SharedLog(Random(1)), Random(1))
        waiting = asyncio.create_task(metadata.wait_for_version(2))
        await metadata.change(counting("n"))
        await asyncio.sleep(0)
        assert not waiting.done()
        await metadata.change(counting("n"))
        await waiting
        await metadata.wait_for_version(1)

    run(main())


def test_snapshots_are_taken_when_the_log_wants_one() -> None:
    """Of the image that holds everything appended so far."""

    async def main() -> None:
        log = SharedLog(Random(1))
        log.snapshot_after = 2
        metadata = Metadata(log, Random(1))
        await metadata.change(counting("n"))
        await metadata.change(counting("n"))
        await asyncio.sleep(0)
        assert log.snapshots == [metadata.image]

    run(main())


def test_producer_ids_are_never_given_twice() -> None:
    """Two brokers that ask at the same time get blocks that do not overlap."""

    async def main() -> None:
        log = SharedLog(Random(1))
        members = [Metadata(log, Random(number)) for number in (1, 2)]
        for number, member in enumerate(members):
            newcomer = BrokerRegistration(number, (bytes([number]) * 16,), (Endpoint("A", "h", 1, "PLAINTEXT"),))
            await member.change(lambda image, newcomer=newcomer: register_broker(image, newcomer, "c"))  # type: ignore[misc]
        blocks = await asyncio.gather(
            *(
                member.change(partial(reserve_producer_ids, broker_id=number, broker_epoch=number + 1, count=10))
                for number, member in enumerate(members)
                for _ in range(3)
            )
        )
        assert sorted(number for block in blocks for number in block) == list(range(60))
        with pytest.raises(KafkaError):
            await members[0].change(partial(reserve_producer_ids, broker_id=7, broker_epoch=1, count=10))

    run(main())


def test_a_broker_has_producer_ids_in_reserve() -> None:
    # While the log cannot be reached, the block in use and the one behind it are left.
    async def main() -> None:
        log = SharedLog(Random(1))
        metadata = Metadata(log, Random(1))
        newcomer = BrokerRegistration(1, (b"d" * 16,), (Endpoint("A", "h", 1, "PLAINTEXT"),))
        await metadata.change(lambda image: register_broker(image, newcomer, "c"))
        ids = ProducerIds(metadata, 1, lambda: 1)
        given = [await ids.next()]
        for _ in range(3):
            await ids.refill()
        assert metadata.image.next_producer_id == 2 * BLOCK
        metadata.close()
        await ids.refill()  # nothing can be reserved, and nothing is needed
        given += [await ids.next() for _ in range(2 * BLOCK - 1)]
        assert given == list(range(2 * BLOCK))
        await ids.refill()
        with pytest.raises(KafkaError) as refusal:
            await ids.next()
        assert refusal.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    run(main())


def test_a_broker_that_starts_waits_for_the_log() -> None:
    # ZooKeeper was restarted while the metadata were read: no reason for a broker to give up its start.
    async def main() -> None:
        log = SharedLog(Random(1))
        await Metadata(log, Random(2), on_failure=pytest.fail).change(counting("a"))
        log.failing_reads = 2
        image = await Metadata(log, Random(3), on_failure=pytest.fail).load()
        assert image.features["a"] == 1
        log.failing_reads, log.failure = 1, LogUnavailable("entries are missing")
        with pytest.raises(LogUnavailable, match="missing"):  # no connection brings them back
            await Metadata(log, Random(3), on_failure=pytest.fail).load()

    run(main())
