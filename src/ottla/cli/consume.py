"""`ottla consume`: prints the records of topics, as raw bytes or decoded with the schemas of a registry.

By default it reads from the beginning to the end that the topic has when the command starts; with --follow it continues
until Ctrl-C. Without --group it joins no consumer group and commits nothing. With it, the command is a member of the
group: it begins at the committed offsets, commits what it has printed, and leaves the group when it ends.
"""

import argparse
import os
import re
import stat
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.cli.client import CommandClient
from ottla.cli.client_settings import add_client_arguments
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.escapes import typed_bytes, unescaped
from ottla.cli.numbers import parse_count, parse_offset, parse_partition
from ottla.cli.offset_ranges import READ_COMMITTED, READ_UNCOMMITTED, ranges_of
from ottla.cli.output import counted
from ottla.cli.progress import ProgressLine
from ottla.cli.record_output import Writer, writer_of
from ottla.cli.registries import Decoder, add_registry_argument, open_registry
from ottla.cli.topic_reader import Reader, TopicReader
from ottla.topic_partition import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Message

    from ottla.cli.offset_ranges import OffsetRange

WIDENING = 8

Filter = Callable[["Message"], bool]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_arguments(parser)
    parser.add_argument("topics", nargs="*", default=[], metavar="TOPIC", help="one topic or several")
    parser.add_argument("--pattern", "--include", metavar="REGEX", help="all topics whose whole names match")
    parser.add_argument(
        "-g",
        "--group",
        metavar="GROUP",
        help="join this group, begin at its committed offsets, and commit what was printed (default: no group)",
    )
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
    start.add_argument("-o", "--offset", type=parse_start, help="begin at this offset of each partition")
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
    add_registry_argument(parser, "to decode Avro, Protobuf and JSON Schema")
    parser.add_argument("--raw", action="store_true", help="decode nothing, even if a registry is set")
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


def parse_start(text: str) -> int:
    """An argparse type: an offset. Words of Kafka's tools get the option that means the same."""
    if text in ("latest", "end", "-1"):
        raise argparse.ArgumentTypeError(f"{text!r} is not an offset; --last 0 begins at the end, with --follow")
    if text in ("earliest", "beginning"):
        return 0
    return parse_offset(text)


def run(options: argparse.Namespace) -> int:
    _check_options(options)
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
    registry = None if options.raw else open_registry(options, client.settings)
    decode = Decoder(registry).decode if registry is not None else None
    messages: list[Message] = []
    reader: Reader
    if options.group is not None:
        reader = _join_group(client, options)
    elif options.last is None:
        reader = _open_reader(client, _partitions(client, options), options)
    else:
        reader, messages = _read_newest(client, _partitions(client, options), options)
    try:
        _print_records(reader, messages, options, wanted, writer, decode)
    except KeyboardInterrupt:
        if not options.follow:  # Ctrl-C is how --follow ends
            raise
    finally:
        reader.close()
    return 0


def _check_options(options: argparse.Namespace) -> None:
    if not options.topics and options.pattern is None:
        raise CommandError("consume: name a topic, or give --pattern", USAGE_ERROR)
    if options.topics and options.pattern is not None:
        raise CommandError("consume: both topics and --pattern were given", USAGE_ERROR)
    if options.from_beginning and (options.offset, options.since, options.last) != (None, None, None):
        raise CommandError("consume: --from-beginning and another beginning were given", USAGE_ERROR)
    if options.group is None:
        return
    if not options.group:
        raise CommandError("consume: --group cannot be empty", USAGE_ERROR)
    for name in ("offset", "since", "last", "until", "partitions"):
        if getattr(options, name) is not None:
            flag = name.removesuffix("s") if name == "partitions" else name
            hint = "; `ottla group reset` moves it" if flag in ("offset", "since") else ""
            raise CommandError(f"consume: --{flag} cannot be used with --group, which says where to read{hint}", 2)


def _join_group(client: CommandClient, options: argparse.Namespace) -> Reader:
    from ottla.cli.group_reader import GroupReader

    if options.pattern is None:
        topics = options.topics
        missing = [name for name, found in client.describe_topics(topics).items() if found is None]
        if missing:
            raise client.explain_no_topic(*missing)
    else:
        _compile(options.pattern, "--pattern")
        topics = [f"^({options.pattern})$"]
    return GroupReader(client, options.group, topics, options.isolation)


