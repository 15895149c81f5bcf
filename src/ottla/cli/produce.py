"""`ottla produce`: sends records from standard input or files to a topic, as bytes or encoded with registered schemas.

The command ends with 0 when every record is acknowledged. If a line is not a valid record, or a record is refused, the
records before it are still sent, and the message says how many.
"""

import argparse
import sys
import time
from itertools import islice
from typing import TYPE_CHECKING

from ottla.cli.client import OPERATION_S, CommandClient, explain, require_text
from ottla.cli.client_settings import add_client_arguments
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.escapes import typed_bytes, unescaped
from ottla.cli.input_progress import InputProgress
from ottla.cli.numbers import parse_count, parse_partition
from ottla.cli.output import counted
from ottla.cli.record_input import FORMATS, LINES, Headers, InputRecord, LineFormat, read_records
from ottla.cli.registries import Encoder, add_registry_argument, make_encoder, open_registry

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ALL = "all"
ANY_PARTITION = -1
POLL_EVERY = 256
FULL_S = 0.1
FLUSH_GLANCE_S = 0.2

SETTINGS = {
    "linger.ms": 5,
    "partitioner": "murmur2_random",  # the partitioner of the Java client
    "message.max.bytes": 1_000_000_000,  # the broker decides how large a record may be
    "message.timeout.ms": int(OPERATION_S * 1000),
    "queue.buffering.max.kbytes": 256 * 1024,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_arguments(parser)
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "files", nargs="*", default=[], metavar="FILE", help="where records come from (default: standard input)"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default=LINES,
        help="a record is a line, a line as `consume --format json` writes it, or a whole file (default: lines)",
    )
    parser.add_argument("-D", "--delimiter", default="\\n", metavar="TEXT", help=r"ends a line (default: \n)")
    parser.add_argument(
        "-K", "--key-separator", metavar="TEXT", help="separates key and value in a line (default: no keys)"
    )
    parser.add_argument("-k", "--key", metavar="TEXT", help="the key of records that have none")
    parser.add_argument("--null", metavar="TEXT", help="this text stands for a null key or value (tombstone)")
    parser.add_argument(
        "-H",
        "--header",
        action="append",
        default=[],
        dest="headers",
        metavar="NAME=VALUE",
        help="a header for every record; may be repeated",
    )
    parser.add_argument(
        "-p", "--partition", type=parse_partition, default=ANY_PARTITION, help="send all records to this partition"
    )
    parser.add_argument("--keep-partition", action="store_true", help="send each record to the partition in its JSON")
    parser.add_argument("-z", "--codec", choices=CODECS, default="none", help="compression (default: none)")
    parser.add_argument(
        "--acks", choices=("0", "1", ALL), default=ALL, help="replicas that must have a record (default: all)"
    )
    parser.add_argument("-n", "--count", type=parse_count, metavar="N", help="stop after N records")
    add_registry_argument(parser, "for --value-schema and --key-schema")
    for part in ("value", "key"):
        parser.add_argument(
            f"--{part}-schema",
            metavar="SCHEMA_FILE",
            help=f"encode {part}s, given as JSON: a file (.avsc is Avro, .json is JSON Schema, .proto is Protobuf), "
            "`latest` for the newest schema of the topic, or the id of a schema",
        )
    parser.add_argument(
        "--message", default="", metavar="NAME", help="the Protobuf message (default: the schema's first)"
    )
    parser.add_argument("--no-register", action="store_true", help="use a schema only if the registry has it already")
    parser.add_argument("--create", action="store_true", help="create the topic if it does not exist")
    parser.add_argument("--report", action="store_true", help="print partition and offset of each record")


def run(options: argparse.Namespace) -> int:
    line_format = LineFormat(
        _delimiter(options.delimiter, "--delimiter"),
        None if options.key_separator is None else _delimiter(options.key_separator, "--key-separator"),
        None if options.null is None else typed_bytes(options.null),
    )
    delivery = Delivery(options)
    with InputProgress(options.files, is_shown=not (options.report and sys.stdout.isatty())) as progress:
        records = read_records(options.files, sys.stdin.buffer, options.format, line_format, progress.open_file)
        try:
            for number, record in enumerate(islice(records, options.count), start=1):
                delivery.send(record)
                if number % POLL_EVERY == 0:
                    progress.show(number)
        except CommandError as error:
            delivery.finish()
            sent = counted(delivery.acknowledged, "record")
            raise CommandError(f"{error}; {sent} sent before it", error.status) from None
        except KeyboardInterrupt:
            delivery.finish()
            raise
        delivery.finish()
    return 0


def _delimiter(text: str, option: str) -> bytes:
    if not text:
        raise CommandError(f"produce: {option} cannot be empty", USAGE_ERROR)
    return unescaped(text)


