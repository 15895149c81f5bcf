"""Groups and transactions under faults, for a few seeds; the same seed gives the same run; bugs are found.

`make simulate` runs many seeds.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from ottla.coordinators.consumer import rebalance as consumer_rebalance
from ottla.coordinators.consumer.members import Member
from ottla.coordinators.consumer.reconciliation import Goal, reconcile
from ottla.coordinators.offsets.offsets import Offsets
from ottla.coordinators.transactions.peers import LocalMarkers
from ottla.topic_partition import TopicPartition
from tests.samples import sample_size
from tests.simulation.coordination import run
from tests.simulation.ownership import Ownership
from tests.simulation.scenario import Verdict
from tests.simulation.transactor import Deed, Ledger, problems_of

SEEDS = sample_size(1, 100)
SEEDS_MAX = 10
FAILED_ONCE = (1524460914,)
"""Seeds that failed: a crash while the markers of a transaction were written at once."""


@cache
def run_once(seed: int) -> Verdict:
    return run(seed, trace_lines=1)


def test_no_seed_breaks_a_promise(seed: int) -> None:
    # The message names the command that runs each failing seed again.
    failures = []
    for number in range(SEEDS):
        verdict = run_once(seed + number)
        if verdict.problems:
            again = f"make simulate ARGS='--seed {verdict.seed} --only coordination --trace 100'"
            failures.append(f"{verdict}\n  to run it again: {again}")
    assert not failures, f"{len(failures)} of {SEEDS} seeds from {seed}:\n" + "\n".join(failures)


@pytest.mark.parametrize("kept", FAILED_ONCE)
def test_a_seed_that_failed_once_keeps_every_promise(kept: int) -> None:
    assert run(kept, trace_lines=1).problems == []


def test_the_same_seed_gives_the_same_trace(seed: int) -> None:
    assert run(seed).digest == run_once(seed).digest


# Bugs


def append_no_marker(markers: LocalMarkers, *args: Any) -> None:
    """A bug: report success without a marker, with nothing to wait for and nothing to retry."""


def take_from_others(member: Member, goal: Goal, *rest: Any) -> Member:
    return reconcile(member, replace(goal, taken={}), *rest)


def forget_what_was_committed(offsets: Offsets, producer_id: int, committed: bool) -> list[str]:
    return REAL_END(offsets, producer_id, False)


REAL_END = Offsets.end_transaction

MUTANTS: dict[str, tuple[object, str, Any, str]] = {
    "tells no partition of the end": (LocalMarkers, "append", append_no_marker, "STUCK"),
    "gives away what is not given back": (consumer_rebalance, "reconcile", take_from_others, "OWNED TWICE"),
    "aborts offsets that were committed": (Offsets, "end_transaction", forget_what_was_committed, "OFFSET"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_simulation_finds_a_bug_in_a_coordinator(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The seeds are fixed, because the test is about what the simulation can find, not about luck.
    kind, attribute, replacement, promise = MUTANTS[name]
    monkeypatch.setattr(kind, attribute, replacement)
    for seed in range(SEEDS_MAX):
        if any(problem.startswith(promise) for problem in run(seed, trace_lines=1).problems):
            return
    raise AssertionError(f"{SEEDS_MAX} seeds saw nothing wrong with a coordinator that {name}")


# The judges


def test_a_partition_with_two_owners_is_reported() -> None:
    # Member a keeps the partition before and after member b had it.
    owned = Ownership("g")
    owned.confirm("a", [0, 1], 1.0, 1.1)
    owned.confirm("b", [1], 2.0, 2.1)
    assert owned.problems == []
    owned.confirm("a", [0, 1], 2.05, 2.2)  # a asked before b was answered: nobody knows which was first
    assert owned.problems == []
    owned.confirm("a", [0, 1], 3.0, 3.1)
    assert len(owned.problems) == 1 and owned.problems[0].startswith("OWNED TWICE g-1: a")


def test_partitions_may_change_their_owner() -> None:
    # A member gives partitions back, or leaves them behind when it joins again, and later gets them back.
    owned = Ownership("g")
    for second, member, partitions in ((1, "a", [0, 1]), (2, "a", [0]), (3, "b", [1]), (4, "b", []), (5, "a", [0, 1])):
        owned.confirm(member, partitions, second, second + 0.1)
    owned.give_up("a")
    owned.confirm("b", [0, 1], 6, 6.1)
    owned.give_up("b")
    owned.confirm("a", [0, 1], 7, 7.1)
    assert owned.problems == []


LEDGER, OUTPUT = TopicPartition("ledgers", 0), TopicPartition("output", 0)


def find_problem_kinds(found: dict[TopicPartition, list[bytes]], offset: int, *told: bool | None) -> list[str]:
    deeds = [Deed(number, "p", [LEDGER, OUTPUT], outcome) for number, outcome in enumerate(told)]
    return [problem.split()[0] for problem in problems_of(Ledger("w", LEDGER, deeds), found, offset)]


def build_values(*numbers: int) -> list[bytes]:
    return [b"other:5", *(b"w:%d" % number for number in numbers)]


def test_transactions_that_ended_as_their_producers_were_told_pass() -> None:
    # One transaction was committed, one aborted, and two have an unknown outcome.
    both = {LEDGER: build_values(0, 2), OUTPUT: build_values(0, 2)}
    assert find_problem_kinds(both, 2, True, False, None, None) == []
    assert find_problem_kinds({LEDGER: build_values(), OUTPUT: build_values()}, -1, False, None) == []


def test_every_kind_of_wrong_transaction_is_reported() -> None:
    # One call for each thing that can be wrong.
    everything = {LEDGER: build_values(0, 1), OUTPUT: build_values(0, 1)}
    wrong: list[tuple[str, Callable[[], list[str]]]] = [
        ("IN", lambda: find_problem_kinds({LEDGER: build_values(0, 1), OUTPUT: build_values(0)}, 1, True, None)),
        ("WRONG", lambda: find_problem_kinds(everything, 1, True, False)),
        ("WRONG", lambda: find_problem_kinds({LEDGER: build_values(0), OUTPUT: build_values(0)}, 0, True, True)),
        ("OFFSET", lambda: find_problem_kinds(everything, 0, True, True)),
        (
            "REORDERED",
            lambda: find_problem_kinds({LEDGER: build_values(1, 0), OUTPUT: build_values(1, 0)}, 0, True, True),
        ),
        (
            "REORDERED",
            lambda: find_problem_kinds({LEDGER: build_values(0, 1), OUTPUT: build_values(1, 0)}, 1, True, True),
        ),
        (
            "TWICE",
            lambda: find_problem_kinds({LEDGER: build_values(0, 0, 1), OUTPUT: build_values(0, 1)}, 1, True, True),
        ),
    ]
    for first, judge in wrong:
        assert first in judge()
