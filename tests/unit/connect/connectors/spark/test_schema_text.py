"""Schemas as Spark's SQL writes them."""

import pytest

from ottla.connect.connectors.spark.schema_text import parse_schema
from ottla.connect.errors import BadConfig


@pytest.mark.parametrize(
    ("text", "simple"),
    [
        ("id INT NOT NULL, name string", "struct<id:int,name:string>"),
        (
            "`a ``b`:bigint comment 'its', d DECIMAL(10, 2), e decimal",
            "struct<a `b:bigint,d:decimal(10,2),e:decimal(10,0)>",
        ),
        ("m map<string, array<double>>, s STRUCT<x: date, y: STRUCT<z: timestamp>>", None),
        ("v varchar(3), t timestamp_ntz, b binary, n void", "struct<v:string,t:timestamp_ntz,b:binary,n:void>"),
    ],
)
def test_schemas(text: str, simple: str | None) -> None:
    expected = simple or "struct<m:map<string,array<double>>,s:struct<x:date,y:struct<z:timestamp>>>"
    assert parse_schema(text).simpleString() == expected


def test_what_may_be_null() -> None:
    assert [each.nullable for each in parse_schema("a INT NOT NULL, b INT")] == [False, True]


@pytest.mark.parametrize("text", ["", "a", "a integr", "a array<int", "a int b int", "a decimal(x)", "a int,"])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(BadConfig, match="is no schema of Spark"):
        parse_schema(text)