def _open_reader(
    client: CommandClient, places: dict[str, list[int]], options: argparse.Namespace, last: int | None = None
) -> TopicReader:
    now_ms = int(time.time() * 1000)
    ranges: dict[TopicPartition, OffsetRange] = {}
    for topic, partitions in places.items():
        found = ranges_of(client, topic, partitions, options, now_ms, last)
        ranges |= {TopicPartition(topic, partition): bounds for partition, bounds in found.items()}
    return TopicReader(client, ranges, follow=options.follow, isolation=options.isolation)


def _read_newest(
    client: CommandClient, places: dict[str, list[int]], options: argparse.Namespace
) -> "tuple[TopicReader, list[Message]]":
    """Reads the newest records. Also returns the reader, which continues after them.

    Not every offset is a record: some were compacted away, some mark the end of a transaction. So this may take several
    attempts, each from further back, until there are enough records or no more exist.
    """
    window = options.last
    while True:
        reader = _open_reader(client, places, options, window)
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
    reader: Reader,
    messages: "list[Message]",
    options: argparse.Namespace,
    wanted: Filter,
    writer: Writer,
    decode: "Callable[[Message], Message] | None",
) -> None:
    """Print these records, and then those that are left to read."""
    total = reader.offsets if isinstance(reader, TopicReader) else None
    with ProgressLine("consume", total, is_shown=is_bounded_copy(options)) as progress:
        _print_each(reader, messages, options, wanted, writer, decode, progress)


def is_bounded_copy(options: argparse.Namespace) -> bool:
    """Whether records go to a file, up to an end: a bar would be in the way on a terminal and in a pipe."""
    try:
        return not options.follow and stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def _print_each(
    reader: Reader,
    messages: "list[Message]",
    options: argparse.Namespace,
    wanted: Filter,
    writer: Writer,
    decode: "Callable[[Message], Message] | None",
    progress: ProgressLine,
) -> None:
    left: int | None = options.count
    read = 0
    while left is None or left > 0:
        pieces: list[bytes] = []
        done = 0
        for message in messages:
            if left is not None and len(pieces) == left:
                break
            shown = message if decode is None else decode(message)
            if wanted(shown):
                pieces.append(writer(shown))
            done += 1
        _write(pieces)
        reader.mark_done(messages[:done])
        left = None if left is None else left - len(pieces)
        read += done
        progress.show(read, counted(read, "record"))
        if not options.follow and reader.caught_up:
            return
        messages = reader.read()


def _write(pieces: list[bytes]) -> None:
    if not pieces:
        return
    sys.stdout.buffer.write(b"".join(pieces))
    sys.stdout.buffer.flush()


def _partitions(client: CommandClient, options: argparse.Namespace) -> dict[str, list[int]]:
    """The partitions to read, by topic."""
    found = {}
    for topic, known in _find_topics(client, options).items():
        for partition in options.partitions or ():
            if partition not in known:
                raise CommandError(f"topic {topic!r} has no partition {partition}, only {known[0]} to {known[-1]}")
        found[topic] = sorted(set(options.partitions or known))
    return found


def _find_topics(client: CommandClient, options: argparse.Namespace) -> dict[str, list[int]]:
    """All partitions of the topics that the options name. A pattern never means internal topics."""
    if options.pattern is None:
        described = client.describe_topics(list(dict.fromkeys(options.topics)))
        missing = [name for name, found in described.items() if found is None]
        if missing:
            raise client.explain_no_topic(*missing)
        return {name: sorted(each.id for each in found.partitions) for name, found in described.items() if found}
    fits = _compile(options.pattern, "--pattern").fullmatch
    topics = client.fetch_metadata().topics
    found = {name: sorted(topic.partitions) for name, topic in sorted(topics.items()) if fits(name)}
    found = {name: partitions for name, partitions in found.items() if not name.startswith("__")}
    if not found:
        raise CommandError(f"no topic at {client.address} matches {options.pattern!r}")
    return found


def _compile(text: str, option: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise CommandError(f"{option}: {error}", USAGE_ERROR) from None


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
