"""Types of JSON columns: from a schema in SQL's notation, or from a sample of values."""

import pyarrow as pa
import pytest

from ottla.pipeline.formats.ddl import type_of_ddl
from ottla.pipeline.formats.inference import infer_type


def test_types_in_the_notation_of_sql() -> None:
    """All simple types, nested ones, quoted names, and the options that may follow a type."""
    found = type_of_ddl(
        "id BIGINT NOT NULL COMMENT 'it''s', `a ``b`: int, c TinyInt, d smallint, e float, f double, g boolean, "
        "h string, i binary, j date, k timestamp, l timestamp_ntz, m decimal, n DECIMAL(5, 2), o varchar(7), "
        "p array<struct<x: int, y array<long>>>, q map<string, struct<>>".replace("''", "")
    )
    assert found == pa.struct(
        [
            ("id", pa.int64()),
            ("a `b", pa.int32()),
            ("c", pa.int8()),
            ("d", pa.int16()),
            ("e", pa.float32()),
            ("f", pa.float64()),
            ("g", pa.bool_()),
            ("h", pa.string()),
            ("i", pa.binary()),
            ("j", pa.date32()),
            ("k", pa.timestamp("us", "UTC")),
            ("l", pa.timestamp("us")),
            ("m", pa.decimal128(10, 0)),
            ("n", pa.decimal128(5, 2)),
            ("o", pa.string()),
            ("p", pa.list_(pa.struct([("x", pa.int32()), ("y", pa.list_(pa.int64()))]))),
            ("q", pa.map_(pa.string(), pa.struct([]))),
        ]
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no field at its end"),
        ("id", "expected a type at its end"),
        ("id bigint,", "expected the name of a field at its end"),
        ("id bigint name string", "expected a comma or the end at 'name string'"),
        ("id number", "there is no type 'number' at 'number'"),
        ("id array<int", "expected '>' at its end"),
        ("id decimal(39)", "a decimal has 1 to 38 digits"),
        ("id decimal(1, 2)", "no more decimal places than digits"),
        ("id decimal(x)", "expected a number"),
        ("id int; drop", "unexpected character at '; drop'"),
        ("a " + "array<" * 1000, "types are nested more than 50 deep"),
    ],
)
def test_an_invalid_schema_is_reported_with_its_position(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="not a schema like 'id BIGINT, name STRING': ") as error:
        type_of_ddl(text)
    assert said in str(error.value)
    assert "\n" not in str(error.value) and len(str(error.value)) < 200


def test_a_type_is_inferred_from_values() -> None:
    """The type has the fields of all values and the wider numbers. Text stands for what is always null, and invalid
    JSON is ignored."""
    values = [
        b'{"id": 1, "tags": [], "inner": {"x": 1}, "none": null, "ok": true}',
        b"poison",
        None,
        b'{"inner": {"y": "z", "x": 2.5}, "id": 9223372036854775807, "tags": [{"n": 1}, null], "late": [1, 2.5]}',
    ]
    assert infer_type(values) == pa.struct(
        [
            ("id", pa.int64()),
            ("tags", pa.list_(pa.struct([("n", pa.int64())]))),
            ("inner", pa.struct([("x", pa.float64()), ("y", pa.string())])),
            ("none", pa.string()),
            ("ok", pa.bool_()),
            ("late", pa.list_(pa.float64())),
        ]
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([], "there are no values to infer it from"),
        ([b"x", b"\xff"], "none of 2 values is JSON"),
        ([b'{"a": {"b": 1}}', b'{"a": {"b": "1"}}'], "a.b is a number in one record and text in another"),
        ([b'{"a": {}}', b'{"a": []}'], "a is an object in one record and an array in another"),
        ([b"[" * 60 + b"]" * 60], "more than 50 levels"),
        ([b"[" * 100_000], "none of 1 values is JSON"),
    ],
)
def test_values_without_a_common_type_are_reported(values: list[bytes], said: str) -> None:
    with pytest.raises(ValueError, match="a schema must be given") as error:
        infer_type(values)
    assert said in str(error.value)
