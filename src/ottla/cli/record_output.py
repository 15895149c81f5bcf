r"""Formats records for `ottla consume`: values, keys and values, JSON lines, or a template.

A template's letters are those of kcat:

    %t topic    %p partition    %o offset    %T timestamp    %h headers, name=value,...    %% a percent sign
    %k key      %s value        %K length of the key         %S length of the value; -1 if there is none
    \n \t \r \0 \\ \xHH         bytes that are hard to type

Keys and values are written as raw bytes; in JSON, bytes that are not UTF-8 are base64. What was decoded with a schema
is written as JSON, and in JSON as the document that it is.
"""

import base64
import json
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.escapes import unescaped
from ottla.cli.registries import JsonText

if TYPE_CHECKING:
    from confluent_kafka import Message

VALUE = "value"
KEY_VALUE = "key-value"
JSON = "json"

Writer = Callable[["Message"], bytes]

_FIELD = re.compile(r"%(.|$)", re.DOTALL)


def writer_of(form: str, *, key_separator: bytes, delimiter: bytes, null: bytes) -> Writer:
    """The function that turns a record into bytes. Raises CommandError for a format that is not valid."""
    if form == VALUE:
        return lambda message: _shown(message.value(), null) + delimiter
    if form == KEY_VALUE:
        return lambda message: b"".join(
            (_shown(message.key(), null), key_separator, _shown(message.value(), null), delimiter)
        )
    if form == JSON:
        return _write_json
    if "%" not in form:
        raise CommandError(
            f"--format: {form!r} is neither {VALUE}, {KEY_VALUE}, {JSON} nor a template with %", USAGE_ERROR
        )
    return _template(form, null)


def _write_json(message: "Message") -> bytes:
    document = document_of(message)
    if isinstance(message.key(), JsonText) or isinstance(message.value(), JsonText):
        from ottla.pipeline import json_text

        return json_text.write(document, indented=False).encode() + b"\n"
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def document_of(message: "Message") -> dict[str, object]:
    _, timestamp = message.timestamp()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp,
        "key": _json(message.key()),
        "value": _json(message.value()),
        "headers": [[name, _json(value)] for name, value in headers_of(message)],
    }


def headers_of(message: "Message") -> Sequence[tuple[str, bytes | None]]:
    found: Sequence[tuple[str, bytes | None]] = message.headers() or []  # type: ignore[assignment]  # so it returns them
    return found


def _json(data: str | bytes | None) -> object:
    if data is None or isinstance(data, str):
        return data
    if isinstance(data, JsonText):
        return data.document
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _shown(data: str | bytes | None, null: bytes) -> bytes:
    if data is None:
        return null
    return data.encode() if isinstance(data, str) else data


def _length(data: str | bytes | None) -> bytes:
    return b"-1" if data is None else str(len(data)).encode()


def _template(form: str, null: bytes) -> Writer:
    fields: dict[str, Writer] = {
        "t": lambda message: (message.topic() or "").encode(),
        "p": lambda message: str(message.partition()).encode(),
        "o": lambda message: str(message.offset()).encode(),
        "T": lambda message: str(message.timestamp()[1]).encode(),
        "k": lambda message: _shown(message.key(), null),
        "s": lambda message: _shown(message.value(), null),
        "K": lambda message: _length(message.key()),
        "S": lambda message: _length(message.value()),
        "h": lambda message: b",".join(
            name.encode() + b"=" + _shown(value, null) for name, value in headers_of(message)
        ),
    }
    parts: list[Writer] = []
    position = 0
    for match in _FIELD.finditer(form):
        if match[1] != "%" and match[1] not in fields:
            raise CommandError(f"--format: %{match[1]} is none of %{' %'.join(fields)} %%", USAGE_ERROR)
        parts.append(_constant(unescaped(form[position : match.start()])))
        parts.append(fields[match[1]] if match[1] != "%" else _constant(b"%"))
        position = match.end()
    parts.append(_constant(unescaped(form[position:])))
    return lambda message: b"".join([part(message) for part in parts])


def _constant(text: bytes) -> Writer:
    return lambda message: text
