"""Coincidences that seeds hardly ever bring about: with the rule nothing is lost, and without it the script notices."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from ottla.cluster import isr_changes
from ottla.cluster.memory_store import Fate
from ottla.cluster.store import Operation
from ottla.errors import ErrorCode
from ottla.replication.in_sync import Eligibility, InSync
from ottla.replication.isr_proposals import IsrProposals
from ottla.replication.reconciliation import Reconciliation
from ottla.storage.leftovers import remove_tree
from tests.simulation.history import Ending
from tests.simulation.metadata.test_metadata_simulation import ignore_member_epochs
from tests.simulation.script import LAG_S, TOPIC, Trial, play
from tests.simulation.world import Machine
from tests.unit.replication.test_in_sync import count_committed_only

SETTLING_S = 10.0

SEEDS = 10
"""How many worlds each script is tried in. In most of them it notices a broken rule."""


async def lose_records_of_a_follower(trial: Trial) -> None:
    """A follower comes back from a power cut without a record, and cannot fetch. Then the others die."""
    await asyncio.sleep(SETTLING_S)  # new logs are flushed; what comes now is in the page cache
    _, lossy = trial.followers
    for _ in range(20):
        assert (await trial.produce()).error_code == ErrorCode.NONE
    lossy.crash(Ending.POWER_CUT)
    trial.cut_off(lossy)
    assert await lossy.start()
    await asyncio.sleep(SETTLING_S)
    await let_one_remain(trial, lossy)


async def lose_the_answer_to_a_proposal(trial: Trial) -> None:
    """A follower joins the ISR, but the leader does not learn it, and the follower fetches no more."""
    complete, joining = trial.followers
    joining.crash(Ending.KILL)
    await trial.wait_until(lambda: trial.id_of(joining) not in trial.state_at(complete).isr)
    assert (await trial.produce()).error_code == ErrorCode.NONE
    assert await joining.start()
    trial.store.fate = lambda *request: lose_proposal(trial, joining, *request)
    await trial.wait_until(lambda: trial.id_of(joining) in trial.state_at(complete).isr)
    assert trial.id_of(joining) not in trial.state_at(trial.leader).isr, "the leader knows"
    trial.cut_off(joining)
    await trial.produce(timeout_ms=round(3 * LAG_S * 1000))
    await let_one_remain(trial, joining)


async def lose_a_log(trial: Trial) -> None:
    """A follower's log is removed while its broker is down. Then the broker runs alone, without any record."""
    first, emptied = trial.followers
    first.crash(Ending.KILL)
    await trial.wait_until(lambda: trial.id_of(first) not in trial.state_at(emptied).isr)
    assert (await trial.produce()).error_code == ErrorCode.NONE
    emptied.crash(Ending.KILL)
    await trial.wait_until(lambda: trial.state_at(trial.leader).elr == (trial.id_of(emptied),))
    trial.leader.crash(Ending.KILL)
    remove_tree(emptied.disk, f"/data/{TOPIC}")
    assert await emptied.start()
    await asyncio.sleep(3 * SETTLING_S)


def lose_proposal(trial: Trial, joining: Machine, client: str, request: str, operations: Sequence[Operation]) -> Fate:
    """The leader's proposal is applied, and with the answer it loses the store."""
    is_proposal = client == trial.leader.name and request == "commit" and trial.is_unfenced(joining)
    if is_proposal:
        trial.leader.world.loop.call_later(0.002, trial.store.cut, client)
    return Fate(0.001, 0.001, is_lost=is_proposal)


async def let_one_remain(trial: Trial, survivor: Machine) -> None:
    for machine in trial.cluster.machines:
        if machine is not survivor:
            machine.crash(Ending.KILL)
    await asyncio.sleep(3 * SETTLING_S)


SCRIPTS: dict[str, Callable[[Trial], Coroutine[Any, Any, None]]] = {
    "a power cut": lose_records_of_a_follower,
    "a lost answer": lose_the_answer_to_a_proposal,
    "a lost log": lose_a_log,
}


def run(script: Callable[[Trial], Coroutine[Any, Any, None]], seed: int) -> None:
    async def check(trial: Trial) -> None:
        await script(trial)
        found = await trial.end_in_peace()
        assert set(trial.acknowledged) <= set(found), f"LOST {set(trial.acknowledged) - set(found)}"

    play(check, seed)


@pytest.mark.parametrize("name", SCRIPTS)
def test_nothing_acknowledged_is_lost(name: str) -> None:
    for seed in range(SEEDS):
        run(SCRIPTS[name], seed)


def miss_nothing(reconciliation: Reconciliation) -> list[tuple[bytes, int]]:
    return []


def let_everybody_join(proposals: IsrProposals, broker_id: int, broker_epoch: int) -> bool:
    return True


def count_what_it_said_before_it_left(
    in_sync: InSync, broker_id: int, high_watermark: int, eligibility: Eligibility
) -> bool:
    in_sync.followers[broker_id].must_fetch = False
    return CAN_JOIN(in_sync, broker_id, high_watermark, eligibility)


CAN_JOIN = InSync.can_join

MUTANTS: dict[str, tuple[str, list[tuple[object, str, Callable[..., Any]]]]] = {
    "ignores the broker epoch of followers": (
        "a power cut",
        [
            (isr_changes, "_find_problem", ignore_member_epochs),
            (IsrProposals, "may_join", let_everybody_join),
            # The leader also asks for a fetch after a follower has left the ISR, which this one cannot send.
            (InSync, "can_join", count_what_it_said_before_it_left),
        ],
    ),
    "counts the committed ISR only": ("a lost answer", [(InSync, "_classify", count_committed_only)]),
    "counts on a log that is not there": ("a lost log", [(Reconciliation, "find_missing", miss_nothing)]),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_cluster_without_the_rule_loses_records(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whether a loss is seen also depends on how long messages take, so there is more than one attempt.
    script, patches = MUTANTS[name]
    for owner, attribute, replacement in patches:
        monkeypatch.setattr(owner, attribute, replacement)
    assert any(loses_records(SCRIPTS[script], seed) for seed in range(SEEDS))


def loses_records(script: Callable[[Trial], Coroutine[Any, Any, None]], seed: int) -> bool:
    try:
        run(script, seed)
    except AssertionError as error:
        if "LOST" not in str(error):
            raise
        return True
    return False
