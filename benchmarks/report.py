"""Measurements as a table of medians and ratios for people, and as JSON for programs."""

import os
import platform
import re
import shutil
import statistics
import subprocess
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
import psutil

BEGIN, END = "<!-- measured -->", "<!-- end of what was measured -->"
"""The table is put between these two lines of docs/performance.md."""
TOLERANCE = 0.05


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    unit: str
    more_is_better: bool


@dataclass
class Measurement:
    """The values of one row, one per pair, in the order they were taken. Without a peer, `peers` is empty."""

    row: Row
    ours: list[float] = field(default_factory=list)
    peers: list[float] = field(default_factory=list)

    def ratios(self) -> list[float]:
        """How much better Ottla was in each pair: 2.0 is twice the speed, or half the time."""
        pairs = zip(self.ours, self.peers, strict=False)
        if self.row.more_is_better:
            return [ours / peer for ours, peer in pairs if peer]
        return [peer / ours for ours, peer in pairs if ours]


def format_number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def format_median(values: Sequence[float]) -> str:
    return format_number(statistics.median(values)) if values else "-"


def format_ratio(measurement: Measurement) -> str:
    ratios = measurement.ratios()
    if not ratios:
        return "-"
    middle = f"{statistics.median(ratios):.2f}x"
    return middle if len(ratios) == 1 else f"{middle} ({min(ratios):.2f}-{max(ratios):.2f})"


def find_regressions(measurements: Sequence[Measurement], tolerance: float = TOLERANCE) -> list[Measurement]:
    """The rows in which Ottla is worse than its peer by more than `tolerance`, by the median of the pairs."""
    return [
        measurement
        for measurement in measurements
        if (ratios := measurement.ratios()) and statistics.median(ratios) < 1 - tolerance
    ]


class OtherPrograms:
    """Which share of the machine's CPU other programs took since this object was made.

    All child processes must have ended before `share` is called: only then their CPU time counts as our own.
    """

    def __init__(self) -> None:
        self._busy, self._own, self._since = read_busy_seconds(), read_own_seconds(), time.monotonic()

    def share(self) -> float:
        passed = (time.monotonic() - self._since) * (psutil.cpu_count() or 1)
        others = read_busy_seconds() - self._busy - (read_own_seconds() - self._own)
        return max(others, 0.0) / passed


def read_busy_seconds() -> float:
    """CPU seconds that the whole machine has worked since it was started."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq + times.steal)


def read_own_seconds() -> float:
    """CPU seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def describe_machine() -> dict[str, Any]:
    return {
        "cores": psutil.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "java": find_java_version(),
        "client": f"confluent-kafka {confluent_kafka.version()}, librdkafka {confluent_kafka.libversion()[0]}",
    }


def find_java_version() -> str:
    """Version of the Java that runs Apache Kafka and its tools."""
    java = shutil.which("java")
    if java is None:
        return "no Java"
    printed = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    found = re.search(r'version "([^"]+)"', printed)
    return f"Java {found[1]}" if found else "an unknown Java"


def wrap_lines(text: str) -> str:
    """Break a paragraph into lines of at most 120 characters, the width of this project's pages."""
    return textwrap.fill(text, 120, break_on_hyphens=False)


def render_table(measurements: Sequence[Measurement], peer: str, ours: str = "Ottla") -> str:
    """A Markdown table, padded so that it can be read in a terminal as well."""
    lines = [["row", "unit", ours, peer, f"ratio (above 1: {ours} is better)"]]
    lines += [
        [
            measurement.row.name,
            measurement.row.unit,
            format_median(measurement.ours),
            format_median(measurement.peers),
            format_ratio(measurement),
        ]
        for measurement in measurements
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def insert_text(page: str, text: str, begin_mark: str = BEGIN, end_mark: str = END) -> str:
    """The page with `text` between its two marks instead of what is there. A page without marks is replaced."""
    before, begin, rest = page.partition(begin_mark)
    _, end, after = rest.partition(end_mark)
    return f"{before}{begin}\n{text}\n{end}{after}" if begin and end else f"{text}\n"


def build_document(measurements: Sequence[Measurement], peer: str, conditions: Mapping[str, Any]) -> dict[str, Any]:
    """Every single value with the machine it was measured on, for JSON."""
    return {
        "peer": peer,
        "machine": describe_machine(),
        "conditions": dict(conditions),
        "rows": [
            {
                "name": measurement.row.name,
                "unit": measurement.row.unit,
                "more_is_better": measurement.row.more_is_better,
                "ottla": measurement.ours,
                "peer": measurement.peers,
                "ratios": measurement.ratios(),
            }
            for measurement in measurements
        ],
    }
