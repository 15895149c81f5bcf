r"""Parses the records for `ottla produce`: one per line, per JSON line, or per file.

The JSON is what `ottla consume --format json` writes, so that one command feeds the other:

    {"key": "a", "value": "1", "headers": [["name", "text"]], "timestamp": 1700000000000, "partition": 0}

Every field may be missing. Bytes that are not UTF-8 are {"base64": "..."}. Topic and offset are ignored; the partition
is used only with --keep-partition.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

from ottla.cli.command_error import CommandError
from ottla.cli.numbers import INT32_MAX, INT64_MAX

LINES = "lines"
JSON = "json"
WHOLE = "whole"
FORMATS = (LINES, JSON, WHOLE)

Headers = tuple[tuple[str, bytes | None], ...]

_CHUNK = 1 << 16
_NO_TIMESTAMP = 0  # the client library uses the current time


class InputRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int = _NO_TIMESTAMP
    partition: int | None = None


class LineFormat(NamedTuple):
    """How a line becomes a record."""

    delimiter: bytes = b"\n"
    key_separator: bytes | None = None
    null: bytes | None = None
    """A key or value of exactly these bytes is null."""

    def record(self, line: bytes, place: str) -> InputRecord:
        if self.key_separator is None:
            return InputRecord(None, self._field(line))
        key, separator, value = line.partition(self.key_separator)
        if not separator:
            raise CommandError(f"{place}: no key separator {self.key_separator.decode(errors='replace')!r}")
        return InputRecord(self._field(key), self._field(value))

    def _field(self, data: bytes) -> bytes | None:
        return None if data == self.null else data


def lines(file: BinaryIO, delimiter: bytes) -> Iterator[bytes]:
    """The lines of a file; the last one may lack the delimiter."""
    if delimiter == b"\n":
        for line in file:
            yield line[:-1] if line.endswith(b"\n") else line
        return
    rest = b""
    while chunk := file.read1(_CHUNK) if hasattr(file, "read1") else file.read(_CHUNK):
        *whole, rest = (rest + chunk).split(delimiter)
        yield from whole
    if rest:
        yield rest


def records(file: BinaryIO, name: str, form: str, line_format: LineFormat) -> Iterator[InputRecord]:
    """The records of one file. Raises CommandError with the number of a line that is not valid."""
    if form == WHOLE:
        yield InputRecord(None, file.read())
        return
    for number, line in enumerate(lines(file, line_format.delimiter), start=1):
        place = f"{name}, line {number}"
        if form == LINES:
            yield line_format.record(line, place)
        elif line.strip():
            yield json_record(line, place)


def json_record(line: bytes, place: str) -> InputRecord:
    try:
        document = json.loads(line)
        if not isinstance(document, dict):
            raise ValueError("not an object")
        timestamp, partition = document.get("timestamp"), document.get("partition")
        for number, most, what in ((timestamp, INT64_MAX, "timestamp"), (partition, INT32_MAX, "partition")):
            if number is not None and (not isinstance(number, int) or not 0 <= number <= most):
                raise ValueError(f"{what}: {number!r} is not a number between 0 and {most}")
        return InputRecord(
            _bytes(document.get("key")),
            _bytes(document.get("value")),
            _headers(document.get("headers") or []),
            timestamp or _NO_TIMESTAMP,
            partition,
        )
    except (ValueError, UnicodeError) as error:
        raise CommandError(f"{place}: not a record in JSON: {error}") from None


def _headers(entries: object) -> Headers:
    if isinstance(entries, dict):
        entries = list(entries.items())
    headers = []
    for entry in entries if isinstance(entries, list) else [entries]:
        if not isinstance(entry, list | tuple) or len(entry) != 2 or not isinstance(entry[0], str):
            raise ValueError("headers are a list of [name, value]")
        entry[0].encode()  # a name that is not UTF-8 is a ValueError too
        headers.append((entry[0], _bytes(entry[1])))
    return tuple(headers)


def _bytes(value: object) -> bytes | None:
    """Text as UTF-8, {"base64": ...} decoded; any other JSON value as its JSON text."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"}:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (TypeError, binascii.Error) as error:
            raise ValueError(f"base64: {error}") from None
    return json.dumps(value, ensure_ascii=False).encode()


def read_records(
    names: Sequence[str],
    standard_input: BinaryIO,
    form: str,
    line_format: LineFormat,
    on_open: Callable[[BinaryIO], None] = lambda file: None,
) -> Iterator[InputRecord]:
    """The records of these files in order; `-`, or no file, is standard input. `on_open` gets each file before it is
    read."""
    for name in names or ("-",):
        if name == "-":
            on_open(standard_input)
            yield from records(standard_input, "standard input", form, line_format)
            continue
        try:
            with open(name, "rb") as file:
                on_open(file)
                yield from records(file, name, form, line_format)
        except OSError as error:
            raise CommandError(f"{name}: {error.strerror or error}") from None
