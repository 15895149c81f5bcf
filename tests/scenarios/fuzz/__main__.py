"""Attacks a broker for longer than the suite has time for.

python -m tests.scenarios.fuzz --seconds 300
python -m tests.scenarios.fuzz --seconds 60 --seed 7
"""

import argparse
import sys
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path
from random import SystemRandom

from tests.scenarios.fuzz.attacks import ATTACKS
from tests.scenarios.fuzz.siege import Siege
from tests.scenarios.fuzz.strangers import STRANGERS, secured_up

EVERYTHING = (*ATTACKS, *STRANGERS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios.fuzz", description="Attack a broker.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, help="seed of all random choices; drawn and printed if it is not given")
    names = ", ".join(attack.__name__ for attack in EVERYTHING)
    parser.add_argument("--attacks", default="*", help=f"comma-separated patterns of: {names}")
    options = parser.parse_args()
    patterns = options.attacks.split(",")
    attacks = [attack for attack in EVERYTHING if any(fnmatchcase(attack.__name__, pattern) for pattern in patterns)]
    if not attacks:
        parser.error(f"no attack is called {options.attacks}")
    seed = SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    with (
        tempfile.TemporaryDirectory(prefix="ottla-fuzz-") as directory,
        secured_up(Path(directory)) as (broker, ports),
    ):
        findings = Siege(broker, seed, attacks, ports).run(options.seconds)
    print(findings)
    for problem in findings.problems:
        print(f"\nPROBLEM {problem}", file=sys.stderr)
    return 1 if findings.problems else 0


if __name__ == "__main__":
    sys.exit(main())
