"""Which worker runs which connector: balanced, and with as few moves as that takes. The leader of the group decides.

A connector that moves is first taken from its worker and is nobody's for a while; the worker rejoins when the connector
has stopped, and only then another worker gets it. Connectors that do not move go on running all the time.
"""

from collections.abc import Callable, Collection, Mapping


def assign(
    owned: Mapping[str, Collection[str]], connectors: Collection[str], held_back: Collection[str] = ()
) -> dict[str, list[str]]:
    """The connectors of each member. `owned` is what each member runs now; what is `held_back` goes to nobody."""
    shares = _divide(owned, len(connectors))
    found: dict[str, list[str]] = {member: [] for member in owned}
    owners = {name: member for member in sorted(owned, reverse=True) for name in owned[member]}
    for name in sorted(connectors):
        keeper = owners.get(name)
        if keeper is not None and len(found[keeper]) < shares[keeper]:
            found[keeper].append(name)
    for name in sorted(connectors):
        if name not in owners and name not in held_back:
            member = min(sorted(found), key=lambda each: len(found[each]) - shares[each])
            found[member].append(name)
    return found


def _divide(owned: Mapping[str, Collection[str]], count: int) -> dict[str, int]:
    """How many connectors each member gets. What is left over goes to those that run the most."""
    least, rest = divmod(count, max(len(owned), 1))
    by_load = sorted(owned, key=lambda member: (-len(owned[member]), member))
    return {member: least + (rank < rest) for rank, member in enumerate(by_load)}


class TakeoverDelay:
    """Keeps the connectors of a lost member for it, in case it returns soon (scheduled.rebalance.max.delay.ms)."""

    def __init__(self, delay_s: float, seconds: Callable[[], float]) -> None:
        self._delay_s = delay_s
        self._seconds = seconds
        self._assigned: Mapping[str, Collection[str]] = {}
        self._held: frozenset[str] = frozenset()
        self._members_before = 0
        self._until_s = 0.0

    def hold_back(self, owned: Mapping[str, Collection[str]]) -> frozenset[str]:
        """The connectors that are not to be assigned yet."""
        running = {name for names in owned.values() for name in names}
        lost = {name for member, names in self._assigned.items() if member not in owned for name in names} - running
        if lost and self._delay_s > 0:
            if not self._held:
                self._members_before = len(self._assigned)
                self._until_s = self._seconds() + self._delay_s
            self._held |= lost
        if self._seconds() >= self._until_s or len(owned) >= self._members_before:
            self._held = frozenset()
        return self._held

    def remember(self, assigned: Mapping[str, Collection[str]]) -> None:
        self._assigned = assigned

    def is_over(self) -> bool:
        """Whether connectors are held back whose time is over: the group has to be rebalanced."""
        return bool(self._held) and self._seconds() >= self._until_s
