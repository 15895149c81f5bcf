"""Schemas as Spark's SQL writes them: `id INT NOT NULL, tags ARRAY<STRING>, place STRUCT<x: DOUBLE, y: DOUBLE>`.

PySpark leaves this to its JVM, which the tasks of connectors cannot ask.
"""

import re
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.errors import BadConfig

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

_WORDS: Final = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(\w+)|([<>(),:]))")
_TYPES: Final = {
    **{"boolean": "BooleanType", "tinyint": "ByteType", "byte": "ByteType", "smallint": "ShortType"},
    **{"short": "ShortType", "int": "IntegerType", "integer": "IntegerType", "bigint": "LongType", "long": "LongType"},
    **{"float": "FloatType", "real": "FloatType", "double": "DoubleType", "date": "DateType", "string": "StringType"},
    **{"timestamp": "TimestampType", "timestamp_ltz": "TimestampType", "timestamp_ntz": "TimestampNTZType"},
    **{"binary": "BinaryType", "void": "NullType"},
}


def parse_schema(text: str) -> "StructType":
    """BadConfig if it is no schema."""
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def parse(self) -> "StructType":
        found = self._parse_fields()
        if self._text[self._at :].strip():
            raise self._fail()
        return found

    def _fail(self) -> BadConfig:
        return BadConfig(f"{self._text!r} is no schema of Spark: {self._text[self._at :].strip()!r} is not understood")

    def _take(self, *wanted: str) -> bool:
        """Whether these words come next; then they are passed."""
        before = self._at
        for each in wanted:
            found = _WORDS.match(self._text, self._at)
            if found is None or found[0].strip().lower() != each:
                self._at = before
                return False
            self._at = found.end()
        return True

    def _expect(self, wanted: str) -> None:
        if not self._take(wanted):
            raise self._fail()

    def _take_name(self) -> str:
        found = _WORDS.match(self._text, self._at)
        if found is None or not (found[1] or found[3]):
            raise self._fail()
        self._at = found.end()
        return found[1][1:-1].replace("``", "`") if found[1] else found[3]

    def _parse_fields(self) -> "StructType":
        from pyspark.sql.types import StructType

        fields = [self._parse_field()]
        while self._take(","):
            fields.append(self._parse_field())
        return StructType(fields)

    def _parse_field(self) -> "StructField":
        from pyspark.sql.types import StructField

        name = self._take_name()
        self._take(":")
        kind = self._parse_type()
        is_nullable = not self._take("not", "null")
        if self._take("comment"):
            found = _WORDS.match(self._text, self._at)
            if found is None or not found[2]:
                raise self._fail()
            self._at = found.end()
        return StructField(name, kind, is_nullable)

    def _parse_type(self) -> "DataType":
        from pyspark.sql import types

        before = self._at
        name = self._take_name().lower()
        match name:
            case "array":
                self._expect("<")
                element = self._parse_type()
                self._expect(">")
                return types.ArrayType(element)
            case "map":
                self._expect("<")
                key = self._parse_type()
                self._expect(",")
                value = self._parse_type()
                self._expect(">")
                return types.MapType(key, value)
            case "struct":
                self._expect("<")
                fields = self._parse_fields()
                self._expect(">")
                return fields
            case "decimal" | "dec" | "numeric":
                return types.DecimalType(*self._parse_sizes())
            case "char" | "varchar":
                self._parse_sizes()
                return types.StringType()
        if name not in _TYPES:
            self._at = before
            raise self._fail()
        made: Any = getattr(types, _TYPES[name])
        return made()  # type: ignore[no-any-return]

    def _parse_sizes(self) -> list[int]:
        """`(10, 2)`, or nothing."""
        found: list[int] = []
        if not self._take("("):
            return found
        while not found or self._take(","):
            digits = self._take_name()
            if not digits.isdecimal():
                raise self._fail()
            found.append(int(digits))
        self._expect(")")
        return found
