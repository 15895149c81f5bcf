"""The controller: elected again when it is gone, and the only one that does its work."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

import pytest

from ottla.cluster.changes import (
    Change,
    ChangePartition,
    ConfigResource,
    CreatePartition,
    CreateTopic,
    FenceBroker,
    SetConfig,
    VerifyDigest,
)
from ottla.cluster.controller import COOLING_S, FAILURES_MAX, Controller
from ottla.cluster.decision import Decision
from ottla.cluster.image import PartitionImage, ReplayError
from ottla.cluster.memory_store import Fate, MemoryStore
from ottla.cluster.reassignments import alter_reassignments
from ottla.cluster.registration import fence_broker, unfence_broker
from ottla.cluster.store import Delete, Operation, Store
from ottla.topic_partition import TopicPartition
from tests.simulation.loop import simulate
from tests.unit.cluster.cluster_members import Member

TOPIC = b"t" * 16


@dataclass
class Settings:
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 300


class Broker(Member):
    """A member that campaigns."""

    def __init__(self, store: Store, broker_id: int, settings: Settings | None = None) -> None:
        super().__init__(store, broker_id, seed=broker_id)
        given = settings or Settings()
        self.controller = Controller(self.metadata, self.membership, lambda: given, Random(broker_id))
        self.running: asyncio.Task[None] | None = None

    async def join(self) -> int:
        await super().join()
        await self.unfence()
        self.running = asyncio.create_task(self.controller.run(), name=f"controller of {self.id}")
        return self.epoch

    async def unfence(self) -> None:
        await self.metadata.change(lambda image: unfence_broker(image, self.id, self.epoch))

    def die(self) -> None:
        super().die()
        self.metadata.close()
        if self.running is not None:
            self.running.cancel()


async def start(store: MemoryStore, settings: Settings | None = None) -> list[Broker]:
    brokers = [Broker(store.client(f"broker-{number}"), number, settings) for number in (1, 2, 3)]
    for broker in brokers:
        await broker.join()
    await until(lambda: sum(broker.controller.is_active for broker in brokers) == 1)
    return brokers


async def until(condition: Callable[[], bool], limit_s: float = 60) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.05)


def active(brokers: list[Broker]) -> Broker:
    return next(broker for broker in brokers if broker.controller.is_active)


def state_of(broker: Broker) -> PartitionImage:
    state = broker.image.partition("t", 0)
    assert state is not None
    return state


async def create(broker: Broker, leader: int = 1, isr: tuple[int, ...] = (1, 2, 3)) -> None:
    changes: list[Change] = [CreateTopic(TOPIC, "t"), CreatePartition(TOPIC, 0, (1, 2, 3), isr, leader)]
    await broker.metadata.change(lambda image: Decision(changes, None))


def test_a_dead_broker_is_fenced_when_its_session_ends() -> None:
    """Not before; and another replica leads then."""

    async def main() -> None:
        brokers = await start(MemoryStore(session_timeout_s=6.0))
        controller = active(brokers)
        victim, witness = [broker for broker in brokers if broker is not controller]
        await create(controller, leader=victim.id)
        loop = asyncio.get_running_loop()
        victim.die()
        died = loop.time()
        await until(lambda: not witness.image.serves(victim.id))
        assert 3 < loop.time() - died < 9
        assert state_of(witness).leader not in (victim.id, -1)

    simulate(main())


def test_a_dead_controller_is_replaced() -> None:
    """When its session has ended, another one is elected and fences it."""

    async def main() -> None:
        brokers = await start(MemoryStore(session_timeout_s=6.0))
        first = active(brokers)
        rest = [broker for broker in brokers if broker is not first]
        first.die()
        await until(lambda: any(broker.controller.is_active for broker in rest))
        second = active(rest)
        await until(lambda: not second.image.serves(first.id))
        await asyncio.sleep(5)
        assert sum(broker.controller.is_active for broker in rest) == 1

    simulate(main())


def test_a_controller_that_others_fenced_is_none() -> None:
    """It comes back as a broker; there is one controller."""

    async def main() -> None:
        brokers = await start(MemoryStore())
        first = active(brokers)
        rest = [broker for broker in brokers if broker is not first]
        await rest[0].metadata.change(lambda image: fence_broker(image, first.id, first.epoch))
        await until(lambda: not first.controller.is_active)
        await until(lambda: any(broker.controller.is_active for broker in rest))
        await first.register()
        await first.unfence()
        await asyncio.sleep(5)
        assert [broker.controller.is_active for broker in brokers].count(True) == 1
        assert len(await first.membership.list_controllers()) == 1

    simulate(main())


def test_a_controller_that_stops_hands_over_at_once() -> None:
    async def main() -> None:
        brokers = await start(MemoryStore())
        first = active(brokers)
        first.controller.stop()
        assert first.running is not None
        await first.running
        started = asyncio.get_running_loop().time()
        await until(lambda: any(broker.controller.is_active for broker in brokers))
        assert asyncio.get_running_loop().time() - started < 3

    simulate(main())


def test_preferred_leaders_lead_again() -> None:
    """At the interval of the settings, and only if they are enabled."""

    async def main(enabled: bool) -> None:
        settings = Settings(auto_leader_rebalance_enable=enabled, leader_imbalance_check_interval_seconds=20)
        brokers = await start(MemoryStore(), settings)
        await create(brokers[0], leader=2)
        await asyncio.sleep(5)
        assert state_of(brokers[0]).leader == 2
        await asyncio.sleep(25)
        assert state_of(brokers[0]).leader == (1 if enabled else 2)

    simulate(main(True))
    simulate(main(False))


def test_a_broker_that_replays_differently_stops() -> None:
    """The controller's digest is in the log: others compare theirs, and nobody goes on with another leader."""

    async def main() -> None:
        brokers = await start(MemoryStore(), Settings(leader_imbalance_check_interval_seconds=20))
        await create(brokers[0])
        await asyncio.sleep(1)
        other = next(broker for broker in brokers if not broker.controller.is_active)
        topic = other.image.topics_by_name["t"]
        wrong = replace(topic, partitions=(replace(topic.partitions[0], leader=2),))
        other.metadata.image = replace(other.image, topics_by_name=other.image.topics_by_name.set("t", wrong))
        seen: list[Change] = []
        active(brokers).metadata.on_change(lambda before, after, changes: seen.extend(changes))
        assert other._follower is not None
        with pytest.raises(ReplayError, match="replay it differently"):
            await other._follower
        assert any(isinstance(change, VerifyDigest) for change in seen)
        assert active(brokers).controller.is_active
        await asyncio.sleep(60)
        assert sum(isinstance(change, VerifyDigest) for change in seen) == 1, "nothing changed since"

    simulate(main())


