"""JSON Schema and Protobuf with a schema registry: Confluent's bytes and registered schemas."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from ottla.connect.converters.choice import make_converter
from ottla.connect.converters.converter import Converter
from ottla.connect.data.logical import DATE_SCHEMA, TIMESTAMP_SCHEMA, make_decimal_schema
from ottla.connect.data.schema import Field, Schema, Type
from ottla.connect.errors import RecordError
from tests.unit.client.shelf import Shelf, framed, served

INNER = Schema(Type.STRUCT, optional=True, name="Inner", fields=(Field("x", Schema(Type.FLOAT64)),))
ROW = Schema(
    Type.STRUCT,
    name="Row",
    version=3,
    doc="a row",
    fields=(
        Field("z", Schema(Type.INT8)),
        Field("b", Schema(Type.STRING, optional=True, default="d")),
        Field("a", Schema(Type.BYTES)),
        Field("list", Schema(Type.ARRAY, value_schema=INNER)),
        Field("map", Schema(Type.MAP, key_schema=Schema(Type.STRING), value_schema=Schema(Type.FLOAT32))),
        Field("decimal", make_decimal_schema(2)),
        Field("date", DATE_SCHEMA),
        Field("at", TIMESTAMP_SCHEMA),
    ),
)
VALUE: dict[str, Any] = {
    "z": 1,
    "b": "x",
    "a": b"\0",
    "list": [{"x": 1.5}, None],
    "map": {"k": 0.5},
    "decimal": Decimal("1.50"),
    "date": date(2020, 1, 1),
    "at": datetime(2020, 1, 1, tzinfo=UTC),
}


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def url(shelf: Shelf) -> Iterator[str]:
    with served(shelf) as address:
        yield address


def make(name: str, url: str, **config: str) -> Converter:
    return make_converter(name, {"schema.registry.url": url, **config}, False)


@pytest.mark.parametrize("decimals", ["BASE64", "NUMERIC"])
def test_json_is_written_and_read_again(url: str, decimals: str) -> None:
    converter = make("io.confluent.connect.json.JsonSchemaConverter", url, **{"decimal.format": decimals})
    data = converter.to_bytes("t", (), ROW, VALUE)
    assert data is not None and json.loads(data[5:])["z"] == 1
    assert make("JsonSchemaConverter", url).from_bytes("t", (), data) == (ROW, VALUE)


def test_the_json_schema_says_connects_types(url: str, shelf: Shelf) -> None:
    schema = Schema(
        Type.STRUCT, name="R", fields=(Field("i", Schema(Type.INT32)), Field("s", Schema(Type.STRING, True)))
    )
    make("json-schema", url).to_bytes("t", (), schema, {"i": 1})
    latest = shelf.answers["/subjects/t-value/versions/latest"]
    assert latest["schemaType"] == "JSON" and json.loads(latest["schema"]) == {
        "type": "object",
        "title": "R",
        "properties": {
            "i": {"type": "integer", "connect.type": "int32", "connect.index": 0},
            "s": {"oneOf": [{"type": "null"}, {"type": "string"}], "connect.index": 1},
        },
    }


def test_json_schemas_of_others_are_read(url: str, shelf: Shelf) -> None:
    text = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "n": {"type": ["null", "number"]}, "o": {"type": "string"}},
        "required": ["id"],
    }
    shelf.answers["/schemas/ids/50"] = {"schemaType": "JSON", "schema": json.dumps(text)}
    converter = make("json-schema", url, **{"use.optional.for.nonrequired": "true"})
    schema, value = converter.from_bytes("t", (), framed(50, b'{"id":1,"extra":2}'))
    assert value == {"id": 1, "n": None, "o": None}
    assert schema is not None and [each.schema.optional for each in schema.fields] == [False, True, True]
    with pytest.raises(RecordError):
        make("json-schema", url).from_bytes("t", (), framed(50, b'{"id":"x"}'))
    shelf.answers["/schemas/ids/51"] = {"schemaType": "JSON", "schema": '{"$ref":"x"}'}
    with pytest.raises(RecordError, match="schema 51"):
        converter.from_bytes("t", (), framed(51, b"{}"))
    pairs = Schema(Type.MAP, key_schema=Schema(Type.INT8), value_schema=Schema(Type.INT8))
    with pytest.raises(RecordError, match="keys of INT8"):
        converter.to_bytes("t", (), pairs, {1: 1})


def test_protobuf_is_written_with_the_newest_schema_and_read_again(url: str) -> None:
    converter = make("io.confluent.connect.protobuf.ProtobufConverter", url)
    customer = Schema(Type.STRUCT, optional=True, fields=(Field("name", Schema(Type.STRING, True)),))
    order = Schema(Type.STRUCT, fields=(Field("customer", customer),))
    value = {"customer": {"name": "Ana"}}
    data = converter.to_bytes("proto", (), order, value)
    assert data == framed(5, b"\0\x0a\x05\x0a\x03Ana")
    schema, found = converter.from_bytes("proto", (), data)
    assert (schema, found) == (order, value)
    assert converter.from_bytes("proto", (), framed(5, b"\x02\x00\x0a\x05\x0a\x03Ana"))[1] == value


def test_protobuf_that_cannot_be_converted_is_refused(url: str) -> None:
    converter = make("protobuf", url)
    for data in (framed(5, b""), framed(5, b"\0\xff"), framed(5, b"\x02\x08"), framed(1, b"\0")):
        with pytest.raises(RecordError):
            converter.from_bytes("t", (), data)
    with pytest.raises(RecordError, match="Schema not found"):
        converter.to_bytes("nowhere", (), ROW, VALUE)
    with pytest.raises(RecordError, match="is AVRO, not PROTOBUF"):
        converter.to_bytes("orders", (), ROW, VALUE)
    with pytest.raises(RecordError):
        converter.to_bytes("proto", (), ROW, {"customer": 5})
