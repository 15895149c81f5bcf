r"""Escapes in arguments: \n \t \r \0 \\ and \x41 stand for bytes that are hard to type."""

import re

from ottla.cli.command_error import USAGE_ERROR, CommandError

_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|.|$)", re.DOTALL)
_NAMED = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"0": b"\0", b"\\": b"\\"}


def typed_bytes(text: str) -> bytes:
    """The bytes of an argument as the shell passed them, even if they are not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def unescaped(text: str) -> bytes:
    """The bytes that `text` stands for. Raises CommandError for an unknown escape."""

    def replacement(match: re.Match[bytes]) -> bytes:
        code: bytes = match[1]
        if len(code) == 3:
            return bytes([int(code[1:], 16)])
        if code not in _NAMED:
            raise CommandError(rf"{text!r}: after a backslash comes one of n t r 0 \ or xHH", USAGE_ERROR)
        return _NAMED[code]

    return _ESCAPE.sub(replacement, typed_bytes(text))
