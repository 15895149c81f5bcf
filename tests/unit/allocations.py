"""How much memory a piece of work allocates."""

import tracemalloc
from collections.abc import Callable

MEASUREMENTS = 3


def measure_peak(work: Callable[[], object]) -> int:
    """The most bytes that `work` had allocated at once. It is called several times.

    tracemalloc counts the allocations of all threads, and a worker of the suite has one that talks to the process which
    hands out the tests. So the smallest measurement is the one of the work alone.
    """
    return min(_measure(work) for _ in range(MEASUREMENTS))


def _measure(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