def test_reassignments_end_when_the_new_replicas_are_in_sync() -> None:
    async def main() -> None:
        brokers = await start(MemoryStore())
        changes: list[Change] = [CreateTopic(TOPIC, "t"), CreatePartition(TOPIC, 0, (1, 2), (1, 2), 1)]
        await brokers[0].metadata.change(lambda image: Decision(changes, None))
        begin = ChangePartition(TOPIC, 0, 0, replicas=(1, 3, 2), adding=(3,), removing=(2,))
        await brokers[0].metadata.change(lambda image: Decision([begin], None))
        await asyncio.sleep(3)
        state = state_of(brokers[0])
        assert state.replicas == (1, 3, 2)
        in_sync = ChangePartition(TOPIC, 0, state.partition_epoch, isr=(1, 2, 3))
        await brokers[0].metadata.change(lambda image: Decision([in_sync], None))
        await until(lambda: state_of(brokers[0]).replicas == (1, 3))
        assert sorted(state_of(brokers[0]).isr) == [1, 3]

    simulate(main())


def test_a_reassignment_ends_when_an_unclean_election_brings_the_new_replica_into_the_isr() -> None:
    """The old broker is gone before the new one was in sync: no leader proposes another ISR any more."""

    async def main() -> None:
        brokers = await start(MemoryStore())
        broker = active(brokers)
        old, new = (other for other in brokers if other is not broker)
        changes: list[Change] = [
            CreateTopic(TOPIC, "t"),
            SetConfig(ConfigResource.TOPIC, "t", "unclean.leader.election.enable", "true"),
            CreatePartition(TOPIC, 0, (old.id,), (old.id,), old.id),
        ]
        await broker.metadata.change(lambda image: Decision(changes, None))
        await broker.metadata.change(lambda image: alter_reassignments(image, [(TopicPartition("t", 0), [new.id])]))
        old.die()
        await until(lambda: state_of(broker).leader == new.id)
        await until(lambda: state_of(broker).replicas == (new.id,))
        assert not state_of(broker).adding

    simulate(main())


