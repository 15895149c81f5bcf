"""More seeds than the suite has time for: `python -m tests.simulation --seeds 1000`, or one again: `--seed 7`."""

import argparse
import sys
from random import SystemRandom

from tests.simulation.scenario import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed only")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--base", type=int, help="the first of them; drawn if it is not given")
    parser.add_argument("--trace", type=int, default=0, metavar="LINES", help="show the last lines of the trace")
    parser.add_argument(
        "--keep-page-cache", action="store_true", help="no reboot between a failed fsync and the next start"
    )
    options = parser.parse_args()
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)
    else:
        base = SystemRandom().randrange(1 << 32) if options.base is None else options.base
        seeds = range(base, base + options.seeds)
    failed = 0
    for seed in seeds:
        verdict = run(seed, trace_lines=options.trace or 1, keep_page_cache=options.keep_page_cache)
        if verdict.problems or len(seeds) == 1:
            print("\n".join(verdict.lines[-options.trace :] if options.trace else []))
            print(verdict, flush=True)
        if verdict.problems:
            failed += 1
            print(f"  to run it again: make simulate ARGS='--seed {seed} --trace 100'", flush=True)
    print(f"{len(seeds)} seeds from {seeds[0]}: {failed} broke a promise")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
