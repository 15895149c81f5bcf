"""The verdict of a soak: memory that levels off passes, memory that grows in a straight line does not."""

from collections.abc import Callable
from random import Random

import pytest

from benchmarks.soak.samples import (
    MINUTES_MIN,
    Sample,
    explain_too_short,
    is_long_enough,
    judge,
    sentence,
    slope,
    table,
)

MEGABYTE = 1 << 20
LIMIT = 100 * 1024


def samples_of(
    memory: Callable[[float], float], descriptors: Callable[[float], int] = lambda minute: 100, minutes: int = 20
) -> list[Sample]:
    """A sample every three seconds, with noise of a megabyte."""
    random = Random(1)
    found = []
    for number in range(minutes * 20):
        minute = number / 20
        noise = random.uniform(-0.5, 0.5)
        resident = int((memory(minute) + noise) * MEGABYTE)
        found.append(Sample(minute * 60, resident, descriptors(minute), 4, number * 5, 40 * MEGABYTE))
    return found


def test_memory_that_levels_off_passes() -> None:
    # Memory grows in the first half, while caches fill.
    verdict = judge(samples_of(lambda minute: 150 + min(minute, 8) * 3), LIMIT)
    assert not verdict.grows and "levels off" in sentence(verdict)


@pytest.mark.parametrize("megabytes_per_minute", [0.3, 2.5])
def test_memory_that_grows_is_noticed(megabytes_per_minute: float) -> None:
    # Memory grows in a straight line through the noise, slowly or fast. The growth for each client is right too.
    verdict = judge(samples_of(lambda minute: 168 + minute * megabytes_per_minute), LIMIT)
    assert verdict.memory_grows and verdict.grows and "memory grows" in sentence(verdict)
    assert verdict.bytes_per_minute == pytest.approx(megabytes_per_minute * MEGABYTE, rel=0.2)
    assert verdict.bytes_per_connect == pytest.approx(megabytes_per_minute * MEGABYTE / 100, rel=0.2)


def test_descriptors_that_grow_are_noticed() -> None:
    # Descriptors that go up and down with the clients do not count as growing.
    swinging = judge(samples_of(lambda minute: 150, lambda minute: 100 + int(minute * 10) % 20), LIMIT)
    growing = judge(samples_of(lambda minute: 150, lambda minute: 100 + int(minute * 10)), LIMIT)
    assert not swinging.grows
    assert growing.grows and not growing.memory_grows and "descriptors grow" in sentence(growing)


def test_a_short_run_gets_no_verdict() -> None:
    almost = samples_of(lambda minute: 150, minutes=MINUTES_MIN)
    enough = [*almost, almost[-1]._replace(seconds=MINUTES_MIN * 60)]
    assert is_long_enough(enough)
    for samples in ([], almost[:20], almost, enough[-3:]):
        assert not is_long_enough(samples)
        assert f"needs {MINUTES_MIN} minutes" in explain_too_short(samples)


def test_the_table_has_a_row_for_each_minute() -> None:
    samples = samples_of(lambda minute: 150, minutes=3)
    rows = table([*samples, samples[-1]._replace(seconds=180.1)])
    assert len(rows) == 4 and rows[0].split()[0] == "minute"


def test_points_with_the_same_x_have_no_slope() -> None:
    assert slope([(1, 5), (1, 9)]) == 0
    assert slope([(0, 1), (1, 3), (2, 5)]) == 2
