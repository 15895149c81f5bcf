"""Stores in memory that look at every entry as it is committed, and say which promise of the log it breaks.

Of any brokers (`WitnessedStore`):

ZOMBIE       written by a session whose broker is not alive
RIVALS       elects a controller while another one lives
MALFORMED    does not fit the image that the entries before it make

Of brokers that fence others on suspicion only with a mark, and whose settings are each changed once (`JudgedStore`):

USURPER      written as the controller by a session without a controller node
MURDER       fences a broker whose session lives
TWICE        a change that was requested once is in two entries
LOST         a change that was acknowledged is in no entry
REFUSED      a change that was refused is in an entry
DIFFERS      two brokers have different images of the same version
STUCK        the brokers did not agree after the faults were over
"""

from collections.abc import Sequence
from enum import Enum

from ottla.cluster import znodes
from ottla.cluster.changes import BecomeController, Change, FenceBroker, RegisterBroker, SetConfig
from ottla.cluster.image import EMPTY, Image, ReplayError
from ottla.cluster.memory_store import MemorySession, MemoryStore
from ottla.cluster.memory_tree import Tree
from ottla.cluster.store import Create, Operation

BY_PEER = "fenced.by.peer"
"""A setting in entries that fence a broker on suspicion. They need no controller, and the broker may be alive."""


class Outcome(Enum):
    ACKNOWLEDGED = "acknowledged"
    UNKNOWN = "unknown"
    REFUSED = "refused"


class WitnessedStore(MemoryStore):
    """`problems`: where to write down what is wrong with an entry."""

    def __init__(self, session_timeout_s: float, problems: list[str]) -> None:
        super().__init__(session_timeout_s)
        self.problems = problems
        self.image: Image = EMPTY

    def commit(self, session: MemorySession, operations: Sequence[Operation]) -> None:
        found = [item for item in operations if isinstance(item, Create) and item.path.startswith(f"{znodes.LOG}/")]
        tree: Tree = self._tree
        alive = {name: tree.get(f"{znodes.ALIVE}/{name}").owner for name in _children(tree, znodes.ALIVE)}
        controllers = {
            name: tree.get(f"{znodes.CONTROLLER}/{name}").owner for name in _children(tree, znodes.CONTROLLER)
        }
        super().commit(session, operations)
        for item in found:
            version = int(item.path.rpartition("/")[2])
            entry = znodes.decode_entry(version, item.data)
            self._judge(version, session, entry.changes, alive, controllers)

    def _judge(
        self,
        version: int,
        session: MemorySession,
        changes: tuple[Change, ...],
        alive: dict[str, int],
        controllers: dict[str, int],
    ) -> None:
        """`alive` and `controllers`: the nodes of both kinds before the entry, and the sessions that own them."""
        before = self.image.controller
        try:
            self.image = self.image.replay(version, changes)
        except ReplayError as error:
            self.problems.append(f"MALFORMED entry {version}: {error}")
        registers = any(isinstance(item, RegisterBroker) for item in changes)
        if changes and not registers and session.id not in alive.values():
            self.problems.append(f"ZOMBIE {session.name} wrote entry {version}")
        elects = any(isinstance(item, BecomeController) for item in changes)
        if elects and before is not None and str(before.epoch) in controllers:
            self.problems.append(f"RIVALS of {session.name} in entry {version}")


class JudgedStore(WitnessedStore):
    def __init__(self, session_timeout_s: float) -> None:
        super().__init__(session_timeout_s, [])
        self.keys: dict[str, int] = {}
        """The version of the entry that has a key."""
        self.images: dict[int, Image] = {}
        self.counts: dict[str, int] = {}

    def _judge(
        self,
        version: int,
        session: MemorySession,
        changes: tuple[Change, ...],
        alive: dict[str, int],
        controllers: dict[str, int],
    ) -> None:
        super()._judge(version, session, changes, alive, controllers)
        if not changes:
            self.counts["empty entries"] = self.counts.get("empty entries", 0) + 1
        self.images[version] = self.image
        by_peer = any(isinstance(item, SetConfig) and item.key == BY_PEER for item in changes)
        for item in changes:
            self.counts[type(item).__name__] = self.counts.get(type(item).__name__, 0) + 1
            if isinstance(item, FenceBroker) and not by_peer:
                if session.id not in controllers.values():
                    self.problems.append(f"USURPER {session.name} wrote entry {version}")
                if f"{item.broker_id}-{item.broker_epoch}" in alive:
                    self.problems.append(f"MURDER of broker {item.broker_id} in entry {version}")
            elif isinstance(item, SetConfig) and item.key != BY_PEER:
                if item.key in self.keys:
                    self.problems.append(f"TWICE {item.key} in entries {self.keys[item.key]} and {version}")
                self.keys[item.key] = version

    def judge_outcomes(self, outcomes: dict[str, Outcome]) -> None:
        for key, outcome in sorted(outcomes.items()):
            if outcome is Outcome.ACKNOWLEDGED and key not in self.keys:
                self.problems.append(f"LOST {key}")
            if outcome is Outcome.REFUSED and key in self.keys:
                self.problems.append(f"REFUSED {key}, which is in entry {self.keys[key]}")


def _children(tree: Tree, path: str) -> list[str]:
    try:
        return tree.children(path)
    except Exception:  # the cluster is new
        return []
