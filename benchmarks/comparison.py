"""What the comparisons share: their options, who takes turns with whom, and how results are printed and kept.

The peer of Ottla is Apache Kafka, or with --against the Ottla of another checkout: so a change can be compared with the
code before it. The two take turns in pairs of runs, and who goes first alternates.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from benchmarks.peers.apache_kafka import VERSION, ApacheKafka
from benchmarks.peers.broker_process import BrokerProcess
from benchmarks.peers.ottla_broker import OttlaBroker
from benchmarks.report import (
    BEGIN,
    END,
    TOLERANCE,
    Measurement,
    OtherPrograms,
    Row,
    build_document,
    describe_machine,
    find_regressions,
    format_ratio,
    insert_text,
    render_table,
    wrap_lines,
)

PATIENCE_SECONDS = 600.0
"""Rows that begin later than this are measured once, so that a run ends on a slow machine too. Not with --pairs."""

MakeBroker = Callable[[Mapping[str, str]], BrokerProcess]
"""Makes a broker with these settings. The broker is not started."""


@dataclass(frozen=True)
class Contest:
    """Ottla and, unless it runs alone, its peer."""

    ours: str
    peer: str
    makers: tuple[MakeBroker, ...]


@dataclass
class Results:
    """The measurements so far, and what failed meanwhile."""

    measurements: dict[str, Measurement] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def add(self, row: Row, value: float, side: int) -> None:
        """`side` is 0 for Ottla and 1 for its peer."""
        measurement = self.measurements.setdefault(row.name, Measurement(row))
        (measurement.peers if side else measurement.ours).append(value)


def add_options(parser: argparse.ArgumentParser, names: Iterable[str], quick: str) -> None:
    """The options of every comparison. `names` are those of its workloads."""
    parser.add_argument("--quick", action="store_true", help=f"one pair of short runs, for a smoke test: {quick}")
    parser.add_argument("--rows", default="*", help=f"comma-separated patterns of: {', '.join(names)}")
    parser.add_argument("--pairs", type=int, help="how many pairs of runs each row is the median of")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="put the table between its marks in this page")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every single value to this file")


def add_peer_options(parser: argparse.ArgumentParser) -> None:
    peers = parser.add_mutually_exclusive_group()
    peers.add_argument("--alone", action="store_true", help="without Apache Kafka")
    peers.add_argument(
        "--against",
        type=read_checkout,
        metavar="DIR",
        help="beside the Ottla of another checkout instead of Apache Kafka, and name the rows that are worse",
    )


def read_checkout(directory: str) -> Path:
    checkout = Path(directory).resolve()
    if not (checkout / "src" / "ottla" / "__main__.py").is_file():
        raise argparse.ArgumentTypeError(f"{directory} is no checkout of Ottla: it has no src/ottla/__main__.py")
    return checkout


def choose_contest(options: argparse.Namespace) -> Contest:
    if options.against:
        peer = f"Ottla in {options.against}"

        def make_peer(settings: Mapping[str, str]) -> BrokerProcess:
            return OttlaBroker(settings, checkout=options.against, name=peer)

        return Contest("this tree", peer, (OttlaBroker, make_peer))
    peer = f"Apache Kafka {VERSION}"
    return Contest("Ottla", peer, (OttlaBroker,) if options.alone else (OttlaBroker, make_apache_kafka))


def make_apache_kafka(settings: Mapping[str, str]) -> BrokerProcess:
    return ApacheKafka(settings=settings)


def is_chosen(name: str, patterns: str) -> bool:
    return any(fnmatchcase(name, pattern.strip()) for pattern in patterns.split(","))


class Turns:
    """Gives each workload its pairs of runs, and both sides their turns in each pair."""

    def __init__(self, pairs: int, sides: int, patience_seconds: float | None = PATIENCE_SECONDS) -> None:
        self._pairs = pairs
        self._sides = range(sides)
        self._patient_until = None if patience_seconds is None else time.monotonic() + patience_seconds

    def take(self, title: str, names: Sequence[str]) -> Iterator[int]:
        """The sides, in the order in which they are to run. Tells the person who waits which one is next."""
        for pair in range(self._pairs):
            if pair and self._patient_until is not None and time.monotonic() > self._patient_until:
                return  # the table shows it: a row of one pair has no brackets
            for side in self._sides if pair % 2 == 0 else reversed(self._sides):
                print_progress(f"{title}, pair {pair + 1} of {self._pairs}, {names[side]}")
                yield side


def print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def publish(
    results: Results,
    options: argparse.Namespace,
    contest: Contest,
    conditions: str,
    details: Mapping[str, Any],
    marks: tuple[str, str] = (BEGIN, END),
) -> int:
    """Print the table, write the files that the options ask for, and return the exit status."""
    measurements = list(results.measurements.values())
    text = f"{render_table(measurements, contest.peer, contest.ours)}\n\n{wrap_lines(conditions)}"
    print(text)
    if options.markdown:
        page = options.markdown.read_text() if options.markdown.exists() else ""
        options.markdown.write_text(insert_text(page, text, *marks))
    if options.json:
        options.json.write_text(json.dumps(build_document(measurements, contest.peer, details), indent=2) + "\n")
    if getattr(options, "against", None):
        print_regressions(measurements)
    for failure in results.failures:
        print(f"\nThe table is not complete: {failure}", file=sys.stderr)
    return 1 if results.failures else 0


def print_regressions(measurements: Sequence[Measurement]) -> None:
    worse = find_regressions(measurements)
    print(f"\nRows that are worse by more than {TOLERANCE:.0%}: {len(worse)} of {len(measurements)}")
    for measurement in worse:
        print(f"  {measurement.row.name}: {format_ratio(measurement)}")


def describe_run(pairs: int, began: float, others: OtherPrograms) -> str:
    """The conditions that every table names: machine, versions, duration, and how busy the machine was."""
    around = describe_machine()
    return (
        f"{around['cores']} cores shared by broker and client, {around['memory_gb']} GB of memory, Python "
        f"{around['python']}, {around['client']}, {around['java']}; {pairs} pair(s), "
        f"{time.monotonic() - began:.0f} s in all. Other programs took {others.share():.0%} of the machine meanwhile."
    )
