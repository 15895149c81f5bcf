"""Trouble for a cluster: what is done to it, how long it lasts, and how it ends. A seed decides.

Faults come one after the other, sometimes two at a time, and never to two brokers at once for good: with two of three
replicas in sync at least, and no lost disk, nothing that was acknowledged may be lost, whatever happens.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from random import Random

from tests.cluster.load import Load
from tests.cluster.processes import SESSION_MS, OttlaNode, OttlaNodes, fill_disk, free_disk

ROLES = ("leader", "follower", "controller", "group coordinator", "transaction coordinator", "any broker")
SHORT_S = 0.5
LONG_S = 3 * SESSION_MS / 1000
"""Three sessions."""

Inflict = Callable[[], AbstractContextManager[None]]
"""The fault lasts as long as the context."""


class Faults:
    """Chooses faults for a running cluster under load. `told` is what was done, for a person to read."""

    def __init__(self, nodes: OttlaNodes, load: Load, random: Random) -> None:
        self.told: list[str] = []
        self._nodes = nodes
        self._load = load
        self._random = random
        kinds: list[Callable[[], AbstractContextManager[None]]] = [
            self._kill,
            self._kill,
            self._stop,
            self._pause,
            self._cut_from_zookeeper,
            self._cut_from_peers,
            self._cut_pair,
            self._kill_zookeeper,
            self._pause_zookeeper,
        ]
        self._kinds = kinds + [self._fill_disk] * nodes.has_disks
        self._deck: list[Inflict] = []

    def strike(self) -> None:
        """One fault, or two at a time, for a while; when this returns everything runs and is connected again."""
        # A broker is started again last, because it ends if it cannot reach ZooKeeper.
        with ExitStack() as starts, ExitStack() as others:
            self._inflict(starts, others)
            if self._random.random() < 0.2:
                time.sleep(self._random.uniform(0, SHORT_S))
                self._inflict(starts, others)
            time.sleep(self._random.choice((SHORT_S, LONG_S / 3, LONG_S)))

    def _inflict(self, starts: ExitStack, others: ExitStack) -> None:
        fault = self._draw()
        (starts if fault in (self._kill, self._stop) else others).enter_context(fault())

    def _draw(self) -> Inflict:
        """Each kind of fault once before any comes again."""
        if not self._deck:
            self._deck = list(self._kinds)
            self._random.shuffle(self._deck)
        return self._deck.pop()

    def _tell(self, what: str) -> None:
        self.told.append(what)
        print(what, flush=True)

    def _choose(self) -> tuple[str, OttlaNode]:
        """A broker that is up, by the part it plays, and that part."""
        role = self._random.choice(ROLES)
        found: int | None = None
        partition = self._random.choice(self._load.ledger)
        leader, in_sync = self._nodes.find_partitions(partition.topic).get(partition.partition, (-1, ()))
        if role == "leader":
            found = leader
        elif role == "follower":
            found = next((broker for broker in in_sync if broker != leader), None)
        elif role == "group coordinator":
            found = self._nodes.find_coordinator(self._load.group, 0)
        elif role == "transaction coordinator":
            found = self._nodes.find_coordinator(self._load.transactors[0].name, 1)
        elif role == "controller":
            found = self._nodes.find_controller()
        up = [broker for broker in self._nodes.brokers.values() if broker.is_up and not broker.is_paused]
        for broker in up:
            if broker.id == found:
                return role, broker
        return "any broker", self._random.choice(up)

    @contextmanager
    def _kill(self) -> Iterator[None]:
        role, broker = self._choose()
        self._tell(f"kill {broker.name}, {role}")
        broker.kill()
        yield
        broker.start()

    @contextmanager
    def _stop(self) -> Iterator[None]:
        role, broker = self._choose()
        self._tell(f"stop {broker.name}, {role}")
        broker.terminate()
        yield
        broker.start()

    @contextmanager
    def _pause(self) -> Iterator[None]:
        role, broker = self._choose()
        self._tell(f"pause {broker.name}, {role}")
        broker.pause()
        yield
        broker.resume()

    @contextmanager
    def _cut_from_zookeeper(self) -> Iterator[None]:
        role, broker = self._choose()
        with self._cut(broker.name, "zookeeper", role):
            yield

    @contextmanager
    def _cut_pair(self) -> Iterator[None]:
        role, broker = self._choose()
        other = self._random.choice([each for each in self._nodes.brokers.values() if each is not broker])
        with self._cut(broker.name, other.name, role):
            yield

    @contextmanager
    def _cut_from_peers(self) -> Iterator[None]:
        """A broker that reaches neither of the others, and still has its session with ZooKeeper."""
        role, broker = self._choose()
        with ExitStack() as stack:
            for other in self._nodes.brokers.values():
                if other is not broker:
                    stack.enter_context(self._cut(broker.name, other.name, role, both=True))
            yield

    @contextmanager
    def _cut(self, one: str, other: str, role: str, *, both: bool | None = None) -> Iterator[None]:
        both = self._random.random() < 0.5 if both is None else both
        if not both and self._random.random() < 0.5:
            one, other = other, one
        self._tell(f"cut {one} ({role}) {'and' if both else 'to'} {other}")
        self._nodes.cut(one, other, both=both)
        yield
        self._nodes.heal(one, other)

    @contextmanager
    def _kill_zookeeper(self) -> Iterator[None]:
        server = self._random.choice(self._nodes.zookeepers)
        if server.pid is None:  # another fault has killed it: started twice, it would leave one process behind
            yield
            return
        self._tell("kill ZooKeeper")
        server.kill()
        yield
        server.start()

    @contextmanager
    def _pause_zookeeper(self) -> Iterator[None]:
        server = self._random.choice(self._nodes.zookeepers)
        self._tell("pause ZooKeeper")
        server.pause()
        yield
        server.resume()

    @contextmanager
    def _fill_disk(self) -> Iterator[None]:
        role, broker = self._choose()
        directory = self._random.choice(broker.directories)
        self._tell(f"fill the disk of {broker.name} ({directory.name}), {role}")
        fill_disk(directory)
        yield
        free_disk(directory)
