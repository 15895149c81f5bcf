"""The frame of a comparison of two programs that work on one broker: workloads, turns, options and the table.

The broker is Ottla, in a process of its own. A workload measures one side at a time and checks its results; if they are
wrong, its rows are left out and the run fails, and the other workloads are measured all the same.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Generic, TypeVar

from benchmarks.comparison import Contest, Results, Turns, add_options, describe_run, is_chosen, print_progress, publish
from benchmarks.loads.topics import Mismatch
from benchmarks.peers.apache_kafka import Unavailable
from benchmarks.peers.ottla_broker import OttlaBroker
from benchmarks.report import OtherPrograms, Row, format_number


@dataclass(frozen=True)
class Size:
    """How much is measured, and so how long a run takes."""

    pairs: int
    rows: int


S = TypeVar("S", bound=Size)
B = TypeVar("B")


@dataclass(frozen=True)
class Workload(Generic[B]):
    name: str
    run: Callable[[B, int], Mapping[Row, float]]
    """Measures one side, 0 for Ottla and 1 for its peer. Raises Mismatch."""


@dataclass(frozen=True)
class SideBySide(Generic[S, B]):
    program: str
    description: str
    names: tuple[str, str]
    """Ottla and its peer."""
    version: str
    """Of the peer."""
    full: S
    quick: S
    quick_takes: str
    workloads: Sequence[Workload[B]]
    prepare: Callable[[], None]
    """Raises Unavailable if the peer cannot run here."""
    make_bench: Callable[[str, S], B]
    """What workloads get, from the address of the broker."""
    describe: Callable[[S], str]
    """The conditions of a run, in sentences."""
    marks: tuple[str, str]
    """Of the table in the page."""

    def run(self, arguments: Sequence[str] | None) -> int:
        options = self._parse(arguments)
        size = self.quick if options.quick else self.full
        size = replace(size, pairs=options.pairs or size.pairs, rows=options.input or size.rows)
        workloads = [workload for workload in self.workloads if is_chosen(workload.name, options.rows)]
        began, others = time.monotonic(), OtherPrograms()
        try:
            self.prepare()
        except Unavailable as reason:
            print(f"{self.names[1]} cannot run here: {reason}", file=sys.stderr)
            return 1
        with OttlaBroker() as broker:
            results = self._measure(self.make_bench(broker.bootstrap, size), workloads, Turns(size.pairs, 2))
        conditions = f"{self.describe(size)} {describe_run(size.pairs, began, others)}"
        contest = Contest(self.names[0], f"{self.names[1]} {self.version}", ())
        return publish(results, options, contest, conditions, {"size": asdict(size)}, self.marks)

    def _measure(self, bench: B, workloads: Sequence[Workload[B]], turns: Turns) -> Results:
        results = Results()
        for workload in workloads:
            try:
                for side in turns.take(workload.name, self.names):
                    for row, value in workload.run(bench, side).items():
                        results.add(row, value, side)
                        print_progress(f"  {row.name}: {format_number(value)} {row.unit}")
            except Mismatch as reason:  # the other rows are worth having without this one
                results.failures.append(f"{workload.name}: {reason}")
        return results

    def _parse(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        parser = argparse.ArgumentParser(prog=self.program, description=self.description.splitlines()[0])
        add_options(parser, [workload.name for workload in self.workloads], self.quick_takes)
        parser.add_argument("--input", type=int, metavar="ROWS", help="how many rows are moved")
        return parser.parse_args(arguments)
