"""What was seen of a broker over time, by the minute, and whether its memory levels off."""

from collections.abc import Sequence
from typing import NamedTuple

MEGABYTE = 1 << 20


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


def judge(samples: Sequence[Sample], limit_bytes_per_minute: float) -> Verdict:
    """The first half is for caches to fill. Descriptors and threads go up and down with the clients: they grow if even
    the fewest of the last quarter are more than the most of the quarter before."""
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
    """Of the straight line that fits best; 0 where all points are above one another."""
    count = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def table(samples: Sequence[Sample]) -> list[str]:
    """A row for each minute, with the last sample of it."""
    by_minute = {int(sample.seconds // 60): sample for sample in samples}
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
