"""`ottla kafka console-producer`: kafka-console-producer. Each line of standard input becomes a record."""

import argparse
import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.cli.client_settings import read_properties_file
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.escapes import typed_bytes
from ottla.cli.kafka.flags import add_client_flags, add_switches
from ottla.cli.numbers import INT32_MAX, int_between
from ottla.cli.pairs import parse_pairs
from ottla.cli.produce import ALL, ANY_PARTITION, CODECS, Delivery
from ottla.cli.record_input import Headers, InputRecord, lines

ACKS = {"0": "0", "1": "1", "-1": ALL, ALL: ALL}
READERS = ("kafka.tools.ConsoleProducer$LineMessageReader", "org.apache.kafka.tools.LineMessageReader")
TUNING = {
    "--batch-size": "batch.size",
    "--message-send-max-retries": "message.send.max.retries",
    "--retry-backoff-ms": "retry.backoff.ms",
    "--timeout": "linger.ms",
    "--request-timeout-ms": "request.timeout.ms",
    "--metadata-expiry-ms": "metadata.max.age.ms",
    "--socket-buffer-size": "socket.send.buffer.bytes",
}
"""Flags that stand for settings of the producer."""
WITHOUT_EFFECT = ("--max-block-ms", "--max-memory-bytes", "--max-partition-memory-bytes")

parse_number = int_between(0, INT32_MAX)


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_client_flags(parser, config=["--producer.config"], settings=["--producer-property"])
    parser.add_argument("--topic", required=True, help="the topic")
    parser.add_argument(
        "--compression-codec", nargs="?", const="gzip", default="none", choices=CODECS, help="gzip without a value"
    )
    parser.add_argument("--request-required-acks", choices=tuple(ACKS), default="-1", help="(default: -1, all)")
    parser.add_argument("--line-reader", choices=READERS, help="only Kafka's default")
    parser.add_argument(
        "--reader-property",
        "--property",
        action="append",
        default=[],
        dest="properties",
        metavar="KEY=VALUE",
        help="parse.key=true, key.separator, parse.headers=true, null.marker, ...; may be repeated",
    )
    parser.add_argument("--reader-config", metavar="FILE", help="a properties file with such properties")
    for flag, setting in TUNING.items():
        parser.add_argument(flag, type=parse_number, metavar="N", help=f"the producer's {setting}")
    for flag in WITHOUT_EFFECT:
        parser.add_argument(flag, type=parse_number, metavar="N", help="has no effect")
    add_switches(parser, [("--sync", "wait for each record")])


class LineReader(NamedTuple):
    """What a line consists of: headers, key and value, each followed by a separator."""

    has_headers: bool
    has_key: bool
    header_end: bytes
    header_separator: bytes
    header_name_end: bytes
    key_separator: bytes
    null: bytes | None
    ignores_errors: bool

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "LineReader":
        def is_true(name: str) -> bool:
            return properties.get(name, "false").strip().lower() == "true"

        def text(name: str, default: str) -> bytes:
            return typed_bytes(properties.get(name, default))

        return cls(
            is_true("parse.headers"),
            is_true("parse.key"),
            text("headers.delimiter", "\t"),
            text("headers.separator", ","),
            text("headers.key.separator", ":"),
            text("key.separator", "\t"),
            text("null.marker", "") if "null.marker" in properties else None,
            is_true("ignore.error"),
        )

    def read(self, line: bytes, number: int) -> InputRecord:
        """CommandError if a separator is missing, unless errors are ignored: then the rest is the value."""
        headers: Headers = ()
        key: bytes | None = None
        if self.has_headers:
            text, found, rest = line.partition(self.header_end)
            if found:
                headers, line = self._read_headers(text, number), rest
            else:
                self._complain(number, "separator of headers", self.header_end)
        if self.has_key:
            text, found, rest = line.partition(self.key_separator)
            if found:
                key, line = text, rest
            else:
                self._complain(number, "key separator", self.key_separator)
        return InputRecord(self._field(key), self._field(line), headers)

    def _read_headers(self, text: bytes, number: int) -> Headers:
        if text == self.null:
            return ()
        headers: list[tuple[str, bytes | None]] = []
        for pair in text.split(self.header_separator):
            name, found, value = pair.partition(self.header_name_end)
            if not found:
                self._complain(number, "separator of a header's name", self.header_name_end)
            headers.append((name.decode(errors="replace"), self._field(value) if found else None))
        return tuple(headers)

    def _field(self, data: bytes | None) -> bytes | None:
        return None if data == self.null else data

    def _complain(self, number: int, what: str, separator: bytes) -> None:
        if not self.ignores_errors:
            raise CommandError(f"standard input, line {number}: no {what} {separator.decode(errors='replace')!r}")


def run(options: argparse.Namespace) -> None:
    file = options.reader_config
    properties = (read_properties_file(file) if file else {}) | parse_pairs(options.properties, "--reader-property")
    reader = LineReader.of(properties)
    if b"" in (reader.key_separator, reader.header_end, reader.header_separator, reader.header_name_end):
        raise CommandError("--reader-property: a separator cannot be empty", USAGE_ERROR)
    given = {setting: getattr(options, flag[2:].replace("-", "_")) for flag, setting in TUNING.items()}
    options.client_settings += [f"{name}={value}" for name, value in given.items() if value is not None]
    delivery = Delivery(
        argparse.Namespace(
            **vars(options),
            partition=ANY_PARTITION,
            keep_partition=False,
            key=None,
            headers=[],
            report=False,
            files=[],
            acks=ACKS[options.request_required_acks],
            codec=options.compression_codec,
            create=True,
            registry=None,
            key_schema=None,
            value_schema=None,
            message=None,
        )
    )
    try:
        for record in _read_records(reader):
            delivery.send(record)
            if options.sync:
                delivery.finish()
    except (CommandError, KeyboardInterrupt):
        delivery.finish()
        raise
    delivery.finish()


def _read_records(reader: LineReader) -> Iterator[InputRecord]:
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        print(">", end="", flush=True)
    for number, line in enumerate(lines(sys.stdin.buffer, b"\n"), start=1):
        yield reader.read(line.removesuffix(b"\r"), number)
        if is_terminal:
            print(">", end="", flush=True)
