"""`ottla group reset`: sets the committed offsets of a group, in every way that Kafka's own tool has."""

import argparse
import csv
import json
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.client import find_topic
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.consumer_groups import find_group, suggest_group
from ottla.cli.numbers import INT64_MAX, int_between, parse_offset
from ottla.cli.offset_ranges import EARLIEST, LATEST, list_offsets, nearest, time_ms
from ottla.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.client.client import Client

Offsets = dict[TopicPartition, int]


class ResetRow(NamedTuple):
    topic: str
    partition: int
    before: int | None
    after: int


def add_reset_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-t",
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC[:0,1]",
        help="reset this topic, or only these partitions of it; may be repeated",
    )
    parser.add_argument(
        "--all-topics", action="store_true", help="reset every topic for which the group has committed offsets"
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="to the first record")
    where.add_argument("--to-latest", action="store_true", help="to the end")
    where.add_argument("--to-current", action="store_true", help="to the committed offset, or the end if there is none")
    where.add_argument("--to-offset", type=parse_offset, metavar="N", help="to this offset, or the nearest that exists")
    where.add_argument("--to-time", metavar="TIME", help="to the first record of a time: 2026-01-31T18:00:00Z, 10m, ms")
    where.add_argument(
        "--shift-by",
        type=int_between(-INT64_MAX, INT64_MAX),
        metavar="N",
        help="forward by N offsets, or back if N is negative",
    )
    where.add_argument(
        "--from-file", metavar="FILE", help="what `reset --format json` or Kafka's --export wrote; - is standard input"
    )
    parser.add_argument("--dry-run", action="store_true", help="only show what would be set")


def plan_reset(own: "Client", options: argparse.Namespace) -> list[ResetRow]:
    from ottla.client.groups import fetch_offsets

    committed = {where: found.offset for where, found in fetch_offsets(own, options.name).items()}
    if options.from_file is not None:
        wanted = _read_file(options.from_file)
        return [_plan_one(own, where, committed.get(where), offset) for where, offset in sorted(wanted.items())]
    partitions = _select_partitions(own, options, committed)
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    rows = []
    for topic, numbers in by_topic.items():
        for partition, offset in _choose_targets(own, options, topic, numbers, committed).items():
            rows.append(ResetRow(topic, partition, committed.get(TopicPartition(topic, partition)), offset))
    return rows


def commit_plan(own: "Client", group: str, rows: Sequence[ResetRow]) -> None:
    from ottla.client.groups import CommittedOffset, commit_offsets

    _require_no_members(own, group)
    if not rows:
        return
    commit_offsets(own, group, {TopicPartition(row.topic, row.partition): CommittedOffset(row.after) for row in rows})


def _require_no_members(own: "Client", group: str) -> None:
    found = find_group(own, group)
    if found is not None and found.members:
        count = len(found.members)
        raise CommandError(
            f"group {group!r} has {count} member{'s' * (count != 1)}: stop them first, they would undo it"
        )


def _select_partitions(
    own: "Client", options: argparse.Namespace, committed: dict[TopicPartition, int]
) -> list[TopicPartition]:
    if options.all_topics == bool(options.topic):
        raise CommandError("group reset: give either --topic or --all-topics", USAGE_ERROR)
    if options.all_topics:
        if not committed:
            hint = suggest_group(own, options.name)
            raise CommandError(f"group {options.name!r} has committed no offsets{hint}; --topic names where to begin")
        return sorted(committed)
    selected: dict[TopicPartition, None] = {}
    for text in options.topic:
        topic, colon, numbers = text.rpartition(":") if ":" in text else (text, "", "")
        there = sorted(partition.partition_index for partition in find_topic(own, topic).partitions)
        try:
            partitions = [int(number) for number in numbers.split(",")] if colon else there
        except ValueError:
            raise CommandError(f"--topic: {text!r} is not TOPIC or TOPIC:0,1", USAGE_ERROR) from None
        for partition in partitions:
            if partition not in there:
                raise CommandError(f"topic {topic!r} has no partition {partition}")
            selected[TopicPartition(topic, partition)] = None
    return sorted(selected)


def _choose_targets(
    own: "Client",
    options: argparse.Namespace,
    topic: str,
    partitions: list[int],
    committed: dict[TopicPartition, int],
) -> dict[int, int]:
    first = list_offsets(own, topic, partitions, EARLIEST)
    end = list_offsets(own, topic, partitions, LATEST)
    at_time: dict[int, int] = {}
    if options.to_time is not None:
        at_time = list_offsets(own, topic, partitions, time_ms(options.to_time, time.time_ns() // 1_000_000))
    targets = {}
    for partition in partitions:
        current = committed.get(TopicPartition(topic, partition))
        if options.to_earliest:
            target = 0
        elif options.to_offset is not None:
            target = max(options.to_offset, 0)
        elif options.to_current:
            target = -1 if current is None else current
        elif options.shift_by is not None:
            if current is None:
                raise CommandError(f"group {options.name!r} has committed nothing for {topic}-{partition}")
            target = max(current + options.shift_by, 0)
        else:
            target = at_time.get(partition, -1)  # -1 is the end: --to-latest, or a time that is newer than all records
        targets[partition] = nearest(target, first[partition], end[partition])
    return targets


def _plan_one(own: "Client", where: TopicPartition, before: int | None, offset: int) -> ResetRow:
    topic, partition = where
    if partition not in {there.partition_index for there in find_topic(own, topic).partitions}:
        raise CommandError(f"topic {topic!r} has no partition {partition}")
    first = list_offsets(own, topic, [partition], EARLIEST)[partition]
    end = list_offsets(own, topic, [partition], LATEST)[partition]
    return ResetRow(topic, partition, before, nearest(max(offset, 0), first, end))


def _read_file(path: str) -> Offsets:
    """JSON as this command writes it, or lines of `topic,partition,offset` as Kafka's tool writes them."""
    name = "standard input" if path == "-" else path
    try:
        if path == "-":
            text = sys.stdin.read()
        else:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        if text.lstrip().startswith("["):
            return {TopicPartition(row["topic"], int(row["partition"])): int(row["after"]) for row in json.loads(text)}
        # Kafka's tool quotes topics. In a file for several groups each line begins with the group.
        rows = [row for row in csv.reader(text.splitlines()) if row]
        return {TopicPartition(row[-3], int(row[-2])): int(row[-1]) for row in rows}
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise CommandError(f"{name}: not UTF-8 text") from None
    except (ValueError, LookupError, TypeError, csv.Error):
        raise CommandError(f"{name}: neither JSON of `group reset` nor lines of topic,partition,offset") from None
