"""Several whole brokers in a simulation: their machines, the store they share, and clients that find leaders.

The store is the one in memory, on virtual time, with delays and lost answers that a seed decides. It looks at every
entry of the metadata log as it is written. A client asks some broker that is up who leads a partition; what that broker
knows may be old.
"""

from collections.abc import Mapping, Sequence
from random import Random

from ottla.cluster.memory_store import Fate
from ottla.cluster.store import Operation
from ottla.topic_partition import TopicPartition
from tests.simulation.process import MachineClock
from tests.simulation.store.judge import WitnessedStore
from tests.simulation.world import Machine, World

BROKERS = 3
SESSION_TIMEOUT_S = 6.0
LOST_CHANCE = 0.01
GUESS_CHANCE = 0.1
LIFE = 1
"""A cluster has one life: the checker excuses nothing."""


class SimulatedCluster:
    def __init__(self, world: World, settings: Mapping[str, str]) -> None:
        self.world = world
        self.store = WitnessedStore(SESSION_TIMEOUT_S, world.surprises)
        self._fates = world.random("store")
        self.is_in_trouble = True
        self.store.fate = self._decide
        self.machines = [
            world.add_machine(f"broker-{number}", {"node.id": str(number), **settings}, self.store)
            for number in range(1, BROKERS + 1)
        ]

    def _decide(self, client: str, request: str, operations: Sequence[Operation]) -> Fate:
        random = self._fates
        is_lost = self.is_in_trouble and request != "open" and random.random() < LOST_CHANCE
        return Fate(
            random.uniform(0.0002, 0.003), random.uniform(0.0002, 0.003), is_lost, not is_lost or random.random() < 0.7
        )

    @property
    def up(self) -> list[Machine]:
        return [machine for machine in self.machines if machine.up.is_set()]

    def find_leader(self, partition: TopicPartition, random: Random) -> Machine | None:
        """Who leads, as some broker that is up knows it."""
        if not self.up:
            return None
        process = random.choice(self.up).process
        assert process is not None
        state = process.broker.node.metadata.image.partition(*partition)
        return dict(enumerate(self.machines, 1)).get(state.leader) if state is not None else None


class LeaderRoute:
    """Stands for a machine in the clients of a simulation: each connection goes to whoever leads a partition.

    Without a partition, or if nobody leads, it goes to any broker.
    """

    def __init__(self, cluster: SimulatedCluster, partition: TopicPartition | None, random: Random) -> None:
        self.world = cluster.world
        self.life = LIFE
        self.clock = MachineClock(cluster.world.loop)
        self._cluster = cluster
        self._partition = partition
        self._random = random

    @property
    def name(self) -> str:
        """The host to connect to now."""
        leader = None
        if self._partition is not None and self._random.random() >= GUESS_CHANCE:
            leader = self._cluster.find_leader(self._partition, self._random)
        return (leader or self._random.choice(self._cluster.machines)).name