class Delivery:
    """Sends records and counts them until they are acknowledged."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._sent = 0
        self._failures = 0
        self._reason = ""
        self._topic: str = options.topic
        self._partition: int = options.partition
        self._keep_partition: bool = options.keep_partition
        self._key = None if options.key is None else typed_bytes(options.key)
        self._headers = _headers(options.headers)
        self._report: bool = options.report
        self._interactive = sys.stdin.isatty() and not options.files
        client = CommandClient(options)
        self._connection_errors = client.connection_errors
        _check_topic(client, options)
        self._encoders = _make_encoders(client, options)
        self._producer = client.create_producer(
            {
                **SETTINGS,
                "acks": options.acks,
                "compression.type": options.codec,
                "enable.idempotence": options.acks == ALL,  # so that a retry neither duplicates nor reorders
                "on_delivery": self._delivered,
                "delivery.report.only.error": not options.report,  # a callback per record costs as much as sending it
            }
        )

    @property
    def acknowledged(self) -> int:
        return self._sent - self._failures - len(self._producer)

    def send(self, record: InputRecord) -> None:
        """Send a record. Raises CommandError if an earlier one was not delivered."""
        own = record.partition if self._keep_partition else None
        key = self._key if record.key is None else record.key
        if self._encoders:
            key, record = self._encode(key, record)
        self._produce(record, key, self._partition if own is None else own)
        self._sent += 1
        if self._interactive:
            self._producer.flush(OPERATION_S)
        elif self._sent % POLL_EVERY == 0:
            self._producer.poll(0)
        self._raise_for_failures()

    def _encode(self, key: bytes | None, record: InputRecord) -> tuple[bytes | None, InputRecord]:
        try:
            if "key" in self._encoders:
                key = self._encoders["key"].encode(key)
            if "value" in self._encoders:
                record = record._replace(value=self._encoders["value"].encode(record.value))
        except CommandError as error:
            raise CommandError(f"record {self._sent + 1}: {error}") from None
        return key, record

    def finish(self) -> None:
        """Wait until the last record is acknowledged or has failed."""
        while self._producer.flush(FLUSH_GLANCE_S):
            if self._failures and time.monotonic() > self._connection_errors.give_up_at_s:
                self._producer.purge()  # no broker answers: do not wait for the others
        self._raise_for_failures()

    def _produce(self, record: InputRecord, key: bytes | None, partition: int) -> None:
        from confluent_kafka import KafkaException

        headers: list[tuple[str, str | bytes | None]] = [*self._headers, *record.headers]
        while True:
            try:
                self._producer.produce(
                    self._topic, record.value, key, partition, timestamp=record.timestamp, headers=headers or None
                )
                return
            except BufferError:  # the client's queue is full
                self._producer.poll(FULL_S)
            except KafkaException as error:
                raise CommandError(f"record {self._sent + 1}: {explain(error.args[0])}") from None

    def _delivered(self, error: "KafkaError | None", message: "Message") -> None:
        if error is not None:
            self._failures += 1
            self._reason = self._reason or explain(error)
            return
        if self._report:
            try:
                print(message.partition(), message.offset(), flush=self._interactive)
            except BrokenPipeError:  # nobody reads the report; keep sending
                self._report = False

    def _raise_for_failures(self) -> None:
        if self._failures:
            raise CommandError(
                f"topic {self._topic!r}: {counted(self._failures, 'record')} not delivered: {self._reason}"
            )


def _make_encoders(client: CommandClient, options: argparse.Namespace) -> dict[str, Encoder]:
    """The encoders of keys and values that have a schema."""
    wanted = {"key": options.key_schema, "value": options.value_schema}
    registry = open_registry(options, client.settings)
    given = {part: schema for part, schema in wanted.items() if schema is not None}
    if given and registry is None:
        raise CommandError(f"--{next(iter(given))}-schema needs a registry: give --registry URL", USAGE_ERROR)
    if options.message and options.value_schema is None:
        raise CommandError("--message is for a --value-schema of Protobuf", USAGE_ERROR)
    return {part: make_encoder(registry, part, schema, options) for part, schema in given.items() if registry}


def _headers(texts: list[str]) -> Headers:
    headers = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise CommandError(f"--header: {text!r} is not NAME=VALUE", USAGE_ERROR)
        require_text(name)
        headers.append((name, typed_bytes(value)))
    return tuple(headers)


def _check_topic(client: CommandClient, options: argparse.Namespace) -> None:
    """Check that the topic exists, so that a misspelt name does not create one; --create creates it."""
    from confluent_kafka.cimpl import NewTopic

    name = options.topic
    topic = client.describe_topics([name])[name]
    if topic is None and not options.create:
        raise CommandError(f"{client.explain_no_topic(name)}; --create creates it")
    if topic is None:
        asked = client.change(client.admin.create_topics, [NewTopic(name)])
        client.wait_for(asked[name], f"topic {name!r}")
        topic = client.describe_topic(name)
    known = sorted(partition.id for partition in topic.partitions)
    if options.partition != ANY_PARTITION and options.partition not in known:
        raise CommandError(f"topic {name!r} has no partition {options.partition}, only {known[0]} to {known[-1]}")
