"""`ottla kafka consumer-groups --reset-offsets`: plans new offsets of groups without members, and commits them."""

import argparse
import csv
import re
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.consumer_groups import INACTIVE, describe_group, fetch_committed, list_led_offsets, list_led_partitions
from ottla.cli.kafka.tables import show_columns
from ottla.cli.numbers import INT64_MAX, int_between, parse_offset
from ottla.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.client.client import Client

EARLIEST, LATEST = -2, -1
SCENARIOS = (
    *("to_offset", "to_earliest", "to_latest", "to_current", "to_datetime", "by_duration", "shift_by", "from_file"),
)
_DURATION = re.compile(r"P(?:(\d{1,6})D)?(?:T(?:(\d{1,8})H)?(?:(\d{1,10})M)?(?:(\d{1,12}(?:\.\d{1,3})?)S)?)?")

Plan = dict[TopicPartition, int]


def add_reset_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to-offset", type=parse_offset, metavar="N", help="to this offset, or the nearest there is")
    parser.add_argument("--to-earliest", action="store_true", help="to the first record")
    parser.add_argument("--to-latest", action="store_true", help="to the end")
    parser.add_argument("--to-current", action="store_true", help="to the committed offset")
    parser.add_argument("--to-datetime", type=parse_datetime, metavar="YYYY-MM-DDTHH:mm:SS.sss", help="to a time")
    parser.add_argument("--by-duration", type=parse_duration, metavar="PnDTnHnMnS", help="to a time ago")
    parser.add_argument("--shift-by", type=int_between(-INT64_MAX, INT64_MAX), metavar="N", help="forward, or back")
    parser.add_argument("--from-file", metavar="FILE", help="to the offsets of a CSV file, as --export prints it")
    parser.add_argument("--dry-run", action="store_true", help="only show the new offsets")
    parser.add_argument("--execute", action="store_true", help="commit the new offsets")
    parser.add_argument("--export", action="store_true", help="print the new offsets as CSV")


def parse_datetime(text: str) -> int:
    """An argparse type: milliseconds since 1970. A time without a zone is UTC."""
    try:
        found = datetime.fromisoformat(text)
        return int((found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 2026-01-31T18:00:00.000") from None


def parse_duration(text: str) -> int:
    """An argparse type: milliseconds of a duration such as P1DT2H."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as P1DT2H30M")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def reset(client: "Client", groups: list[str], options: argparse.Namespace) -> None:
    given = [name for name in SCENARIOS if getattr(options, name) not in (None, False)]
    if len(given) != 1:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in SCENARIOS)
        raise CommandError(f"--reset-offsets: give exactly one of {flags}", USAGE_ERROR)
    if options.execute and options.dry_run:
        raise CommandError("--reset-offsets: give --execute or --dry-run", USAGE_ERROR)
    if options.from_file is None and options.all_topics == bool(options.topic):
        raise CommandError("--reset-offsets: give --topic or --all-topics", USAGE_ERROR)
    if not options.execute and not options.dry_run:
        print("nothing is changed without --execute", file=sys.stderr)
    read = _read_file(options.from_file, groups) if options.from_file is not None else {}
    plans = {name: _plan(client, name, options, read.get(name)) for name in groups}
    if options.execute:
        for name, plan in plans.items():
            _commit(client, name, plan)
    if options.export:
        for name, plan in plans.items():
            for (topic, partition), offset in sorted(plan.items()):
                print(",".join([*([name] if len(groups) > 1 else []), topic, str(partition), str(offset)]))
        return
    rows = [(name, *where, offset) for name, plan in plans.items() for where, offset in sorted(plan.items())]
    show_columns(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows, (15, 15, 10, 15))


def choose_partitions(client: "Client", texts: list[str]) -> list[TopicPartition]:
    """The partitions that `topic` and `topic:0,1` name."""
    found: dict[TopicPartition, None] = {}
    for text in texts:
        topic, colon, numbers = text.rpartition(":") if ":" in text else (text, "", "")
        there = list_led_partitions(client, [topic]).get(topic)
        if there is None:
            raise CommandError(f"there is no topic {topic!r}")
        if colon and not re.fullmatch(r"\d{1,9}(,\d{1,9})*", numbers):
            raise CommandError(f"--topic: {text!r} is not TOPIC or TOPIC:0,1", USAGE_ERROR)
        for number in map(int, numbers.split(",")) if colon else there:
            if number not in there:
                raise CommandError(f"topic {topic!r} has no partition {number}")
            found[TopicPartition(topic, number)] = None
    return sorted(found)


def _plan(client: "Client", name: str, options: argparse.Namespace, read: Plan | None) -> Plan:
    _require_inactive(client, name)
    committed = {where: each.offset for where, each in fetch_committed(client, name).items()}
    if options.from_file is not None:
        partitions = sorted(read or {})
    else:
        partitions = sorted(committed) if options.all_topics else choose_partitions(client, options.topic)
    first, end = list_led_offsets(client, partitions, EARLIEST), list_led_offsets(client, partitions, LATEST)
    at_time: dict[TopicPartition, int] = {}
    moment = options.to_datetime
    if options.by_duration is not None:
        moment = time.time_ns() // 1_000_000 - options.by_duration
    if moment is not None:
        at_time = list_led_offsets(client, partitions, max(moment, 0))
    plan = {}
    for where in partitions:
        if where not in end:
            raise CommandError(f"{where} does not exist, or has no leader")
        wanted = _choose(where, options, read or {}, committed, at_time)
        plan[where] = end[where] if wanted is None else min(max(wanted, first[where]), end[where])
    return plan


def _choose(
    where: TopicPartition, options: argparse.Namespace, read: Plan, committed: Plan, at_time: Plan
) -> int | None:
    """The offset, before it is limited to those that exist. None is the end."""
    if options.to_earliest:
        return 0
    if options.to_offset is not None:
        offset: int = options.to_offset
        return offset
    if options.from_file is not None:
        return read[where]
    if options.to_current:
        return committed.get(where)
    if options.shift_by is not None:
        if where not in committed:
            raise CommandError(f"{where} cannot be shifted: the group has committed nothing for it")
        return committed[where] + int(options.shift_by)
    found = at_time.get(where, -1)
    return found if found >= 0 else None


def _require_inactive(client: "Client", name: str) -> None:
    try:
        group = describe_group(client, name)
    except CommandError:  # a group that does not exist comes into being with its offsets
        return
    if group.state not in INACTIVE:
        raise CommandError(f"group {name!r} is {group.state}: offsets can be reset only while it has no members")


def _commit(client: "Client", name: str, plan: Plan) -> None:
    from ottla.client.groups import CommittedOffset, commit_offsets

    if plan:
        commit_offsets(client, name, {where: CommittedOffset(offset) for where, offset in plan.items()})


def _read_file(path: str, groups: list[str]) -> dict[str, Plan]:
    """Lines of topic,partition,offset; with the group in front if there are several."""
    found: dict[str, Plan] = {name: {} for name in groups}
    try:
        with open(path, encoding="utf-8", newline="") as file:
            for row in csv.reader(file):
                if row:
                    name = row[0] if len(row) == 4 else groups[0]
                    *_, topic, partition, offset = row
                    found[name][TopicPartition(topic, int(partition))] = int(offset)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from None
    except (ValueError, KeyError, IndexError, csv.Error):
        raise CommandError(f"{path}: not lines of topic,partition,offset of {', '.join(groups)}") from None
    return found