def test_unclean_elections_where_the_topic_allows_them() -> None:
    """As soon as the setting is there, without another event."""

    async def main() -> None:
        brokers = await start(MemoryStore())
        broker = active(brokers)
        others = [other.id for other in brokers if other is not broker]
        gone, left = others
        await create(broker, leader=gone, isr=(gone,))
        await broker.metadata.change(
            lambda image: Decision([FenceBroker(gone, next(each.epoch for each in brokers if each.id == gone))], None)
        )
        assert state_of(broker).leader == -1
        await asyncio.sleep(5)
        assert state_of(broker).leader == -1
        allow = SetConfig(ConfigResource.TOPIC, "t", "unclean.leader.election.enable", "true")
        await broker.metadata.change(lambda image: Decision([allow], None))
        await until(lambda: state_of(broker).leader in (broker.id, left))

    simulate(main())


def test_a_controller_whose_work_keeps_failing_resigns() -> None:
    """Another broker takes over, and keeps the controllership for a while."""

    async def main() -> None:
        brokers = await start(MemoryStore())
        broken = active(brokers)

        async def fail() -> None:
            raise RuntimeError("this broker cannot do it")

        broken.controller._fence_dead = fail  # type: ignore[method-assign]
        await until(lambda: any(other.controller.is_active for other in brokers if other is not broken))
        await asyncio.sleep(COOLING_S + FAILURES_MAX)
        assert active(brokers) is not broken
        assert all(broken.image.serves(other.id) for other in brokers)

    simulate(main())


@pytest.mark.parametrize("is_applied", [False, True])
def test_a_controller_whose_resignation_was_lost(is_applied: bool) -> None:
    """Nobody else is elected while its node exists: it resigns again when its work still fails."""

    async def main() -> None:
        store = MemoryStore()
        brokers = await start(store)
        broken = active(brokers)
        lost: list[Operation] = []

        def decide(name: str, request: str, operations: Sequence[Operation]) -> Fate:
            is_resignation = request == "commit" and isinstance(operations[0], Delete)
            if not is_resignation or lost or name != f"broker-{broken.id}":
                return Fate()
            lost.extend(operations)
            return Fate(is_lost=True, is_applied=is_applied)

        async def fail() -> None:
            raise RuntimeError("this broker cannot do it")

        store.fate = decide
        broken.controller._fence_dead = fail  # type: ignore[method-assign]
        await until(lambda: bool(lost))
        await until(lambda: any(other.controller.is_active for other in brokers if other is not broken))
        assert broken.expirations == 0
        await asyncio.sleep(5)
        assert [broker.controller.is_active for broker in brokers].count(True) == 1

    simulate(main())


def test_the_store_is_away_for_a_minute() -> None:
    """Nobody is fenced for it, and the controller stays or another one follows."""

    async def main() -> None:
        store = MemoryStore()
        brokers = await start(store)
        epochs = [broker.epoch for broker in brokers]
        store.stop()
        await asyncio.sleep(60)
        assert all(broker.expirations == 0 for broker in brokers)
        store.start()
        await until(lambda: sum(broker.controller.is_active for broker in brokers) == 1)
        await asyncio.sleep(10)
        assert all(brokers[0].image.serves(broker.id) for broker in brokers)
        assert [broker.epoch for broker in brokers] == epochs

    simulate(main())
