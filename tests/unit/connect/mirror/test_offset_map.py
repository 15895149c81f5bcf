"""The map of offsets never names an offset that is too high, and is exact where every gap is a point of it."""

from random import Random

import numpy as np
import pytest

from ottla.client.sending import OffsetRun
from ottla.connect.connectors.mirror.offset_map import OffsetMap, find_points


def make_logs(random: Random, lag_max: int) -> tuple[OffsetMap, list[int], list[int]]:
    """Batches with gaps in the source, each followed by a marker in the target, and the true offsets of all records."""
    mapped = OffsetMap()
    upstream: list[int] = []
    downstream: list[int] = []
    source = target = random.randrange(5)
    for _ in range(random.randrange(1, 8)):
        mine = []
        for _ in range(random.randrange(1, 30)):
            source += random.choice((0, 0, 0, 1, 3))
            mine.append(source)
            source += 1
        end = source + random.randrange(3)
        source = end
        runs, left = [], len(mine)
        first = target
        while left:
            count = random.randrange(1, left + 1)
            runs.append(OffsetRun(first, count))
            downstream += range(first, first + count)
            left -= count
            first += count + random.choice((0, 0, 2))  # another producer writes in between
        target = max(downstream) + 2
        upstream += mine
        for point in find_points(np.array(mine), end, runs, lag_max):
            mapped.add(*point)
    return mapped, upstream, downstream


@pytest.mark.parametrize("lag_max", [0, 7, 100])
def test_translation_is_never_too_high(seed: int, lag_max: int) -> None:
    random = Random(seed)
    for _ in range(200):
        mapped, upstream, downstream = make_logs(random, lag_max)
        for wanted in range(upstream[0], upstream[-1] + 3):
            left = sum(each >= wanted for each in upstream)
            found = mapped.translate(wanted)
            assert found is not None
            again = sum(each >= found for each in downstream)
            assert left <= again <= left + lag_max
        for wanted in range(downstream[0], downstream[-1] + 3):
            left = sum(each >= wanted for each in downstream)
            found = mapped.translate_back(wanted)
            assert found is not None
            again = sum(each >= found for each in upstream)
            assert left <= again <= left + lag_max


def test_what_the_map_does_not_know() -> None:
    """Offsets before its first point, batches whose offsets are unknown or whose records were dropped."""
    mapped = OffsetMap()
    assert mapped.translate(3) is None
    mapped.add(5, 7)
    assert mapped.translate(4) is None
    assert mapped.translate_back(6) is None
    offsets = np.array([1, 2, 3])
    assert list(find_points(offsets, 4, [OffsetRun(-1, 3)], 0)) == []
    assert list(find_points(offsets, 4, [OffsetRun(9, 2)], 0)) == []
    mapped.add(0, 9)
    assert mapped.translate(5) == 9
