"""Run Ottla under cProfile for one workload of benchmarks.broker, and print its hottest functions.

`python -m benchmarks.profile_broker consume-1000`. The profiler makes every Python call more expensive and C code not,
so the list shows where to look, not how long things take. `--output FILE` keeps the raw profile for pstats.
"""

import argparse
import io
import pstats
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.ottla_broker import OttlaBroker
from benchmarks.workloads import FULL, WORKLOADS, Workload


def profile(workload: Workload, output: Path) -> None:
    """Run one workload against a broker that writes its profile to `output` when it stops."""
    broker = OttlaBroker(interpreter=("-m", "cProfile", "-o", str(output)))
    with broker:
        workload.prepare(broker, FULL)
        for name, value in workload.measure(broker, FULL).items():
            print(f"{name}: {value:.4g} (under the profiler)")


def format_hottest(output: Path, order: str, count: int) -> str:
    text = io.StringIO()
    statistics = pstats.Stats(str(output), stream=text)
    statistics.strip_dirs().sort_stats(order).print_stats(count)
    return text.getvalue()


def main(arguments: Sequence[str] | None = None) -> int:
    by_name = {workload.name: workload for workload in WORKLOADS}
    parser = argparse.ArgumentParser(prog="benchmarks.profile_broker", description=__doc__)
    parser.add_argument("workload", choices=sorted(by_name))
    parser.add_argument("--sort", default="tottime", choices=("tottime", "cumtime", "ncalls"))
    parser.add_argument("--count", type=int, default=40, help="how many functions are shown")
    parser.add_argument("--output", type=Path, help="keep the raw profile here")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="ottla-profile-") as directory:
        output = chosen.output or Path(directory) / "profile"
        profile(by_name[chosen.workload], output)
        print(format_hottest(output, chosen.sort, chosen.count))
    return 0


if __name__ == "__main__":
    sys.exit(main())
