"""Checks what applications and observers were told: the records of their polls, and the answers of ListOffsets.

- GAP: a poll leaves out no record that the log has between the consumer's position and the last record it returned.
- BACKWARDS: the offsets of a consumer's polls rise until it is assigned the partition anew; the earliest and the latest
  offset that one observer was told never go back.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise

from ottla.topic_partition import TopicPartition
from tests.simulation.history import Assigned, History, Polled, WatermarksSeen

Problem = tuple[str, TopicPartition, str]


def find_poll_problems(history: History) -> Iterator[Problem]:
    """Find broken promises about polls and watermarks: promise, partition and message of each."""
    yield from _check_polls(history)
    yield from _check_watermarks(history)


def _check_polls(history: History) -> Iterator[Problem]:
    offsets: dict[tuple[TopicPartition, bool], list[int]] = {}
    for partition, log in history.final.items():
        committed = history.committed.get(partition, log)
        offsets[partition, False] = [offset for offset, _ in log]
        offsets[partition, True] = [offset for offset, _ in committed]
    positions: dict[tuple[str, TopicPartition], int] = {}
    for event in history.events:
        if isinstance(event, Assigned):
            positions[event.consumer, event.partition] = event.position
        elif isinstance(event, Polled) and event.records:
            reader = event.consumer, event.partition
            found = [offset for offset, _ in event.records]
            position = positions.get(reader, found[0])
            positions[reader] = found[-1] + 1
            if found[0] < position or any(after <= before for before, after in pairwise(found)):
                message = f"{event.consumer} was at {position} and polled {_shorten(found)}"
                yield "BACKWARDS", event.partition, message
                continue
            known = offsets.get((event.partition, event.read_committed), [])
            expected = known[bisect_left(known, position) : bisect_left(known, found[-1] + 1)]
            if left_out := sorted(set(expected) - set(found)):
                message = f"{event.consumer} was at {position} and polled {_shorten(found)} without {left_out[0]}"
                yield "GAP", event.partition, message


def _check_watermarks(history: History) -> Iterator[Problem]:
    known: dict[tuple[str, TopicPartition], WatermarksSeen] = {}
    for event in history.events:
        if not isinstance(event, WatermarksSeen):
            continue
        before = known.get((event.observer, event.partition), event)
        known[event.observer, event.partition] = event
        if event.high_watermark < before.high_watermark:
            message = f"{event.observer} was told the end {before.high_watermark}, then {event.high_watermark}"
            yield "BACKWARDS", event.partition, message
        if event.log_start < before.log_start:
            message = f"{event.observer} was told the start {before.log_start}, then {event.log_start}"
            yield "BACKWARDS", event.partition, message


def _shorten(offsets: list[int]) -> str:
    return f"{offsets[0]} to {offsets[-1]}" if len(offsets) > 1 else str(offsets[0])
