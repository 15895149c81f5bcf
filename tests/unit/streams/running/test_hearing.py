"""Which source partitions a task must hear of before it closes windows."""

from ottla.streams.planning.plan import AppPlan
from ottla.streams.planning.planner import make_plan
from ottla.streams.running.hearing import Hearing
from ottla.streams.windows import tumbling
from tests.unit.streams.planning.topologies import count, rekey, source

NUMBERS = {"in": 100}
COUNTS = {"in": 3}


def plan() -> AppPlan:
    return make_plan("app", [count(rekey(source("in"), "value"), "counts", tumbling(10))], COUNTS)


def test_a_task_behind_an_exchange_hears_of_all_partitions_that_have_rows() -> None:
    hearing = Hearing(plan(), COUNTS, NUMBERS)
    hearing.note("in", 0, is_silent=False)
    hearing.note("in", 1, is_silent=True)

    assert hearing.list_awaited("counts", 2) == [100, 102]  # nobody has looked at the third one


def test_a_partition_that_has_had_rows_is_never_silent_again() -> None:
    """Another subtopology may have read nothing of it yet."""
    hearing = Hearing(plan(), COUNTS, NUMBERS)
    for is_silent in (True, False, True):
        for partition in range(3):
            hearing.note("in", partition, is_silent=is_silent)

    assert hearing.list_awaited("counts", 0) == [100, 101, 102]


def test_a_task_without_windows_waits_for_nobody() -> None:
    assert Hearing(plan(), COUNTS, NUMBERS).list_awaited("in-to-counts-repartition", 0) == []
