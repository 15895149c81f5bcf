"""`ottla kafka console-consumer`: kafka-console-consumer. It prints records until Ctrl-C or a limit that flags set."""

import argparse
import sys
import time
from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any

from ottla.cli.client import CommandClient, explain, is_about_unused_group, require_text
from ottla.cli.client_settings import read_properties_file
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.escapes import typed_bytes
from ottla.cli.kafka.flags import add_client_flags, add_switches, compile_pattern
from ottla.cli.numbers import parse_count, parse_offset, parse_partition
from ottla.cli.pairs import parse_pairs
from ottla.cli.topic_reader import SETTINGS, locate

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

GLANCE_S = 0.2
RECORDS_MAX = 1_000
LEVELS = ("read_uncommitted", "read_committed")
FORMATTERS = ("kafka.tools.DefaultMessageFormatter", "org.apache.kafka.tools.consumer.DefaultMessageFormatter")
NUMBERS = {"Integer": Struct(">i"), "Long": Struct(">q"), "Short": Struct(">h"), "Float": Struct(">f")}
NUMBERS["Double"] = Struct(">d")
AS_THEY_ARE = ("String", "ByteArray", "Bytes", "ByteBuffer")
TIMESTAMPS = {0: b"NO_TIMESTAMP", 1: b"CreateTime", 2: b"LogAppendTime"}

Deserializer = Callable[[bytes], bytes]


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_client_flags(parser, config=["--consumer.config"], settings=["--consumer-property"])
    parser.add_argument("--topic", help="the topic")
    parser.add_argument("--include", metavar="REGEX", help="topics whose whole names match")
    parser.add_argument("--partition", type=parse_partition, help="only this partition, from its end on or --offset")
    parser.add_argument("--offset", metavar="N", help="earliest, latest, or a number; needs --partition")
    parser.add_argument("--group", help="the group that the consumer joins (default: none)")
    parser.add_argument("--max-messages", type=parse_count, metavar="N", help="stop after N records")
    parser.add_argument("--timeout-ms", type=parse_count, metavar="MS", help="stop if no record comes for so long")
    parser.add_argument("--isolation-level", choices=LEVELS, default=LEVELS[0])
    parser.add_argument("--formatter", metavar="CLASS", help="only Kafka's default")
    parser.add_argument(
        "--formatter-property",
        "--property",
        action="append",
        default=[],
        dest="properties",
        metavar="KEY=VALUE",
        help="print.key=true and others: timestamp, partition, offset, epoch, headers, value; key.separator, ...",
    )
    parser.add_argument("--formatter-config", metavar="FILE", help="a properties file with such properties")
    parser.add_argument("--key-deserializer", metavar="CLASS", help="Kafka's class for text, bytes or a number")
    parser.add_argument("--value-deserializer", metavar="CLASS", help="Kafka's class for text, bytes or a number")
    add_switches(
        parser,
        [
            ("--from-beginning", "begin with the first record instead of the next"),
            ("--skip-message-on-error", "go on after a record that cannot be printed"),
            ("--enable-systest-events", "has no effect"),
        ],
    )


class Formatter:
    """Prints a record as Kafka's default formatter does."""

    def __init__(self, properties: dict[str, str], key: str | None, value: str | None) -> None:
        self._shows = {
            what: properties.get(f"print.{what}", "false").strip().lower() == "true"
            for what in ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key")
        }
        self._shows["value"] = properties.get("print.value", "true").strip().lower() == "true"
        self._separator = typed_bytes(properties.get("key.separator", "\t"))
        self._line_end = typed_bytes(properties.get("line.separator", "\n"))
        self._header_separator = typed_bytes(properties.get("headers.separator", ","))
        self._null = typed_bytes(properties.get("null.literal", "null"))
        self._key = choose_deserializer(key or properties.get("key.deserializer"))
        self._value = choose_deserializer(value or properties.get("value.deserializer"))

    def format(self, message: "Message") -> bytes:
        """ValueError if a key or value is not what its deserializer expects."""
        kind, moment = message.timestamp()
        stamp = TIMESTAMPS[kind] + (b":%d" % moment if kind else b"")
        partition, offset = locate(message)
        epoch = message.leader_epoch()
        parts = {
            "timestamp": stamp,
            "partition": b"Partition:%d" % partition,
            "offset": b"Offset:%d" % offset,
            "delivery": b"Delivery:NOT_PRESENT",
            "epoch": b"Epoch:%d" % epoch if epoch is not None and epoch >= 0 else b"Epoch:NOT_PRESENT",
            "headers": self._join(message) if self._shows["headers"] else b"",
            "key": self._show(message.key(), self._key) if self._shows["key"] else b"",
            "value": self._show(message.value(), self._value) if self._shows["value"] else b"",
        }
        return self._separator.join(parts[what] for what, is_shown in self._shows.items() if is_shown) + self._line_end

    def _show(self, data: Any, deserializer: Deserializer) -> bytes:
        return self._null if data is None else deserializer(bytes(data))

    def _join(self, message: "Message") -> bytes:
        headers: Any = message.headers()
        pairs = (name.encode() + b":" + (self._null if value is None else value) for name, value in headers or ())
        return self._header_separator.join(pairs) if headers else b"NO_HEADERS"


