"""`ottla topic trim`: deletes the oldest records of a topic."""

import argparse
import time
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.client import OPERATION_MS, explain_code, find_topic, open_own_client
from ottla.cli.command_error import CommandError
from ottla.cli.offset_ranges import EARLIEST, LATEST, list_offsets, nearest, time_ms
from ottla.cli.output import show_rows

if TYPE_CHECKING:
    from ottla.client.client import Client


class Trimmed(NamedTuple):
    partition: int
    began: int
    begins: int
    deleted: int
    """Number of offsets; a compacted or transactional topic has fewer records."""


def trim(options: argparse.Namespace) -> None:
    with open_own_client(options) as own:
        rows = _planned(own, options, _partitions(own, options))
        if not options.dry_run:
            rows = _delete(own, options.name, rows)
    show_rows(options.format, Trimmed._fields, rows)


def _partitions(own: "Client", options: argparse.Namespace) -> list[int]:
    there = sorted(partition.partition_index for partition in find_topic(own, options.name).partitions)
    wanted = sorted(set(options.partition)) if options.partition else there
    missing = [partition for partition in wanted if partition not in there]
    if missing:
        raise CommandError(f"topic {options.name!r} has no partition {missing[0]}")
    return wanted


def _planned(own: "Client", options: argparse.Namespace, partitions: list[int]) -> list[Trimmed]:
    first = list_offsets(own, options.name, partitions, EARLIEST)
    end = list_offsets(own, options.name, partitions, LATEST)
    since: dict[int, int] = {}
    if options.older_than is not None:
        moment = time_ms(options.older_than, time.time_ns() // 1_000_000)
        since = list_offsets(own, options.name, partitions, moment)
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


def _delete(own: "Client", topic: str, rows: list[Trimmed]) -> list[Trimmed]:
    from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

    done = []
    for row in rows:
        begins = row.began
        if row.deleted > 0:
            asked = DeleteRecordsPartition(partition_index=row.partition, offset=row.begins)
            topics = [DeleteRecordsTopic(name=topic, partitions=[asked])]
            request = DeleteRecordsRequest(topics=topics, timeout_ms=OPERATION_MS)
            found = own.ask_leader(topic, row.partition, request).topics[0].partitions[0]
            if found.error_code:
                raise CommandError(f"partition {row.partition}: {explain_code(found.error_code)}")
            begins = found.low_watermark
        done.append(Trimmed(row.partition, row.began, begins, begins - row.began))
    return done
