"""How fast this machine is while the suite runs: a fixed piece of work, timed every few seconds between two tests.

Budgets are seconds of a quiet machine. One that is slower, or busy with something else, takes longer for the piece of
work as well, and by about as much.
"""

import time
from collections.abc import Callable

PIECE = 500_000
PIECE_S = 0.02
"""What the piece takes on the machine that the budgets were measured on."""
INTERVAL_S = 5.0


def work() -> None:
    total = 0
    for number in range(PIECE):
        total += number % 7


class Pace:
    def __init__(self, now: Callable[[], float] = time.monotonic, piece: Callable[[], None] = work) -> None:
        self._now = now
        self._piece = piece
        self._next = 0.0
        self._samples: list[float] = []

    def sample(self) -> None:
        """Unless there is a fresh sample already."""
        began = self._now()
        if began < self._next:
            return
        self._piece()
        ended = self._now()
        self._samples.append(ended - began)
        self._next = ended + INTERVAL_S

    def factor(self) -> float:
        """How many times longer than on a quiet machine everything has taken so far; never less than 1."""
        if not self._samples:
            return 1.0
        return max(1.0, sum(self._samples) / len(self._samples) / PIECE_S)
