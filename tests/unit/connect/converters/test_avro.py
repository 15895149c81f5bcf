"""Avro values have the bytes and the registered schemas of Confluent's AvroConverter."""

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ottla.connect.converters.choice import make_converter
from ottla.connect.converters.converter import Converter
from ottla.connect.data.conversion import array_to_values
from ottla.connect.data.logical import DATE_SCHEMA, TIME_SCHEMA, TIMESTAMP_SCHEMA, make_decimal_schema
from ottla.connect.data.schema import Field, Schema, Type
from ottla.connect.errors import BadConfig, RecordError, RetriableError
from tests.unit.client.shelf import Shelf, framed, served

INNER = Schema(Type.STRUCT, optional=True, name="shop.Inner", fields=(Field("x", Schema(Type.FLOAT64)),))
UNNAMED = Schema(Type.STRUCT, optional=True, fields=(Field("y", Schema(Type.INT16)),))
EVERYTHING = Schema(
    Type.STRUCT,
    name="shop.Everything",
    version=2,
    fields=(
        Field("int8", Schema(Type.INT8)),
        Field("int64", Schema(Type.INT64, optional=True)),
        Field("float", Schema(Type.FLOAT32)),
        Field("flag", Schema(Type.BOOLEAN, default=True)),
        Field("text", Schema(Type.STRING, optional=True, default="none")),
        Field("data", Schema(Type.BYTES, name="some.bytes", parameters={"p": "q"})),
        Field("list", Schema(Type.ARRAY, value_schema=INNER)),
        Field("map", Schema(Type.MAP, key_schema=Schema(Type.STRING), value_schema=Schema(Type.INT32))),
        Field("pairs", Schema(Type.MAP, key_schema=Schema(Type.INT32), value_schema=Schema(Type.STRING, True))),
        Field("inner", INNER),
        Field("unnamed", UNNAMED),
        Field("decimal", make_decimal_schema(2)),
        Field("date", DATE_SCHEMA),
        Field("time", TIME_SCHEMA),
        Field("timestamp", TIMESTAMP_SCHEMA),
    ),
)
VALUE: dict[str, Any] = {
    "int8": -5,
    "int64": 2**63 - 1,
    "float": 0.5,
    "flag": False,
    "text": "grüße",
    "data": b"\0\xff",
    "list": [{"x": 1.5}, None],
    "map": {"a": 1, "b": 2},
    "pairs": {1: "x", 2: None},
    "inner": {"x": 2.0},
    "unnamed": {"y": 300},
    "decimal": Decimal("-12.30"),
    "date": date(2020, 2, 29),
    "time": time(23, 59, 59, 999_000),
    "timestamp": datetime(2020, 2, 29, 1, 2, 3, 4000, UTC),
}


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def url(shelf: Shelf) -> Iterator[str]:
    with served(shelf) as address:
        yield address


def make(url: str, **config: str) -> Converter:
    return make_converter("io.confluent.connect.avro.AvroConverter", {"schema.registry.url": url, **config}, False)


def test_a_value_is_written_and_read_again(url: str) -> None:
    converter = pickle.loads(pickle.dumps(make(url)))
    data = converter.to_bytes("t", (), EVERYTHING, VALUE)
    schema, value = make(url).from_bytes("t", (), data)
    assert value == VALUE
    assert schema == EVERYTHING
    nulls = {**VALUE, "int64": None, "text": None, "inner": None, "unnamed": None, "flag": None}
    _, value = converter.from_bytes("t", (), converter.to_bytes("t", (), EVERYTHING, nulls))
    assert value == {**nulls, "flag": True}