def choose_deserializer(class_name: str | None) -> Deserializer:
    """By the name of Kafka's class. CommandError for one that is not there."""
    name = (class_name or "String").rpartition(".")[2].removesuffix("Deserializer")
    if name in AS_THEY_ARE:
        return bytes
    if name not in NUMBERS:
        known = ", ".join((*AS_THEY_ARE, *NUMBERS))
        raise CommandError(
            f"there is no deserializer {class_name!r}; there are those of Kafka for {known}", USAGE_ERROR
        )
    layout = NUMBERS[name]

    def read_number(data: bytes) -> bytes:
        try:
            return str(layout.unpack(data)[0]).encode()
        except StructError:
            raise ValueError(f"{len(data)} bytes are not the {layout.size} of a {name}") from None

    return read_number


def run(options: argparse.Namespace) -> int:
    if (options.topic is None) == (options.include is None):
        raise CommandError("give --topic or --include", USAGE_ERROR)
    if options.partition is not None and (options.topic is None or options.group is not None):
        raise CommandError("--partition needs --topic, and no --group", USAGE_ERROR)
    if options.offset is not None and (options.partition is None or options.from_beginning):
        raise CommandError("--offset needs --partition, and no --from-beginning", USAGE_ERROR)
    if options.formatter is not None and options.formatter not in FORMATTERS:
        raise CommandError(f"there is no formatter {options.formatter!r}, only {FORMATTERS[-1]}", USAGE_ERROR)
    require_text(*filter(None, (options.topic, options.include, options.group)))
    file = options.formatter_config
    properties = (read_properties_file(file) if file else {}) | parse_pairs(options.properties, "--formatter-property")
    formatter = Formatter(properties, options.key_deserializer, options.value_deserializer)
    start = parse_start(options)
    client = CommandClient(options)
    consumer = open_consumer(client, options, start)
    printed = 0
    try:
        printed = _print_records(client, consumer, formatter, options)
    except KeyboardInterrupt:
        pass
    finally:
        consumer.close()
    print(f"Processed a total of {printed} messages", file=sys.stderr)
    return 0


def parse_start(options: argparse.Namespace) -> int:
    """An offset, or librdkafka's number for the beginning or the end."""
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END

    if options.offset in (None, "earliest", "latest"):
        is_first = options.from_beginning or options.offset == "earliest"
        return int(OFFSET_BEGINNING if is_first else OFFSET_END)
    try:
        return parse_offset(options.offset)
    except argparse.ArgumentTypeError as error:
        raise CommandError(f"--offset: {error}, nor earliest or latest", USAGE_ERROR) from None


def open_consumer(client: CommandClient, options: argparse.Namespace, start: int) -> "Consumer":
    """A member of the group; without --group a consumer that reads all partitions there are."""
    from confluent_kafka import TopicPartition

    settings: dict[str, object] = {
        **SETTINGS,
        "enable.partition.eof": False,
        "isolation.level": options.isolation_level,
        "auto.offset.reset": "earliest" if options.from_beginning else "latest",
    }
    if options.group is not None:
        settings |= {"group.id": options.group, "enable.auto.commit": True}
        consumer = client.create_consumer(settings)
        consumer.subscribe([options.topic or f"^({options.include})$"])
        return consumer
    consumer = client.create_consumer(settings)
    if options.topic is not None:
        fits: Callable[[str], object] = options.topic.__eq__
    else:
        fits = compile_pattern(options.include, "--include")
    places = [
        TopicPartition(name, number, start)
        for name, topic in client.fetch_metadata().topics.items()
        for number in topic.partitions
        if fits(name) and options.partition in (None, number)
    ]
    if not places:
        consumer.close()
        client.describe_topic(options.include if options.topic is None else options.topic)
        raise CommandError(f"topic {options.topic!r} has no partition {options.partition}")
    consumer.assign(places)
    return consumer


def _print_records(
    client: CommandClient, consumer: "Consumer", formatter: Formatter, options: argparse.Namespace
) -> int:
    printed = 0
    heard_s = time.monotonic()
    while options.max_messages is None or printed < options.max_messages:
        left = RECORDS_MAX if options.max_messages is None else min(options.max_messages - printed, RECORDS_MAX)
        first = consumer.poll(GLANCE_S) if left else None
        arrived = [] if first is None else [first, *(consumer.consume(left - 1, 0) if left > 1 else ())]
        if arrived:
            heard_s = time.monotonic()
        elif options.timeout_ms is not None and time.monotonic() - heard_s > options.timeout_ms / 1000:
            return printed
        elif time.monotonic() > client.connection_errors.give_up_at_s and not printed:
            raise client.explain_no_broker(client.connection_errors.latest)
        for message in arrived:
            printed += _print_one(message, formatter, options)
        sys.stdout.buffer.flush()
    return printed


def _print_one(message: "Message", formatter: Formatter, options: argparse.Namespace) -> int:
    """How many records were printed: none if this is an event that concerns no record."""
    error = message.error()
    if error is not None:
        if options.group is None and is_about_unused_group(error):
            return 0
        raise CommandError(explain(error))
    try:
        sys.stdout.buffer.write(formatter.format(message))
    except ValueError as reason:
        if not options.skip_message_on_error:
            where = f"{message.topic()}-{message.partition()} at offset {message.offset()}"
            raise CommandError(f"{where}: {reason}") from None
    return 1
