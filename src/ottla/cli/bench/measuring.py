"""What `ottla bench` measures, and the line that shows it while it runs."""

import time
from hashlib import blake2b
from typing import NamedTuple

from ottla.cli.progress import ProgressLine

PRODUCE = "produce"
CONSUME = "consume"
END_TO_END = "end-to-end"
PHASES = (PRODUCE, CONSUME, END_TO_END)

_SHARES = (0.5, 0.95, 0.99, 1.0)


class Measurement(NamedTuple):
    phase: str
    records: int
    seconds: float
    records_per_s: float
    mb_per_s: float
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None


class LiveRate:
    """Measures a phase from its construction on. On a terminal it shows how far the phase is, and the rate so far."""

    def __init__(self, phase: str, total: float) -> None:
        self._phase = phase
        self._progress = ProgressLine(phase, total)
        self.started_s = time.perf_counter()

    def show(self, done: float, records: int, size: int) -> None:
        """`done` of the total; `records` of `size` bytes together so far."""
        if self._progress.is_due():
            seconds = max(time.perf_counter() - self.started_s, 0.001)
            self._progress.show(done, f"{records / seconds:,.0f} records/s  {size / seconds / 1e6:.1f} MB/s")

    def clear(self) -> None:
        self._progress.clear()

    def measure(self, records: int, size: int, latencies_s: list[float]) -> Measurement:
        """Remove the line and return the result."""
        seconds = max(time.perf_counter() - self.started_s, 0.001)
        self._progress.clear()
        ordered = sorted(latencies_s)
        shares = [find_share_ms(ordered, share) for share in _SHARES]
        return Measurement(
            self._phase, records, round(seconds, 3), round(records / seconds), round(size / seconds / 1e6, 1), *shares
        )


def find_share_ms(ordered: list[float], share: float) -> float | None:
    """The latency that this share of all records did not exceed; None if there is none."""
    if not ordered:
        return None
    return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000, 2)


def noise(number: int, size: int) -> bytes:
    """Pseudo-random hexadecimal digits, always the same for the same number."""
    digits = bytearray()
    while len(digits) < size:
        digits += blake2b(b"%d %d" % (number, len(digits))).hexdigest().encode()
    return bytes(digits[:size])
