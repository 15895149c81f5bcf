"""More than the suite has time for: many seeds, one seed again, or a crash in every disk operation.

python -m tests.simulation --seeds 1000
python -m tests.simulation --seed 7 --trace 100
python -m tests.simulation --seeds 1000 --only coordination
python -m tests.simulation --seeds 100000 --only metadata
python -m tests.simulation --crash-points
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from itertools import product
from random import SystemRandom

from tests.simulation import (
    cluster_scenario,
    cluster_transactions,
    coordination,
    crash_points,
    replication,
    scenario,
    transactions,
)
from tests.simulation.crash_points import WORKS
from tests.simulation.metadata import simulation as metadata
from tests.simulation.scenario import Verdict
from tests.simulation.store import scenario as store

PLAYS = RECORDS, COORDINATION, REPLICATION, CLUSTER, CLUSTER_TRANSACTIONS, METADATA, STORE = (
    "records",
    "coordination",
    "replication",
    "cluster",
    "cluster-transactions",
    "metadata",
    "store",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Simulate a broker under trouble.")
    parser.add_argument("--seed", type=int, help="run this seed only")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--base", type=int, help="the first of them; drawn if it is not given")
    parser.add_argument("--trace", type=int, default=0, metavar="LINES", help="show the last lines of the trace")
    parser.add_argument(
        "--keep-page-cache", action="store_true", help="no reboot between a failed fsync and the next start"
    )
    parser.add_argument("--only", choices=PLAYS, help="what is simulated")
    parser.add_argument("--crash-points", action="store_true", help="crash in every operation of a piece of work")
    options = parser.parse_args()
    if options.crash_points:
        return crash_everywhere(options)
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)
    else:
        base = SystemRandom().randrange(1 << 32) if options.base is None else options.base
        seeds = range(base, base + options.seeds)
    return simulate_seeds(seeds, options)


def simulate_seeds(seeds: range, options: argparse.Namespace) -> int:
    plays: dict[str, Callable[..., Verdict | store.Verdict]] = {
        RECORDS: partial(scenario.run, keep_page_cache=options.keep_page_cache),
        COORDINATION: coordination.run,
        REPLICATION: replication.run,
        CLUSTER: cluster_scenario.run,
        CLUSTER_TRANSACTIONS: cluster_transactions.run,
        METADATA: metadata.run,
        STORE: store.run,
    }
    failed = 0
    for seed, name in product(seeds, (options.only,) if options.only else plays):
        verdict = plays[name](seed, trace_lines=options.trace or 1)
        if verdict.problems or len(seeds) == 1:
            show_trace(verdict.lines, options)
            print(f"{name}: {verdict}", flush=True)
        if verdict.problems:
            failed += 1
            print(f"  to run it again: make simulate ARGS='--seed {seed} --only {name} --trace 100'", flush=True)
    print(f"{len(seeds)} seeds from {seeds[0]}: {failed} broke a promise")
    return 1 if failed else 0


def crash_everywhere(options: argparse.Namespace) -> int:
    """With a seed, another choice of what each power cut leaves."""
    failed = 0
    for work, operations, run in (
        *((work.name, crash_points.count_operations(work), partial(crash_points.run, work)) for work in WORKS),
        ("transactions v1", transactions.count_operations(1), partial(transactions.run, 1)),
        ("transactions v2", transactions.count_operations(2), partial(transactions.run, 2)),
    ):
        broken = 0
        for point in crash_points.every_point(operations, options.seed or 0):
            result = run(point)
            if result.problems:
                broken += 1
                show_trace(result.trace, options)
                print(f"{work}, {point}: {'; '.join(result.problems[:5])}", flush=True)
        print(f"{work}: {operations} operations, each with kill -9 and with a power cut: {broken} broke a promise")
        failed += broken
    return 1 if failed else 0


def show_trace(lines: list[str], options: argparse.Namespace) -> None:
    if options.trace:
        print("\n".join(lines[-options.trace :]))


if __name__ == "__main__":
    sys.exit(main())
