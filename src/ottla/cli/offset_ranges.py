"""Which offsets of each partition `ottla consume` reads: from where its options say, to the end or a time."""

import argparse
import re
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from ottla.cli.client import Cluster
from ottla.cli.refusal import BAD_REQUEST, Refusal

_AGO = re.compile(r"(\d+)(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class OffsetRange(NamedTuple):
    start: int
    end: int
    """The first offset that is not in it."""


def time_ms(text: str, now_ms: int) -> int:
    """`10m` ago (ms, s, m, h, d), milliseconds since 1970, or an ISO 8601 time, local unless it names its zone."""
    if match := _AGO.fullmatch(text):
        return now_ms - int(match[1]) * _UNIT_MS[match[2]]
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        examples = "10m (ago), 2026-01-31T18:00:00Z or milliseconds since 1970"
        raise Refusal(f"{text!r} is not a time such as {examples}", BAD_REQUEST) from None


def ranges_of(
    cluster: Cluster, topic: str, partitions: Sequence[int], options: argparse.Namespace, now_ms: int
) -> dict[int, OffsetRange]:
    """By partition. An offset that is no longer or not yet there is moved to the nearest that is."""
    from confluent_kafka.admin import OffsetSpec

    since_ms = None if options.since is None else time_ms(options.since, now_ms)
    until_ms = None if options.until is None else time_ms(options.until, now_ms)
    beginnings = cluster.offsets(topic, partitions, OffsetSpec.earliest())
    ends = cluster.offsets(topic, partitions, OffsetSpec.latest())
    starts = beginnings
    if since_ms is not None:
        starts = cluster.offsets(topic, partitions, OffsetSpec.for_timestamp(since_ms))
    elif options.offset is not None:
        starts = dict.fromkeys(partitions, options.offset)
    elif options.last is not None:
        starts = {partition: end - options.last for partition, end in ends.items()}
    stops = ends
    if until_ms is not None:
        stops = cluster.offsets(topic, partitions, OffsetSpec.for_timestamp(until_ms))
    ranges = {}
    for partition in partitions:
        first, last = beginnings[partition], ends[partition]
        no_such_time = starts[partition] < 0 and since_ms is not None
        start = last if no_such_time else min(max(starts[partition], first), last)
        ranges[partition] = OffsetRange(start, last if stops[partition] < 0 else min(stops[partition], last))
    return ranges
