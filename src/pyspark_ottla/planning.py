"""Divides offsets into micro-batches and tasks. Pure functions."""

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from ottla.topic_partition import TopicPartition
from pyspark_ottla.boundaries import Offsets


class OffsetRange(NamedTuple):
    """What one task reads of a partition: from `start` to just before `end`."""

    where: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def list_ranges(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """The ranges between two offsets of each partition, without empty ones."""
    found = (OffsetRange(where, start[where], end[where]) for where in sorted(end) if where in start)
    return [each for each in found if each.size > 0]


def limit_offsets(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], most: int) -> Offsets:
    """An end about `most` offsets after `start`. Each partition gets its share of them, at least one."""
    sizes = {where: max(end - start.get(where, end), 0) for where, end in latest.items()}
    total = sum(sizes.values())
    if total <= most:
        return dict(latest)
    found = {}
    for where, end in latest.items():
        share = sizes[where] * most // total
        found[where] = min(end, start.get(where, end) + max(share, 1 if sizes[where] else 0))
    return found


def divide_ranges(ranges: list[OffsetRange], min_partitions: int | None, max_records: int | None) -> list[OffsetRange]:
    """One range per task: none longer than `max_records`, and at least `min_partitions` if there are enough offsets."""
    parts = [-(-each.size // max_records) if max_records is not None else 1 for each in ranges]
    if min_partitions is not None and sum(parts) < min_partitions:
        parts = _divide_enough(ranges, parts, min_partitions)
    return [piece for each, count in zip(ranges, parts, strict=True) for piece in _split(each, count)]


def _divide_enough(ranges: list[OffsetRange], parts: list[int], wanted: int) -> list[int]:
    """Give each range parts in proportion to its size, then split the largest parts until there are enough."""
    total = sum(each.size for each in ranges)
    found = [max(count, min(each.size, each.size * wanted // total)) for each, count in zip(ranges, parts, strict=True)]
    while sum(found) < min(wanted, total):
        largest = max(range(len(ranges)), key=lambda index: ranges[index].size / found[index])
        found[largest] += 1
    return found


def _split(whole: OffsetRange, count: int) -> list[OffsetRange]:
    cuts = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [OffsetRange(whole.where, low, high) for low, high in pairwise(cuts)]
