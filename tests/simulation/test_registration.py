"""A broker registers while its session expires, or while others fence it: in the end it is in the cluster."""

import asyncio
from collections.abc import Sequence

import pytest

from ottla.cluster.memory_store import Fate, MemoryStore
from ottla.cluster.registration import fence_broker
from ottla.cluster.store import Create, Operation
from tests.simulation.history import Ending
from tests.simulation.loop import simulate
from tests.simulation.world import Machine, World
from tests.unit.cluster.cluster_members import Member

NAME = "broker-1"
PATIENCE_S = 60.0
"""Virtual seconds, several session time-outs."""


class Cluster:
    """One broker and its store. Some commits of the broker cost it its session, right after they were applied."""

    def __init__(self, world: World, commits: frozenset[int], **settings: str) -> None:
        self.world = world
        self.store = MemoryStore()
        self.store.fate = self._decide
        self.machine: Machine = world.add_machine(NAME, {"node.id": "1"} | settings, self.store)
        self._commits = commits
        self._registrations = 0
        self._since = -1

    def _decide(self, client: str, request: str, operations: Sequence[Operation]) -> Fate:
        if request == "commit":
            if any(isinstance(each, Create) and each.ephemeral for each in operations):
                self._registrations += 1
                self._since = -1
            self._since += 1
            if self._registrations == 1 and self._since in self._commits:
                self.world.loop.call_later(0.0015, self.store.expire, NAME)
        return Fate(0.001, 0.001)

    def is_serving(self) -> bool:
        process = self.machine.process
        if process is None or not self.machine.up.is_set():
            return False
        broker = process.broker.node.metadata.image.broker(1)
        return broker is not None and broker.serves and broker.epoch == process.broker.participation.broker_epoch


async def wait_until_serving(cluster: Cluster) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not cluster.is_serving():
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("commit", [0, 1, 2])
def test_a_session_that_expires_while_the_broker_starts(commit: int) -> None:
    # Commit 0 registers the broker, the next ones introduce features and unfence it.
    async def scenario() -> None:
        world = World(1)
        cluster = Cluster(world, frozenset({commit}))
        async with asyncio.timeout(PATIENCE_S):
            assert await cluster.machine.start()
        await wait_until_serving(cluster)
        await asyncio.sleep(2 * cluster.store.session_timeout_s)
        assert cluster.is_serving() and not world.surprises
        cluster.machine.crash(Ending.KILL)
        world.close()

    simulate(scenario())


@pytest.mark.parametrize("commit", [0, 1, 2, 3, 4])
def test_a_session_that_expires_while_the_broker_creates_its_first_users(commit: int) -> None:
    # Commits 2 and 3 create the users. Only a broker that is registered can, and it serves nobody before they exist.
    async def scenario() -> None:
        world = World(1)
        users = "SCRAM-SHA-256=[name=alice,password=secret],SCRAM-SHA-512=[name=bob,password=secret]"
        cluster = Cluster(world, frozenset({commit}), **{"initial.scram.credentials": users})
        async with asyncio.timeout(PATIENCE_S):
            assert await cluster.machine.start()
        await wait_until_serving(cluster)
        process = cluster.machine.process
        assert process is not None
        assert {name for name, _ in process.broker.node.metadata.image.identities.scram} == {"alice", "bob"}
        assert not world.surprises
        cluster.machine.crash(Ending.KILL)
        world.close()

    simulate(scenario())


def test_a_broker_that_is_fenced_as_soon_as_it_is_unfenced_registers_again() -> None:
    # The entry that fences the broker is there before the broker gets the answer to the one that unfences it.
    async def scenario() -> None:
        world = World(1)
        cluster = Cluster(world, frozenset())
        other = Member(cluster.store.client("other"), 2)
        await other.join()
        assert await cluster.machine.start()
        process = cluster.machine.process
        assert process is not None
        first = process.broker.participation.broker_epoch
        cluster.store.fate = lambda client, *_: Fate(0.001, 0.2 if client == NAME else 0.001)
        cluster.store.expire(NAME)
        async with asyncio.timeout(PATIENCE_S):
            while (broker := other.image.broker(1)) is None or broker.epoch == first or broker.fenced:
                await asyncio.sleep(0.001)
        epoch = broker.epoch
        await other.metadata.change(lambda image: fence_broker(image, 1, epoch))
        await asyncio.sleep(10)
        assert cluster.is_serving() and process.broker.participation.broker_epoch > epoch
        other.die()
        cluster.machine.crash(Ending.KILL)
        world.close()

    simulate(scenario())


@pytest.mark.parametrize(
    ("ending", "is_clean"), [(Ending.SHUTDOWN, True), (Ending.KILL, True), (Ending.POWER_CUT, False)]
)
def test_only_a_power_cut_makes_a_broker_incomplete(ending: Ending, is_clean: bool) -> None:
    # What a process has written is still there after it was killed. So it stays eligible where it was in sync.
    async def scenario() -> None:
        world = World(1)
        cluster = Cluster(world, frozenset())
        for _ in range(2):
            assert await cluster.machine.start()
            if ending is Ending.SHUTDOWN:
                assert await cluster.machine.stop()
            else:
                cluster.machine.crash(ending)
        assert await cluster.machine.start()
        process = cluster.machine.process
        assert process is not None
        broker = process.broker.node.metadata.image.broker(1)
        assert broker is not None and broker.clean is is_clean
        cluster.machine.crash(Ending.KILL)
        world.close()

    simulate(scenario())
