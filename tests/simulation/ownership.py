"""The judge of who owns what: no partition has two owners at a time, as far as their clients can know.

Every answer that lets a member go on with its partitions was given at some moment between its request and itself. If
one member was let go on with a partition, then another one with the same, and then the first one again, who had not
been told anything else in between, then both had it at once.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple


class Confirmation(NamedTuple):
    member: str
    asked_s: float
    answered_s: float


class Ownership:
    """Who owns the partitions of one group."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._claims: dict[str, dict[int, float]] = defaultdict(dict)
        """Since when each member owns its partitions."""
        self._confirmations: dict[int, list[Confirmation]] = defaultdict(list)
        self.problems: list[str] = []

    @property
    def confirmations(self) -> int:
        return sum(map(len, self._confirmations.values()))

    def confirm(self, member: str, partitions: Iterable[int], asked_s: float, answered_s: float) -> None:
        """The broker answered a member: it owns these partitions and no others."""
        claims = self._claims[member]
        wanted = sorted(partitions)
        for partition in [each for each in claims if each not in wanted]:
            del claims[partition]
        for partition in wanted:
            since = claims.setdefault(partition, answered_s)
            for other in self._confirmations[partition]:
                if other.member != member and since <= other.asked_s and other.answered_s <= asked_s:
                    self.problems.append(
                        f"OWNED TWICE {self._group}-{partition}: {member} since {since:.3f} s and still after "
                        f"{asked_s:.3f} s, {other.member} at {other.asked_s:.3f} s"
                    )
            self._confirmations[partition].append(Confirmation(member, asked_s, answered_s))

    def give_up(self, member: str) -> None:
        """The member gives up its partitions: the broker told it to, or it is about to join again."""
        self._claims.pop(member, None)
