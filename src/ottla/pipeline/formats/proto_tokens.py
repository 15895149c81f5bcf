"""The words of a .proto file: names, numbers, texts and symbols, without spaces and remarks."""

import re
from typing import NamedTuple

WORD, NUMBER, TEXT, SYMBOL, END = "word", "number", "text", "symbol", "end"

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/|\ufeff)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<symbol>[][{}()<>;=,.:+/-])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(
    rb"\\(?:[xX](?P<hex>[0-9a-fA-F]{1,2})|(?P<octal>[0-7]{1,3})|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8})"
    rb"|(?P<plain>.))",
    re.DOTALL,
)
_PLAIN = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}


class Token(NamedTuple):
    kind: str
    text: str
    line: int


def split(source: str) -> list[Token]:
    """All tokens of a file, and END. ValueError, with the line, for what is none."""
    found: list[Token] = []
    position, line = 0, 1
    while position < len(source):
        match = _TOKEN.match(source, position)
        if match is None:
            raise ValueError(f"line {line}: {source[position : position + 10]!r} is not Protobuf")
        if match.lastgroup != "space":
            found.append(Token(str(match.lastgroup), match[0], line))
        line += match[0].count("\n")
        position = match.end()
    return [*found, Token(END, "", line)]


def read_text(literal: str) -> bytes:
    """The bytes of a text in quotes."""
    return _ESCAPE.sub(_unescape, literal[1:-1].encode(errors="surrogatepass"))


def _unescape(match: re.Match[bytes]) -> bytes:
    if match["hex"] is not None:
        return bytes([int(match["hex"], 16)])
    if match["octal"] is not None:
        return bytes([int(match["octal"], 8) & 255])
    if match["plain"] is not None:
        return _PLAIN.get(match["plain"], match["plain"])
    code = int(match["short"] or match["long"], 16)
    return chr(min(code, 0x10FFFF)).encode(errors="surrogatepass")


def read_integer(literal: str) -> int:
    """ValueError for a fraction."""
    if literal[:2] in ("0x", "0X"):
        return int(literal, 16)
    return int(literal, 8) if len(literal) > 1 and literal[0] == "0" else int(literal)
