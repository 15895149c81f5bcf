"""The type of a header or a literal is read out of its text, as Kafka Connect does."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from ottla.connect.data.java_text import format_float, to_connect_text, to_java_text
from ottla.connect.data.logical import DATE_SCHEMA, TIME_SCHEMA, TIMESTAMP_SCHEMA, make_decimal_schema
from ottla.connect.data.schema import Field, Schema, Type
from ottla.connect.data.values import convert_to_number, parse_text
from ottla.connect.errors import RecordError


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("", Schema(Type.STRING), ""),
        ("null", None, None),
        ("true", Schema(Type.BOOLEAN), True),
        ("true}", Schema(Type.STRING), "true}"),
        ("7", Schema(Type.INT8), 7),
        ("-129", Schema(Type.INT16), -129),
        ("40000", Schema(Type.INT32), 40000),
        ("4000000000", Schema(Type.INT64), 4000000000),
        ("1e3", Schema(Type.INT16), 1000),
        ("2.5", Schema(Type.FLOAT32), 2.5),
        ("1.5e300", Schema(Type.FLOAT64), 1.5e300),
        ("99999999999999999999", make_decimal_schema(0), Decimal("99999999999999999999")),
        ("2019-08-23", DATE_SCHEMA, date(2019, 8, 23)),
        ("14:34:54.346Z", TIME_SCHEMA, time(14, 34, 54, 346_000)),
        ("2019-08-23T14:34:54.346Z", TIMESTAMP_SCHEMA, datetime(2019, 8, 23, 14, 34, 54, 346_000, UTC)),
        ("[1, 2, 300]", Schema(Type.ARRAY, value_schema=Schema(Type.INT16)), [1, 2, 300]),
        ('["a","b"]', Schema(Type.ARRAY, value_schema=Schema(Type.STRING)), ["a", "b"]),
        ("[]", Schema(Type.ARRAY), []),
        ("[1, null]", Schema(Type.STRING), "[1, null]"),
        (
            '{"a": 1, "b": 2.5}',
            Schema(Type.MAP, key_schema=Schema(Type.STRING), value_schema=Schema(Type.FLOAT32)),
            {"a": 1.0, "b": 2.5},
        ),
        ("{broken", Schema(Type.STRING), "{broken"),
        ("hello, world", Schema(Type.STRING), "hello, world"),
    ],
)
def test_text_says_its_type(text: str, schema: Schema | None, value: Any) -> None:
    assert parse_text(text) == (schema, value)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (1.0, Type.FLOAT64, "1.0"),
        (1e7, Type.FLOAT64, "1.0E7"),
        (123456.789, Type.FLOAT64, "123456.789"),
        (0.001, Type.FLOAT64, "0.001"),
        (0.00012, Type.FLOAT64, "1.2E-4"),
        (0.10000000149011612, Type.FLOAT32, "0.1"),
        (-0.0, Type.FLOAT64, "-0.0"),
        (float("nan"), Type.FLOAT64, "NaN"),
        (float("-inf"), Type.FLOAT32, "-Infinity"),
    ],
)
def test_floats_are_written_as_java_does(value: float, kind: Type, text: str) -> None:
    assert format_float(value, kind) == text


STRUCT = Schema(
    Type.STRUCT,
    fields=(
        Field("a", Schema(Type.INT32)),
        Field("b", Schema(Type.STRING, optional=True)),
        Field("c", Schema(Type.STRING, default="x")),
    ),
)


def test_structs_have_connects_text_and_javas() -> None:
    value = {"a": 1, "b": 'q"', "c": None}
    assert to_connect_text(STRUCT, value) == r'{"a":1,"b":"q\"","c":"x"}'
    assert to_java_text(STRUCT, value) == 'Struct{a=1,b=q"}'
    assert to_java_text(None, {"a": [1, None], "b": True}) == "{a=[1, null], b=true}"


def test_dates_have_the_text_of_their_moment() -> None:
    assert to_connect_text(TIMESTAMP_SCHEMA, datetime(2019, 8, 23, tzinfo=UTC)) == "2019-08-23"
    assert to_connect_text(TIMESTAMP_SCHEMA, datetime(1970, 1, 1, 5, tzinfo=UTC)) == "05:00:00.000Z"
    assert to_connect_text(TIMESTAMP_SCHEMA, datetime(2019, 8, 23, 1, tzinfo=UTC)) == "2019-08-23T01:00:00.000Z"


def test_numbers_are_made_to_fit() -> None:
    assert convert_to_number(Type.INT8, "300") == 44
    assert convert_to_number(Type.INT32, 2.9) == 2
    assert convert_to_number(Type.FLOAT32, "0.1") == 0.10000000149011612
    with pytest.raises(RecordError, match="unable to convert 'x' to a number"):
        convert_to_number(Type.INT8, "x")
