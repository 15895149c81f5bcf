"""`ottla group reset`: where a group goes on, in every form that Kafka's own tool has, looked at before it is done."""

import argparse
import csv
import json
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from ottla.cli.client import CommandClient
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.group_description import Place, committed_offsets
from ottla.cli.offset_ranges import nearest, time_ms


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
        help="of this topic, or only these partitions of it; may be repeated",
    )
    parser.add_argument("--all-topics", action="store_true", help="of every topic that the group has committed for")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="to the first record")
    where.add_argument("--to-latest", action="store_true", help="to the end")
    where.add_argument("--to-current", action="store_true", help="to what is committed now; to the end if nothing is")
    where.add_argument("--to-offset", type=int, metavar="N", help="to an offset, or the nearest that there is")
    where.add_argument("--to-time", metavar="TIME", help="to the first record of a time: 2026-01-31T18:00:00Z, 10m, ms")
    where.add_argument("--shift-by", type=int, metavar="N", help="forward by N offsets, or back if N is negative")
    where.add_argument(
        "--from-file", metavar="FILE", help="what `reset --format json` or Kafka's --export wrote; - is standard input"
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be set")


def reset_plan(client: CommandClient, options: argparse.Namespace) -> list[ResetRow]:
    committed = {place: found.offset for place, found in committed_offsets(client, options.name).items()}
    if options.from_file is not None:
        wanted = _from_file(options.from_file)
        return [_bounded(client, place, committed.get(place), offset) for place, offset in sorted(wanted.items())]
    places = _places(client, options, committed)
    by_topic: dict[str, list[int]] = {}
    for topic, partition in places:
        by_topic.setdefault(topic, []).append(partition)
    rows = []
    for topic, partitions in by_topic.items():
        for partition, offset in _targets(client, options, topic, partitions, committed).items():
            rows.append(ResetRow(topic, partition, committed.get((topic, partition)), offset))
    return rows


def store(client: CommandClient, group: str, rows: Sequence[ResetRow]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    _require_no_members(client, group)
    if not rows:
        return
    places = [TopicPartition(row.topic, row.partition, row.after) for row in rows]
    request = ConsumerGroupTopicPartitions(group, places)
    asked = client.ask(client.admin.alter_consumer_group_offsets, [request])
    answer = client.wait_for(asked[group], f"group {group!r}")
    for place in answer.topic_partitions:
        if place.error is not None:
            raise CommandError(f"group {group!r}: {place.topic}-{place.partition}: {place.error.str()}")


def _require_no_members(client: CommandClient, group: str) -> None:
    asked = client.ask(client.admin.describe_consumer_groups, [group])
    found = client.wait_for(asked[group], f"group {group!r}")
    if found.members:
        count = len(found.members)
        raise CommandError(
            f"group {group!r} has {count} member{'s' * (count != 1)}: stop them first, they would undo it"
        )


def _places(client: CommandClient, options: argparse.Namespace, committed: dict[Place, int]) -> list[Place]:
    if options.all_topics == bool(options.topic):
        raise CommandError("group reset: name --topic, or say --all-topics", USAGE_ERROR)
    if options.all_topics:
        return sorted(committed)
    places: dict[Place, None] = {}
    for text in options.topic:
        topic, colon, numbers = text.rpartition(":") if ":" in text else (text, "", "")
        there = sorted(partition.id for partition in client.describe_topic(topic).partitions)
        try:
            partitions = [int(number) for number in numbers.split(",")] if colon else there
        except ValueError:
            raise CommandError(f"--topic: {text!r} is not TOPIC or TOPIC:0,1", USAGE_ERROR) from None
        for partition in partitions:
            if partition not in there:
                raise CommandError(f"topic {topic!r} has no partition {partition}")
            places[topic, partition] = None
    return sorted(places)


def _targets(
    client: CommandClient, options: argparse.Namespace, topic: str, partitions: list[int], committed: dict[Place, int]
) -> dict[int, int]:
    from confluent_kafka.admin import OffsetSpec

    first = client.list_offsets(topic, partitions, OffsetSpec.earliest())
    end = client.list_offsets(topic, partitions, OffsetSpec.latest())
    at_time: dict[int, int] = {}
    if options.to_time is not None:
        spec = OffsetSpec.for_timestamp(time_ms(options.to_time, time.time_ns() // 1_000_000))
        at_time = client.list_offsets(topic, partitions, spec)
    targets = {}
    for partition in partitions:
        current = committed.get((topic, partition))
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
            target = at_time.get(partition, -1)  # no record is as new as that, or --to-latest: the end
        targets[partition] = nearest(target, first[partition], end[partition])
    return targets


def _bounded(client: CommandClient, place: Place, before: int | None, offset: int) -> ResetRow:
    from confluent_kafka.admin import OffsetSpec

    topic, partition = place
    if partition not in {there.id for there in client.describe_topic(topic).partitions}:
        raise CommandError(f"topic {topic!r} has no partition {partition}")
    first = client.list_offsets(topic, [partition], OffsetSpec.earliest())[partition]
    end = client.list_offsets(topic, [partition], OffsetSpec.latest())[partition]
    return ResetRow(topic, partition, before, nearest(max(offset, 0), first, end))


def _from_file(path: str) -> dict[Place, int]:
    """JSON as this command writes it, or lines of `topic,partition,offset` as Kafka's tool does."""
    try:
        if path == "-":
            text = sys.stdin.read()
        else:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        if text.lstrip().startswith("["):
            return {(row["topic"], int(row["partition"])): int(row["after"]) for row in json.loads(text)}
        # Kafka's tool quotes topics, and with several groups in one file puts the group first.
        rows = [row for row in csv.reader(text.splitlines()) if row]
        return {(row[-3], int(row[-2])): int(row[-1]) for row in rows}
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from None
    except (ValueError, LookupError, TypeError):
        raise CommandError(f"{path}: this is neither JSON of `group reset` nor topic,partition,offset lines") from None
