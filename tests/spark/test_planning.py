"""Planning divides offsets into tasks and micro-batches: properties that hold for every input."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.topic_partition import TopicPartition
from pyspark_ottla.planning import OffsetRange, divide_ranges, limit_offsets, list_ranges

numbers = st.integers(0, 1000)
parts = st.lists(st.tuples(numbers, numbers), max_size=8)


def offsets(pairs: list[tuple[int, int]], index: int) -> dict[TopicPartition, int]:
    return {TopicPartition("t", number): sum(pair[: index + 1]) for number, pair in enumerate(pairs)}


@given(parts, st.integers(1, 50) | st.none(), st.integers(1, 300) | st.none())
def test_tasks_cover_everything_once(pairs: list[tuple[int, int]], least: int | None, most: int | None) -> None:
    """Whatever the limits are, exactly one task reads each offset, in order."""
    ranges = list_ranges(offsets(pairs, 0), offsets(pairs, 1))
    pieces = divide_ranges(ranges, least, most)
    joined: list[OffsetRange] = []
    for piece in pieces:
        if joined and joined[-1].where == piece.where and joined[-1].end == piece.start:
            joined[-1] = joined[-1]._replace(end=piece.end)
        else:
            joined.append(piece)
    assert joined == ranges
    assert all(piece.size > 0 for piece in pieces)
    assert most is None or all(piece.size <= most for piece in pieces)
    assert len(pieces) >= min(least or 1, sum(each.size for each in ranges))


def test_large_ranges_are_split_into_more_tasks() -> None:
    large, small = OffsetRange(TopicPartition("t", 0), 0, 900), OffsetRange(TopicPartition("t", 1), 5, 105)
    pieces = divide_ranges([large, small], 10, None)
    assert [piece.size for piece in pieces] == [100] * 10


@given(parts, st.integers(1, 500))
def test_a_batch_respects_its_limit_and_makes_progress(pairs: list[tuple[int, int]], most: int) -> None:
    """Every partition with unread records gets a share, and rounding costs at most one offset each."""
    start, latest = offsets(pairs, 0), offsets(pairs, 1)
    end = limit_offsets(start, latest, most)
    taken = {where: end[where] - start[where] for where in latest}
    assert sum(taken.values()) <= most + len(latest)
    for where in latest:
        assert start[where] <= end[where] <= latest[where]
        assert taken[where] > 0 or latest[where] == start[where]
