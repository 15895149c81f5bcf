"""JSON Schema and Protobuf with a schema registry: Confluent's bytes and registered schemas."""

import json
from base64 import b64decode
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

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


LATEST = {"auto.register.schemas": "false", "use.latest.version": "true"}
PLAIN = Schema(
    Type.STRUCT,
    name="shop.v1.Order-1",
    fields=(
        Field("id", Schema(Type.INT64)),
        Field("small", Schema(Type.INT8, optional=True)),
        Field("text", Schema(Type.STRING, optional=True)),
        Field("flag", Schema(Type.BOOLEAN)),
        Field("ratio", Schema(Type.FLOAT64)),
        Field("data", Schema(Type.BYTES)),
        Field("at", TIMESTAMP_SCHEMA),
        Field("inner", INNER),
        Field("other", Schema(Type.STRUCT, fields=(Field("y", Schema(Type.INT32)),))),
        Field("items", Schema(Type.ARRAY, value_schema=INNER)),
        Field("tags_of_it", Schema(Type.MAP, key_schema=Schema(Type.STRING), value_schema=Schema(Type.INT32))),
        Field("parts", Schema(Type.MAP, key_schema=Schema(Type.INT32), value_schema=INNER)),
    ),
)


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
    converter = make("io.confluent.connect.protobuf.ProtobufConverter", url, **LATEST)
    customer = Schema(Type.STRUCT, optional=True, fields=(Field("name", Schema(Type.STRING, True)),))
    order = Schema(Type.STRUCT, fields=(Field("customer", customer),))
    value = {"customer": {"name": "Ana"}}
    data = converter.to_bytes("proto", (), order, value)
    assert data == framed(5, b"\0\x0a\x05\x0a\x03Ana")
    schema, found = converter.from_bytes("proto", (), data)
    assert (schema, found) == (order, value)
    assert converter.from_bytes("proto", (), framed(5, b"\x02\x00\x0a\x05\x0a\x03Ana"))[1] == value


def test_protobuf_that_cannot_be_converted_is_refused(url: str) -> None:
    converter = make("protobuf", url, **LATEST)
    for data in (framed(5, b""), framed(5, b"\0\xff"), framed(5, b"\x02\x08"), framed(1, b"\0")):
        with pytest.raises(RecordError):
            converter.from_bytes("t", (), data)
    with pytest.raises(RecordError, match="Schema not found"):
        converter.to_bytes("nowhere", (), ROW, VALUE)
    with pytest.raises(RecordError, match="is AVRO, not PROTOBUF"):
        converter.to_bytes("orders", (), ROW, VALUE)
    with pytest.raises(RecordError):
        converter.to_bytes("proto", (), ROW, {"customer": 5})


def test_schemas_of_protobuf_are_registered(url: str, shelf: Shelf) -> None:
    """Nulls stay nulls, and a consumer of Google's own library reads what was written."""
    value = {
        "id": 1 << 40,
        "small": None,
        "text": "",
        "flag": True,
        "ratio": 0.5,
        "data": b"\0",
        "at": datetime(2020, 1, 1, tzinfo=UTC),
        "inner": {"x": 1.5},
        "other": {"y": 7},
        "items": [{"x": 2.5}, {"x": 0.0}],
        "tags_of_it": {"a": 1},
        "parts": {3: {"x": 4.5}},
    }
    data = make("protobuf", url).to_bytes("made", (), PLAIN, value)
    assert data is not None
    latest = shelf.answers["/subjects/made-value/versions/latest"]
    assert latest["schemaType"] == "PROTOBUF"
    file = descriptor_pb2.FileDescriptorProto.FromString(b64decode(latest["schema"]))
    assert (file.package, file.message_type[0].name, file.syntax) == ("shop.v1", "Order_1", "proto3")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    message: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.v1.Order_1"))()
    message.ParseFromString(data[6:])
    assert (message.id, message.HasField("small"), message.HasField("text"), message.parts[3].x) == (1 << 40, 0, 1, 4.5)
    schema, found = make("protobuf", url).from_bytes("made", (), data)
    assert found == value
    assert schema is not None and [each.name for each in schema.fields] == [each.name for each in PLAIN.fields]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (Schema(Type.STRING), "is no Protobuf message"),
        (Schema(Type.STRUCT, fields=(Field("a-b", Schema(Type.STRING)),)), "cannot be the name"),
        (Schema(Type.STRUCT, fields=(Field("d", DATE_SCHEMA),)), "no type for Date"),
        (
            Schema(Type.STRUCT, fields=(Field("m", Schema(Type.MAP, key_schema=INNER, value_schema=INNER)),)),
            "keys that Protobuf's maps cannot have",
        ),
        (
            Schema(
                Type.STRUCT,
                fields=(Field("l", Schema(Type.ARRAY, value_schema=Schema(Type.ARRAY, value_schema=INNER))),),
            ),
            "no array within a list",
        ),
    ],
)
def test_schemas_that_protobuf_cannot_say(url: str, schema: Schema, reason: str) -> None:
    with pytest.raises(RecordError, match=reason):
        make("protobuf", url).to_bytes("made", (), schema, {})
