"""Checks who owns which partitions: no partition has two owners at a time, as far as their clients can know.

The broker decided each answer that lets a member keep its partitions at some moment between the request and the answer.
If one member was allowed to keep a partition, then another member was, and then the first one again without having been
told anything else in between, then both members owned the partition at once.
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
        """Member -> partition -> when the broker first confirmed that the member owns it."""
        self._confirmations: dict[int, list[Confirmation]] = defaultdict(list)
        self.problems: list[str] = []

    @property
    def confirmations(self) -> int:
        return sum(map(len, self._confirmations.values()))

    def confirm(self, member: str, partitions: Iterable[int], asked_s: float, answered_s: float) -> None:
        """Record an answer of the broker: the member owns these partitions and no others."""
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
        """Record that the member gives up its partitions: the broker told it to, or it is about to join again."""
        self._claims.pop(member, None)
