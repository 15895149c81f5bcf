"""The shared metadata under faults of the store, for a few seeds; the same seed gives the same run; bugs are found.

`make simulate` runs many seeds.
"""

import asyncio
import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ottla.cluster.change_queue import ChangeQueue
from ottla.cluster.changes import Change
from ottla.cluster.controller import Controller, fence_brokers
from ottla.cluster.metadata import Metadata
from ottla.cluster.metadata_log import Conflict, NotAMember
from ottla.cluster.shared_log import SharedLog
from ottla.cluster.store import Check, Operation
from ottla.errors import ErrorCode, KafkaError
from tests.samples import sample_size
from tests.simulation.store.scenario import Verdict, run

SEEDS = sample_size(1, 100)
SEEDS_MAX = 60
EVENTFUL = 1
"""A seed whose faults do everything that the scenario is for."""
FIRST_SEEDS = {
    "appends without the alive check": 1,
    "takes a lost connection for a failed append": 1,
    "takes a missing entry for a failed append": 1,
    "acts as controller after it was one": 1,
    "fences by an old list of nodes": 1,
    "says that a change failed that is under way": 8,
}
"""Where the search begins: seeds before these find nothing, or take long."""


@functools.cache
def run_once(seed: int) -> Verdict:
    return run(seed)


def test_no_seed_breaks_a_promise(seed: int) -> None:
    # The message names the command that runs each failing seed again.
    failures = []
    for number in range(SEEDS):
        verdict = run_once(seed + number)
        if verdict.problems:
            again = f"make simulate ARGS='--seed {verdict.seed} --only store'"
            failures.append(f"{verdict}\n  to run it again: {again}")
    assert not failures, f"{len(failures)} of {SEEDS} seeds from {seed}:\n" + "\n".join(failures)


def test_the_same_seed_gives_the_same_log_and_another_seed_another(seed: int) -> None:
    assert run_once(EVENTFUL).digest == run(EVENTFUL).digest
    assert run_once(EVENTFUL).digest != run_once(seed).digest


def test_the_faults_reach_what_they_are_for() -> None:
    """Brokers are fenced, controllers elected again, and appends settled by empty entries."""
    counts = run_once(EVENTFUL).counts
    for kind, least in (("FenceBroker", 5), ("BecomeController", 3), ("empty entries", 1), ("RegisterBroker", 10)):
        assert counts.get(kind, 0) >= least, kind


# Bugs


def without_alive_check(log: SharedLog, version: int, changes: Sequence[Change], as_controller: bool) -> Any:
    try:
        operations: list[Operation] = REAL_OPERATIONS(log, version, changes, as_controller)
    except NotAMember:
        return []
    return [item for item in operations if not (isinstance(item, Check) and "/alive/" in item.path)]


async def take_for_failed(log: SharedLog, version: int, entry_id: bytes) -> None:
    raise Conflict("the connection broke, so nothing can have been appended")


async def take_for_proof(log: SharedLog, *args: Any) -> None:
    """Not finding the entry is taken for a proof that it will never be there."""


async def send_again(log: SharedLog, expected_version: int, entry_id: bytes, changes: Any, **options: Any) -> int:
    while True:
        try:
            return await REAL_APPEND(log, expected_version, entry_id, changes, **options)
        except Conflict:
            await log.read(expected_version)
            expected_version = log.head


async def change_as_anybody(
    metadata: Metadata, decide: Any, *args: Any, as_controller: bool = False, **rest: Any
) -> Any:
    return await REAL_CHANGE(metadata, decide, *args, **rest)


async def change_for_ever(controller: Controller, decide: Any) -> Any:
    return await REAL_CHANGE(controller._metadata, decide, 10.0)


def believe_for_ever(controller: Controller) -> bool:
    elected = controller._metadata.image.controller
    if elected is not None and elected.epoch == controller._membership.log.controller_epoch:
        BELIEVERS.add(id(controller))
    return id(controller) in BELIEVERS


async def list_nodes_first(controller: Controller) -> None:
    alive = await controller._membership.list_alive()
    await asyncio.sleep(0.5)
    serving = {broker.id: broker.epoch for broker in controller._metadata.image.all_brokers() if not broker.fenced}
    dead = {broker_id: epoch for broker_id, epoch in serving.items() if alive.get(broker_id) != epoch}
    await controller._change(lambda image: fence_brokers(image, dead))


def forget_that_it_is_under_way(queue: ChangeQueue, pending: Any, timeout_s: float) -> None:
    if not pending.future.done():
        pending.future.set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too late"))


REAL_OPERATIONS, REAL_APPEND, REAL_CHANGE = SharedLog._list_membership_operations, SharedLog.append, Metadata.change
BELIEVERS: set[int] = set()

Patch = tuple[type, str, Callable[..., Any] | property]

MUTANTS: dict[str, tuple[list[Patch], str]] = {
    "appends without the alive check": ([(SharedLog, "_list_membership_operations", without_alive_check)], "ZOMBIE"),
    "takes a lost connection for a failed append": ([(SharedLog, "_settle", take_for_failed)], "TWICE"),
    "takes a missing entry for a failed append": ([(SharedLog, "_take_version", take_for_proof)], "TWICE"),
    "sends a lost compare-and-set again as it was": ([(SharedLog, "append", send_again)], ""),
    "acts as controller after it was one": (
        [
            (Metadata, "change", change_as_anybody),
            (Controller, "_change", change_for_ever),
            (Controller, "is_active", property(believe_for_ever)),
        ],
        "USURPER",
    ),
    "fences by an old list of nodes": ([(Controller, "_fence_dead", list_nodes_first)], "MURDER"),
    "says that a change failed that is under way": (
        [(ChangeQueue, "_give_up", forget_that_it_is_under_way)],
        "REFUSED",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_simulation_finds_a_bug(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The seeds are fixed, because the test is about what the simulation can find, not about luck.
    patches, promise = MUTANTS[name]
    BELIEVERS.clear()
    for kind, attribute, replacement in patches:
        monkeypatch.setattr(kind, attribute, replacement)
    first = FIRST_SEEDS.get(name, 0)
    for seed in range(first, first + SEEDS_MAX):
        if any(problem.startswith(promise) for problem in run(seed).problems):
            return
    pytest.fail(f"{SEEDS_MAX} seeds were not enough to find it")
