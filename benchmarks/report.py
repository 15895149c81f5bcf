"""The measurements as a table of medians and ratios, and as JSON for machines."""

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

from benchmarks.workloads import Row

BEGIN, END = "<!-- measured -->", "<!-- end of what was measured -->"


@dataclass
class Measurement:
    """One row with the values of every pair, in the order they were taken. The peer's may be missing altogether."""

    row: Row
    ours: list[float] = field(default_factory=list)
    peers: list[float] = field(default_factory=list)

    def ratios(self) -> list[float]:
        """How much better Ottla was in each pair: 2.0 is twice as good, whichever way the row counts."""
        pairs = zip(self.ours, self.peers, strict=False)
        if self.row.more_is_better:
            return [ours / peer for ours, peer in pairs if peer]
        return [peer / ours for ours, peer in pairs if ours]


def number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def median(values: Sequence[float]) -> str:
    return number(statistics.median(values)) if values else "-"


def ratio(measurement: Measurement) -> str:
    ratios = measurement.ratios()
    if not ratios:
        return "-"
    middle = f"{statistics.median(ratios):.2f}x"
    return middle if len(ratios) == 1 else f"{middle} ({min(ratios):.2f}-{max(ratios):.2f})"


class Neighbours:
    """How much of the machine other programs took: every child of ours must have ended before `share` is asked."""

    def __init__(self) -> None:
        self._busy, self._own, self._since = busy_seconds(), own_seconds(), time.monotonic()

    def share(self) -> float:
        passed = (time.monotonic() - self._since) * (psutil.cpu_count() or 1)
        others = busy_seconds() - self._busy - (own_seconds() - self._own)
        return max(others, 0.0) / passed


def busy_seconds() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq + times.steal)


def own_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def machine() -> dict[str, Any]:
    return {
        "cores": psutil.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "java": java_version(),
        "client": f"confluent-kafka {confluent_kafka.version()}, librdkafka {confluent_kafka.libversion()[0]}",
    }


def java_version() -> str:
    """Of the machine's Java, which runs Apache Kafka and its tools."""
    java = shutil.which("java")
    if java is None:
        return "no Java"
    told = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    found = re.search(r'version "([^"]+)"', told)
    return f"Java {found[1]}" if found else "an unknown Java"


def wrapped(text: str) -> str:
    """As the pages of this project are: no line above 120 characters."""
    return textwrap.fill(text, 120, break_on_hyphens=False)


def table(measurements: Sequence[Measurement], peer: str) -> str:
    """A Markdown table, padded so that it can be read in a terminal as well."""
    lines = [["row", "unit", "Ottla", peer, "ratio (above 1: Ottla is better)"]]
    lines += [
        [
            measurement.row.name,
            measurement.row.unit,
            median(measurement.ours),
            median(measurement.peers),
            ratio(measurement),
        ]
        for measurement in measurements
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def inserted(page: str, text: str, begin_mark: str = BEGIN, end_mark: str = END) -> str:
    """A page with `text` between its two marks; a page that has none is replaced."""
    before, begin, rest = page.partition(begin_mark)
    _, end, after = rest.partition(end_mark)
    return f"{before}{begin}\n{text}\n{end}{after}" if begin and end else f"{text}\n"


def document(measurements: Sequence[Measurement], peer: str, conditions: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "peer": peer,
        "machine": machine(),
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
