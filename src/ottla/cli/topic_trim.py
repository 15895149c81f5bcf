"""`ottla topic trim`: deletes the oldest records of a topic."""

import argparse
import time
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.client import CommandClient
from ottla.cli.command_error import CommandError
from ottla.cli.offset_ranges import nearest, time_ms
from ottla.cli.output import show_rows

if TYPE_CHECKING:
    from confluent_kafka.admin import DeletedRecords


class Trimmed(NamedTuple):
    partition: int
    began: int
    begins: int
    deleted: int
    """Number of offsets; a compacted or transactional topic has fewer records."""


def trim(options: argparse.Namespace) -> None:
    client = CommandClient(options)
    partitions = _partitions(client, options)
    rows = _planned(client, options, partitions)
    if not options.dry_run:
        rows = _delete(client, options.name, rows)
    show_rows(options.format, Trimmed._fields, rows)


def _partitions(client: CommandClient, options: argparse.Namespace) -> list[int]:
    there = sorted(partition.id for partition in client.describe_topic(options.name).partitions)
    wanted = sorted(set(options.partition)) if options.partition else there
    missing = [partition for partition in wanted if partition not in there]
    if missing:
        raise CommandError(f"topic {options.name!r} has no partition {missing[0]}")
    return wanted


def _planned(client: CommandClient, options: argparse.Namespace, partitions: list[int]) -> list[Trimmed]:
    from confluent_kafka.admin import OffsetSpec

    first = client.list_offsets(options.name, partitions, OffsetSpec.earliest())
    end = client.list_offsets(options.name, partitions, OffsetSpec.latest())
    since: dict[int, int] = {}
    if options.older_than is not None:
        spec = OffsetSpec.for_timestamp(time_ms(options.older_than, time.time_ns() // 1_000_000))
        since = client.list_offsets(options.name, partitions, spec)
    rows = []
    for partition in partitions:
        if options.before is not None:
            begin = options.before
        elif options.keep is not None:
            begin = max(end[partition] - options.keep, 0)
        else:
            begin = since.get(partition, -1)  # -1 is the end: --all, or a time that is newer than all records
        begin = nearest(begin, first[partition], end[partition])
        rows.append(Trimmed(partition, first[partition], begin, begin - first[partition]))
    return rows


def _delete(client: CommandClient, topic: str, rows: list[Trimmed]) -> list[Trimmed]:
    from confluent_kafka import TopicPartition

    wanted = [TopicPartition(topic, row.partition, row.begins) for row in rows if row.deleted > 0]
    asked = client.ask(client.admin.delete_records, wanted) if wanted else {}
    begins: dict[int, int] = {}
    for place, future in asked.items():
        answer: DeletedRecords = client.wait_for(future, f"partition {place.partition}")
        begins[place.partition] = answer.low_watermark
    done = []
    for row in rows:
        begin = begins.get(row.partition, row.began)
        done.append(Trimmed(row.partition, row.began, begin, begin - row.began))
    return done
