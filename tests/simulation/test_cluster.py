"""Three whole brokers and their clients under faults, for a number of seeds; and the same seed gives the same run."""

from functools import cache

from tests.samples import sample_size
from tests.simulation import cluster_transactions
from tests.simulation.cluster_scenario import run
from tests.simulation.scenario import Verdict

SEEDS = sample_size(3, 300)
TRANSACTION_SEEDS = sample_size(1, 200)


@cache
def run_once(seed: int) -> Verdict:
    return run(seed, trace_lines=1)


def test_no_seed_breaks_a_promise(seed: int) -> None:
    # The message names the command that runs each failing seed again.
    failures = []
    for number in range(SEEDS):
        verdict = run_once(seed + number)
        if verdict.problems:
            again = f"make simulate ARGS='--seed {verdict.seed} --only cluster --trace 100'"
            failures.append(f"{verdict}\n  to run it again: {again}")
    assert not failures, f"{len(failures)} of {SEEDS} seeds from {seed}:\n" + "\n".join(failures)


def test_the_same_seed_gives_the_same_trace_and_another_seed_another(seed: int) -> None:
    here = run_once(seed)
    assert run(seed).digest == here.digest
    assert run_once(seed + 1).digest != here.digest


def test_no_seed_breaks_a_transaction(seed: int) -> None:
    failures = []
    for number in range(TRANSACTION_SEEDS):
        verdict = cluster_transactions.run(seed + number, trace_lines=1)
        if verdict.problems:
            again = f"make simulate ARGS='--seed {verdict.seed} --only cluster-transactions --trace 100'"
            failures.append(f"{verdict}\n  to run it again: {again}")
    assert not failures, f"{len(failures)} of {TRANSACTION_SEEDS} seeds from {seed}:\n" + "\n".join(failures)
