"""Offsets of partitions, and which of them `ottla consume` reads."""

import argparse
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.client import CommandClient
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.numbers import INT64_MAX
from ottla.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.client.client import Client

EARLIEST, LATEST = -2, -1

_AGO = re.compile(r"(\d+)(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"


class OffsetRange(NamedTuple):
    start: int
    end: int
    """The offset after the last one of the range."""


def time_ms(text: str, now_ms: int) -> int:
    """`10m` ago (ms, s, m, h, d), milliseconds since 1970, or an ISO 8601 time, local unless it names its zone.

    A time before 1970 is 1970, because Kafka gives negative numbers other meanings.
    """
    try:
        if match := _AGO.fullmatch(text):
            found = now_ms - int(match[1]) * _UNIT_MS[match[2]]
        elif text.isascii() and text.isdecimal():
            found = int(text)
        else:
            found = int(datetime.fromisoformat(text).timestamp() * 1000)
        if found > INT64_MAX:
            raise ValueError(text)
        return max(found, 0)
    except (ValueError, OverflowError, OSError):
        examples = "10m (ago), 2026-01-31T18:00:00Z or milliseconds since 1970"
        raise CommandError(f"{text!r} is not a time such as {examples}", USAGE_ERROR) from None


def list_offsets(own: "Client", topic: str, partitions: Iterable[int], spec: int) -> dict[int, int]:
    """The offset of EARLIEST, LATEST or a time in ms, for each partition; -1 where no record is as new as the time.

    A partition ends where its first open transaction begins.
    """
    from ottla.client.client import READ_COMMITTED

    wanted = {TopicPartition(topic, partition): spec for partition in partitions}
    found = own.list_offsets(wanted, READ_COMMITTED)
    return {where.partition: found[where].offset for where in wanted}


def ranges_of(
    client: CommandClient,
    topic: str,
    partitions: Sequence[int],
    options: argparse.Namespace,
    now_ms: int,
    last: int | None = None,
) -> dict[int, OffsetRange]:
    """The range of each partition; with `last`, only so many offsets before its end.

    An offset that does not exist becomes the nearest one that does.
    """
    from confluent_kafka.admin import OffsetSpec

    def at(text: str) -> dict[int, int]:
        """The first offset of that time or later; -1 where there is none."""
        return client.list_offsets(topic, partitions, OffsetSpec.for_timestamp(time_ms(text, now_ms)))

    first = client.list_offsets(topic, partitions, OffsetSpec.earliest())
    end = client.list_offsets(topic, partitions, OffsetSpec.latest(), uncommitted=options.isolation == READ_UNCOMMITTED)
    until = {} if options.until is None else at(options.until)
    since = {} if options.since is None else at(options.since)
    ranges = {}
    for partition in partitions:
        stop = nearest(until.get(partition, -1), first[partition], end[partition])
        if options.since is not None:
            start = nearest(since[partition], first[partition], end[partition])
        elif last is not None:
            start = max(stop - last, first[partition])
        else:
            start = nearest(options.offset or 0, first[partition], end[partition])
        ranges[partition] = OffsetRange(start, stop)
    return ranges


def nearest(offset: int, first: int, end: int) -> int:
    """The offset, limited to the log; -1 is the end."""
    return end if offset < 0 else min(max(offset, first), end)
