"""Parses types in SQL syntax to Arrow types: `id BIGINT, name STRING, lines ARRAY<STRUCT<price: DECIMAL(10, 2)>>`.

Names and meaning are Spark's: TIMESTAMP is a point in time, TIMESTAMP_NTZ a date and time without a time zone. NOT NULL
and COMMENT are accepted and ignored: any field of a record may be missing.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

import pyarrow as pa

_TOKEN = re.compile(r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<text>'(?:[^'\\]|\\.)*')|(?P<word>\w+)|(?P<sign>[<>(),:]))")

_SIMPLE = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ltz": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMALS = ("decimal", "dec", "numeric")
_PRECISION, _PRECISION_MAX = 10, 38
_DEPTH_MAX = 50
_END = ""


class Token(NamedTuple):
    text: str
    """The text of the token without quotes; empty for the end."""
    position: int
    kind: str


def type_of_ddl(text: str) -> pa.DataType:
    """Parses a list of fields to a struct type. The ValueError has one line, with the place of the error."""
    parser = _Parser(text)
    found = parser.fields(_END, 0)
    if not len(found):
        parser.refuse("there is no field")
    return pa.struct(found)


class _Parser:
    """A recursive-descent parser. Methods named after a part of a type parse that part."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._tokenize())
        self._next = 0

    def _tokenize(self) -> Iterator[Token]:
        position = 0
        end = len(self._text.rstrip())
        while position < end:
            found = _TOKEN.match(self._text, position)
            if found is None:
                self._refuse_at(position, "unexpected character")
            kind = str(found.lastgroup)
            word = found[kind]
            yield Token(word[1:-1].replace("``", "`") if kind == "quoted" else word, found.start(kind), kind)
            position = found.end()
        yield Token(_END, end, "end")

    def fields(self, last: str, depth: int) -> list[pa.Field]:
        """Parses fields up to and including the token `last`."""
        found: list[pa.Field] = []
        if self._accept(last):
            return found
        while True:
            name = self._name()
            self._accept(":")
            found.append(pa.field(name, self._parse_type(depth)))
            self._skip_annotations()
            if self._accept(last):
                return found
            if not self._accept(","):
                self.refuse(f"expected a comma or {last or 'the end'}")

    def _parse_type(self, depth: int) -> pa.DataType:
        if depth > _DEPTH_MAX:
            self.refuse(f"types are nested more than {_DEPTH_MAX} deep")
        token = self._take("word", "a type")
        name = token.text.lower()
        if name == "struct":
            self._expect("<")
            return pa.struct(self.fields(">", depth + 1))
        if name == "array":
            return pa.list_(self._parse_inner(depth, ">"))
        if name == "map":
            key = self._parse_inner(depth, ",")
            value = self._parse_type(depth + 1)
            self._expect(">")
            return pa.map_(key, value)
        if name in _DECIMALS:
            return self._parse_decimal(token)
        if name in ("char", "varchar"):
            self._parse_numbers()
            return pa.string()
        if name not in _SIMPLE:
            self._refuse_at(token.position, f"there is no type {token.text!r}")
        return _SIMPLE[name]

    def _parse_inner(self, depth: int, last: str) -> pa.DataType:
        self._expect("<")
        found = self._parse_type(depth + 1)
        self._expect(last)
        return found

    def _parse_decimal(self, token: Token) -> pa.DataType:
        numbers = self._parse_numbers() or [_PRECISION]
        precision, scale = numbers[0], numbers[1] if len(numbers) > 1 else 0
        if len(numbers) > 2 or not 0 <= scale <= precision <= _PRECISION_MAX or not precision:
            self._refuse_at(
                token.position, f"a decimal has 1 to {_PRECISION_MAX} digits and no more decimal places than digits"
            )
        return pa.decimal128(precision, scale)

    def _parse_numbers(self) -> list[int]:
        """Parses the numbers in parentheses after a type, if there are any."""
        found: list[int] = []
        if not self._accept("("):
            return found
        while True:
            token = self._take("word", "a number")
            if not token.text.isdecimal() or len(token.text) > 9:
                self._refuse_at(token.position, "expected a number")
            found.append(int(token.text))
            if self._accept(")"):
                return found
            self._expect(",")

    def _skip_annotations(self) -> None:
        """Skips NOT NULL and COMMENT."""
        if self._accept("not"):
            self._expect("null")
        if self._accept("comment"):
            self._take("text", "a comment in quotes")

    # Tokens

    def _name(self) -> str:
        token = self._tokens[self._next]
        if token.kind not in ("word", "quoted"):
            self.refuse("expected the name of a field")
        self._next += 1
        return token.text

    def _take(self, kind: str, what: str) -> Token:
        """Returns the next token, which must be of this kind; an error message calls it `what`."""
        token = self._tokens[self._next]
        if token.kind != kind:
            self.refuse(f"expected {what}")
        self._next += 1
        return token

    def _accept(self, text: str) -> bool:
        """Skips the next token if it is `text`; returns whether it is."""
        token = self._tokens[self._next]
        if token.kind == "quoted" or token.text.lower() != text:
            return False
        if token.kind != "end":
            self._next += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            self.refuse(f"expected {text!r}")

    def refuse(self, reason: str) -> NoReturn:
        self._refuse_at(self._tokens[self._next].position, reason)

    def _refuse_at(self, position: int, reason: str) -> NoReturn:
        rest = " ".join(self._text[position : position + 20].split())
        where = f"at {rest!r}" if rest else "at its end"
        raise ValueError(f"not a schema like 'id BIGINT, name STRING': {reason} {where}")
