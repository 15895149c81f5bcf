"""The format of the broker's log: one line per event, which a person can read and a program can parse.

    2026-05-04 12:30:00.123 WARN  storage.recovery: a torn batch was cut off topic=orders partition=3

Time, level by Kafka's name, the logger without `ottla.`, the message, then what `fields` gave. Nothing that a client
sends can start a line or hide one: control characters are written as escapes, the lines of a traceback are indented.
"""

import logging
import re
from collections.abc import Mapping
from typing import Any, TextIO

from ottla.config.loggers import read_levels, set_level

__all__ = ["LineFormatter", "configure", "escape", "fields", "read_levels", "set_level"]

_LEVELS = {logging.CRITICAL: "FATAL", logging.WARNING: "WARN"}
_PREFIX = "ottla."
_INDENT = "    "

_INVISIBLE = (
    *range(0x20),
    *range(0x7F, 0xA0),  # control characters
    0x200E,
    0x200F,
    0x2028,
    0x2029,
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
    0xFEFF,  # change how it looks
    *range(0xD800, 0xE000),  # halves of characters, which no stream can write
)
_ESCAPES: Mapping[int, str] = {
    **{code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _INVISIBLE},
    ord("\t"): r"\t",
    ord("\n"): r"\n",
    ord("\r"): r"\r",
}
_PLAIN = re.compile(r"[^\s\"'=\\]+")


def fields(**values: object) -> dict[str, Any]:
    """For `extra=` of a logging call: key=value pairs after the message. Values that are None are left out."""
    return {"fields": {name: value for name, value in values.items() if value is not None}}


def configure(stream: TextIO, level: str, formatter: logging.Formatter | None = None) -> None:
    """Write the log of this process to `stream`. Levels of single loggers can be changed later."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter or LineFormatter())
    logging.basicConfig(handlers=[handler], level=level.upper())


def escape(text: str) -> str:
    """The text on one line: control characters are escaped."""
    return text.translate(_ESCAPES)


class LineFormatter(logging.Formatter):
    default_msec_format = "%s.%03d"

    def format(self, record: logging.LogRecord) -> str:
        level = _LEVELS.get(record.levelno, record.levelname)
        name = record.name.removeprefix(_PREFIX)
        line = f"{self.formatTime(record)} {level:<5} {name}: {escape(record.getMessage())}"
        given: Mapping[str, object] = getattr(record, "fields", {})
        line += "".join(f" {key}={_format_value(value)}" for key, value in given.items())
        if record.exc_info:
            line += _indent(self.formatException(record.exc_info))
        if record.stack_info:
            line += _indent(self.formatStack(record.stack_info))
        return line


def _format_value(value: object) -> str:
    """A value in quotes if it could be mistaken for more than one."""
    text = str(value)
    if not _PLAIN.fullmatch(text):
        text = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return escape(text)


def _indent(text: str) -> str:
    return "".join(f"\n{_INDENT}{escape(line)}" for line in text.split("\n"))