def test_the_bytes_and_the_registered_schema_are_confluents(url: str, shelf: Shelf) -> None:
    schema = Schema(Type.STRUCT, fields=(Field("id", Schema(Type.INT32)), Field("s", Schema(Type.STRING, True))))
    data = make(url).to_bytes("t", (), schema, {"id": 7, "s": "a"})
    latest = shelf.answers["/subjects/t-value/versions/latest"]
    assert data == b"\0" + latest["id"].to_bytes(4, "big") + b"\x0e\x02\x02a"
    assert json.loads(latest["schema"]) == {
        "type": "record",
        "name": "ConnectDefault",
        "namespace": "io.confluent.connect.avro",
        "fields": [{"name": "id", "type": "int"}, {"name": "s", "type": ["null", "string"], "default": None}],
    }
    assert make(url).from_bytes("t", (), data) == (schema, {"id": 7, "s": "a"})
    keys = make_converter("avro", {"schema.registry.url": url}, True)
    keys.to_bytes("t", (), make_decimal_schema(2), Decimal("1.50"))
    assert json.loads(shelf.answers["/subjects/t-key/versions/latest"]["schema"]) == {
        "type": "bytes",
        "scale": 2,
        "precision": 64,
        "connect.version": 1,
        "connect.parameters": {"scale": "2"},
        "connect.name": "org.apache.kafka.connect.data.Decimal",
        "logicalType": "decimal",
    }


def test_schemas_of_others_are_read(url: str, shelf: Shelf) -> None:
    fields = [
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "u", "type": ["null", "int", "string"]},
        {"name": "m", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ]
    shelf.answers["/schemas/ids/77"] = {"schema": json.dumps({"type": "record", "name": "R", "fields": fields})}
    schema, value = make(url).from_bytes("t", (), framed(77, b"\x02\x04\x02x\x02"))
    assert value == {"e": "B", "u": {"int": None, "string": "x"}, "m": 1}
    assert schema is not None and [each.schema.type for each in schema.fields] == [
        Type.STRING,
        Type.STRUCT,
        Type.INT64,
    ]


def test_columns_are_converted(url: str) -> None:
    converter = make(url)
    data = [converter.to_bytes("t", (), EVERYTHING, VALUE), None]
    found = converter.columns_from_bytes("t", pa.array(data, pa.binary()))
    assert found is not None and array_to_values(found[1]) == [VALUE, None]
    assert converter.columns_to_bytes("t", EVERYTHING, found[1]).to_pylist() == data


def test_subjects_have_a_strategy(url: str, shelf: Shelf) -> None:
    for strategy, subject in (("RecordNameStrategy", "shop.Inner"), ("TopicRecordNameStrategy", "t-shop.Inner")):
        make(url, **{"value.subject.name.strategy": f"x.{strategy}"}).to_bytes("t", (), INNER, {"x": 1.0})
        assert f"/subjects/{subject}/versions/latest" in shelf.answers
    with pytest.raises(BadConfig, match="TopicNameStrategy"):
        make(url, **{"value.subject.name.strategy": "Mine"})


def test_schemas_are_registered_only_if_wanted(url: str) -> None:
    asks = make(url, **{"auto.register.schemas": "false"})
    with pytest.raises(RecordError, match="Schema not found"):
        asks.to_bytes("t", (), INNER, {"x": 1.0})
    written = make(url).to_bytes("t", (), INNER, {"x": 1.0})
    assert asks.to_bytes("t", (), INNER, {"x": 1.0}) == written
    newest = make(url, **{"auto.register.schemas": "false", "use.latest.version": "true"})
    assert newest.to_bytes("t", (), INNER, {"x": 1.0}) == written


def test_what_cannot_be_converted_is_refused(url: str, shelf: Shelf) -> None:
    converter = make(url)
    assert converter.to_bytes("t", (), None, None) is None and converter.from_bytes("t", (), None) == (None, None)
    for data in (b"", b"x", framed(99, b""), framed(4, b""), framed(1, b""), framed(1, b"\x02\x02")):
        with pytest.raises(RecordError):
            converter.from_bytes("t", (), data)
    for schema, value in (
        (None, {"a": 1}),
        (Schema(Type.INT32), "x"),
        (Schema(Type.STRUCT, fields=(Field("a b", Schema(Type.INT8)),)), {"a b": 1}),
    ):
        with pytest.raises(RecordError):
            converter.to_bytes("t", (), schema, value)
    shelf.failing = True
    with pytest.raises(RetriableError):
        converter.from_bytes("t", (), framed(2, b""))
    with pytest.raises(BadConfig, match="is no http or https address"):
        make("nowhere")
