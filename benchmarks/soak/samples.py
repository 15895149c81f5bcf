"""Samples of a broker's memory, descriptors and threads over time, and the verdict: do they level off?"""

from collections.abc import Sequence
from typing import NamedTuple

MEGABYTE = 1 << 20
MINUTES_MIN = 10
"""In a shorter run the second half still has caches that fill: it would say "grows" of any broker."""
SAMPLES_MIN = 8


class Sample(NamedTuple):
    seconds: float
    """Since the clients were started."""
    resident_bytes: int
    descriptors: int
    threads: int
    connects: int
    """Clients that have connected so far."""
    data_bytes: int
    """On disk."""


class Verdict(NamedTuple):
    bytes_per_minute: float
    """Slope of resident memory in the second half of the run; negative if it shrank."""
    bytes_per_connect: float
    limit_bytes_per_minute: float
    descriptors_grow: bool
    threads_grow: bool

    @property
    def memory_grows(self) -> bool:
        return self.bytes_per_minute > self.limit_bytes_per_minute

    @property
    def grows(self) -> bool:
        return self.memory_grows or self.descriptors_grow or self.threads_grow


def is_long_enough(samples: Sequence[Sample]) -> bool:
    """Whether `judge` has enough samples for a verdict."""
    return len(samples) >= SAMPLES_MIN and samples[-1].seconds >= MINUTES_MIN * 60


def explain_too_short(samples: Sequence[Sample]) -> str:
    minutes = samples[-1].seconds / 60 if samples else 0.0
    return (
        f"no verdict: the run was too short, with {minutes:.1f} minutes and {len(samples)} samples; "
        f"a verdict needs {MINUTES_MIN} minutes and {SAMPLES_MIN} samples"
    )


def judge(samples: Sequence[Sample], limit_bytes_per_minute: float) -> Verdict:
    """Judge the second half of a run: caches fill in the first.

    Descriptors and threads go up and down with the clients: they grow if the smallest number of the last quarter is
    above the largest of the quarter before.
    """
    half = samples[len(samples) // 2 :]
    third, fourth = half[: len(half) // 2], half[len(half) // 2 :]
    per_second = slope([(sample.seconds, sample.resident_bytes) for sample in half])
    per_connect = slope([(sample.connects, sample.resident_bytes) for sample in half])
    return Verdict(
        per_second * 60,
        per_connect,
        limit_bytes_per_minute,
        min(sample.descriptors for sample in fourth) > max(sample.descriptors for sample in third),
        min(sample.threads for sample in fourth) > max(sample.threads for sample in third),
    )


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the straight line that fits best; 0 if all points have the same x."""
    count = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def table(samples: Sequence[Sample]) -> list[str]:
    """A row for each minute, with the last sample of it."""
    # The last sample is taken a moment after the end of the last minute, and belongs to it.
    by_minute = {max(int((sample.seconds - 1) // 60), 0): sample for sample in samples}
    rows = ["minute  memory MB  descriptors  threads  connects  data MB"]
    for minute, sample in by_minute.items():
        rows.append(
            f"{minute + 1:6}  {sample.resident_bytes / MEGABYTE:9.1f}  {sample.descriptors:11}  {sample.threads:7}"
            f"  {sample.connects:8}  {sample.data_bytes / MEGABYTE:7.1f}"
        )
    return rows


def sentence(verdict: Verdict) -> str:
    word = "grows" if verdict.memory_grows else "levels off"
    text = (
        f"memory {word}: {verdict.bytes_per_minute / 1024:+.0f} KB a minute in the second half "
        f"(limit {verdict.limit_bytes_per_minute / 1024:.0f}), {verdict.bytes_per_connect / 1024:+.2f} KB a client"
    )
    if verdict.descriptors_grow:
        text += "; descriptors grow"
    if verdict.threads_grow:
        text += "; threads grow"
    return text
