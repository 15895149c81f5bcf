"""`ottla consume`: prints the records of a topic, as raw bytes.

By default it reads from the beginning to the end that the topic has when the command starts; with --follow it continues
until Ctrl-C. It joins no consumer group and commits nothing.
"""

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

from ottla.cli.client import CommandClient
from ottla.cli.client_settings import add_client_arguments
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.escapes import typed_bytes, unescaped
from ottla.cli.numbers import parse_count, parse_offset, parse_partition
from ottla.cli.offset_ranges import READ_COMMITTED, READ_UNCOMMITTED, ranges_of
from ottla.cli.record_output import Writer, writer_of
from ottla.cli.topic_reader import TopicReader

if TYPE_CHECKING:
    from confluent_kafka import Message

WIDENING = 8

Filter = Callable[["Message"], bool]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_arguments(parser)
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "-p",
        "--partition",
        action="append",
        type=parse_partition,
        dest="partitions",
        metavar="PARTITION",
        help="only this partition; may be repeated (default: all)",
    )
    parser.add_argument(
        "--from-beginning", action="store_true", help="has no effect: without another flag this is where it begins"
    )
    start = parser.add_mutually_exclusive_group()
    start.add_argument("-o", "--offset", type=parse_offset, help="begin at this offset of each partition")
    start.add_argument(
        "--since", metavar="TIME", help="begin at a time: 10m (ago), 2026-01-31T18:00:00Z, or milliseconds since 1970"
    )
    start.add_argument(
        "--last", type=parse_count, metavar="N", help="only the newest N records, the oldest of them first"
    )
    end = parser.add_mutually_exclusive_group()
    end.add_argument("--until", metavar="TIME", help="end before this time")
    end.add_argument("-f", "--follow", action="store_true", help="continue with new records until Ctrl-C")
    parser.add_argument("-n", "--count", type=parse_count, help="stop after N records", metavar="N")
    parser.add_argument(
        "--isolation",
        choices=(READ_COMMITTED, READ_UNCOMMITTED),
        default=READ_COMMITTED,
        help="whether records of open and aborted transactions are left out (default: read_committed)",
    )
    parser.add_argument("--key-matches", metavar="REGEX", help="only records whose key matches")
    parser.add_argument("--value-matches", metavar="REGEX", help="only records whose value matches")
    parser.add_argument(
        "--format",
        default="value",
        metavar="FORMAT",
        help="value, key-value, json, or a template: %%t topic, %%p partition, %%o offset, %%T timestamp, %%k key, "
        "%%s value, %%K and %%S their lengths, %%h headers (default: value)",
    )
    parser.add_argument("-D", "--delimiter", default="\\n", metavar="TEXT", help=r"ends a record (default: \n)")
    parser.add_argument(
        "-K", "--key-separator", default="\\t", metavar="TEXT", help=r"between key and value (default: \t)"
    )
    parser.add_argument("--null", default="", metavar="TEXT", help="printed for a null key or value (default: nothing)")


def run(options: argparse.Namespace) -> int:
    if options.from_beginning and (options.offset, options.since, options.last) != (None, None, None):
        raise CommandError("consume: --from-beginning and another beginning were given", USAGE_ERROR)
    if options.from_beginning and not options.follow:
        print("ottla: consume ends at the last record there is; --follow waits for more", file=sys.stderr)
    writer = writer_of(
        options.format,
        key_separator=unescaped(options.key_separator),
        delimiter=unescaped(options.delimiter),
        null=typed_bytes(options.null),
    )
    wanted = _filter(options.key_matches, options.value_matches)
    client = CommandClient(options)
    partitions = _partitions(client, options)
    messages: list[Message] = []
    if options.last is None:
        reader = _open_reader(client, partitions, options)
    else:
        reader, messages = _read_newest(client, partitions, options)
    try:
        _print_records(reader, messages, options, wanted, writer)
    except KeyboardInterrupt:
        if not options.follow:  # Ctrl-C is how --follow ends
            raise
    finally:
        reader.close()
    return 0


def _open_reader(
    client: CommandClient, partitions: list[int], options: argparse.Namespace, last: int | None = None
) -> TopicReader:
    ranges = ranges_of(client, options.topic, partitions, options, int(time.time() * 1000), last)
    return TopicReader(client, options.topic, ranges, follow=options.follow, isolation=options.isolation)


def _read_newest(
    client: CommandClient, partitions: list[int], options: argparse.Namespace
) -> "tuple[TopicReader, list[Message]]":
    """Reads the newest records. Also returns the reader, which continues after them.

    Not every offset is a record: some were compacted away, some mark the end of a transaction. So this may take several
    attempts, each from further back, until there are enough records or no more exist.
    """
    window = options.last
    while True:
        reader = _open_reader(client, partitions, options, window)
        try:
            messages = reader.newest(options.last)
        except BaseException:
            reader.close()
            raise
        if len(messages) >= options.last or reader.offsets < window:
            return reader, messages
        reader.close()
        window *= WIDENING


def _print_records(
    reader: TopicReader, messages: "list[Message]", options: argparse.Namespace, wanted: Filter, writer: Writer
) -> None:
    """Print these records, and then those that are left to read."""
    left: int | None = options.count
    while left is None or left > 0:
        shown = list(islice(filter(wanted, messages), left))
        if shown:
            _write(map(writer, shown))
            left = None if left is None else left - len(shown)
        if not options.follow and reader.caught_up:
            return
        messages = reader.read()


def _write(pieces: Iterable[bytes]) -> None:
    sys.stdout.buffer.write(b"".join(pieces))
    sys.stdout.buffer.flush()


def _partitions(client: CommandClient, options: argparse.Namespace) -> list[int]:
    known = sorted(partition.id for partition in client.describe_topic(options.topic).partitions)
    if options.partitions is None:
        return known
    for partition in options.partitions:
        if partition not in known:
            raise CommandError(f"topic {options.topic!r} has no partition {partition}, only {known[0]} to {known[-1]}")
    return sorted(set(options.partitions))


def _filter(key: str | None, value: str | None) -> Filter:
    key_matches, value_matches = _pattern(key, "--key-matches"), _pattern(value, "--value-matches")
    return lambda message: key_matches(message.key()) and value_matches(message.value())


def _pattern(text: str | None, option: str) -> Callable[[str | bytes | None], bool]:
    if text is None:
        return lambda data: True
    try:
        search = re.compile(typed_bytes(text)).search
    except re.error as error:
        raise CommandError(f"{option}: {error}", USAGE_ERROR) from None
    return lambda data: isinstance(data, bytes) and search(data) is not None
