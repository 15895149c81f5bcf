"""Columns from values: text, JSON, Avro and Protobuf, and what happens to records that cannot be decoded."""

import json
import pickle
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from ottla.pipeline.formats import DEAD_LETTER, FAIL, NULL, BadRecord, Format, decode_columns
from ottla.pipeline.formats.avro import Avro
from ottla.pipeline.formats.protobuf import Protobuf
from ottla.pipeline.formats.text import Json, Text, type_of_json_schema

ORDER = pa.struct(
    [("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("lines", pa.list_(pa.string()))]
)


def column(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


def batch(*values: bytes | None) -> pa.RecordBatch:
    rows = len(values)
    return pa.record_batch(
        {"topic": ["shop"] * rows, "partition": [3] * rows, "offset": range(100, 100 + rows), "value": column(*values)}
    )


# Text and JSON


def test_text_is_utf_8_and_says_where_it_is_not() -> None:
    found, bad = Text().decode(column("é".encode(), None, b"a\xff"))
    assert found.to_pylist() == ["é", None, None]
    assert bad == {2: "not UTF-8: invalid start byte at byte 1"}


def test_json_becomes_the_columns_of_its_schema() -> None:
    # Fields may be in any order, unknown or missing, with white space. Types are those of the schema.
    found, bad = Json(ORDER).decode(
        column(
            b'{"id": 7, "at": "2024-05-01T10:00:00Z", "day": "2024-05-01", "lines": ["a"], "other": {"x": [1]}}',
            None,
            b'{\n  "lines": [],\n  "id": null\n}',
            b"null",
        )
    )
    assert not bad
    assert found.type == ORDER
    assert found.to_pylist() == [
        {"id": 7, "at": datetime(2024, 5, 1, 10, tzinfo=UTC), "day": date(2024, 5, 1), "lines": ["a"]},
        None,
        {"id": None, "at": None, "day": None, "lines": []},
        None,
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"nonsense",
        b'{"id": "x"}',
        b'{"id": 1.5}',
        b'{"id": 1}{"id": 2}',
        b'{"id": 1}}\n{"v":{"id": 2}',
        b"[]",
        b'{"id": 1',
        b'{"lines": ["\xff"]}',
        b'{"id": 1, "id": 2}',
    ],
)
def test_invalid_json_affects_no_other_row(wrong: bytes) -> None:
    sound = [b'{"id": %d}' % n for n in range(9)]
    found, bad = Json(ORDER).decode(column(*sound[:4], wrong, *sound[4:]))
    assert list(bad) == [4]
    assert [row["id"] for row in found.to_pylist() if row] == list(range(9))
    assert found[4].as_py() is None


def test_a_type_that_json_cannot_be_read_as_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="JSON cannot be read as map"):
        Json(pa.map_(pa.string(), pa.int64()))


def test_json_schema_gives_the_types() -> None:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "name": {"oneOf": [{"type": "null"}, {"type": "string"}]},
            "at": {"type": ["null", "string"], "format": "date-time"},
            "tags": {"type": "array", "items": {"type": "number"}},
        },
    }
    assert type_of_json_schema(schema) == pa.struct(
        [("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC")), ("tags", pa.list_(pa.float64()))]
    )
    with pytest.raises(ValueError, match="no column type"):
        type_of_json_schema({"type": "object", "properties": {"x": {"type": ["string", "integer"]}}})


# Avro


def long(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def text(value: str) -> bytes:
    return long(len(value.encode())) + value.encode()


def record(*fields: dict[str, Any], name: str = "R") -> str:
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": fields})


def test_avro_of_every_type() -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "double"}]}
    schema = record(
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "raw", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "items", "type": {"type": "array", "items": inner}},
        {"name": "again", "type": "Inner"},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "either", "type": ["int", "string", "null"]},
    )
    double = struct.pack("<d", 1.5)
    price = (10**36 + 25).to_bytes(16, "big", signed=True)
    value = b"".join(
        [
            b"\1",
            long(-3),
            long(1),
            text("é"),
            long(1),
            b"ab",
            long(-2),
            long(16),
            double,
            double,
            long(0),
            double,
            long(1),
            text("k"),
            long(1 << 40),
            long(0),
            long(len(price)),
            price,
            long(365),
            long(1000),
            long(1),
            text("s"),
        ]
    )
    found, bad = Avro(schema).decode(column(value, None, value[:-1], value + b"x"))
    assert found[0].as_py() == {
        "flag": True,
        "small": -3,
        "name": "é",
        "colour": "BLUE",
        "raw": b"ab",
        "items": [{"x": 1.5}, {"x": 1.5}],
        "again": {"x": 1.5},
        "counts": [("k", 1 << 40)],
        "price": Decimal("10000000000000000000000000000000000.25"),
        "day": date(1971, 1, 1),
        "at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        "either": {"member0": None, "member1": "s"},
    }
    assert sorted(bad) == [2, 3]
    assert "1 bytes where 0 are left" in bad[2]
    assert "1 bytes too many" in bad[3]


def test_avro_written_with_another_schema_is_read_by_the_rules() -> None:
    # The schemas differ in a removed, a new and a renamed field, a wider number, and a type that became optional.
    writer = record(
        {"name": "gone", "type": {"type": "array", "items": "string"}},
        {"name": "count", "type": "int"},
        {"name": "old", "type": "string"},
        {"name": "ratio", "type": "int"},
    )
    reader = record(
        {"name": "renamed", "type": ["null", "string"], "aliases": ["old"]},
        {"name": "count", "type": "long"},
        {"name": "ratio", "type": "double"},
        {"name": "fresh", "type": "string", "default": "none"},
        {"name": "maybe", "type": ["null", "int"], "default": None},
    )
    value = long(1) + text("x") + long(0) + long(5) + text("name") + long(2)
    found, bad = Avro(reader, writer).decode(column(value))
    assert not bad
    assert found.to_pylist() == [{"renamed": "name", "count": 5, "ratio": 2.0, "fresh": "none", "maybe": None}]
    with pytest.raises(ValueError, match="'fresh' is not written, and has no default"):
        Avro(record({"name": "fresh", "type": "string"}), writer).decode(column(value))


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ('{"type": "recrd"}', "'recrd' is no type"),
        ("{", "is no type"),
        (record({"name": "next", "type": ["null", "R"]}), "shop.R contains itself"),
        ('{"type": "bytes", "logicalType": "decimal", "precision": 77}', "a decimal of 77 digits"),
    ],
)
def test_avro_schemas_that_make_no_column_are_refused(schema: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Avro(schema)


def test_avro_that_claims_endless_items_is_refused_cheaply() -> None:
    schema = json.dumps({"type": "array", "items": "null"})
    _, bad = Avro(schema).decode(column(long(1 << 60) + long(0), long(1 << 62)))
    assert sorted(bad) == [0, 1]


# Protobuf


def shop_file() -> descriptor_pb2.FileDescriptorProto:
    """A file with the message Order: numbers, optional text, lines (a message of their own), a time, a map, an enum,
    bytes."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="shop.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    colours = file.enum_type.add(name="Colour")
    colours.value.add(name="RED", number=0)
    colours.value.add(name="BLUE", number=1)
    order = file.message_type.add(name="Order")
    order.oneof_decl.add(name="_note")
    single, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    order.field.add(name="id", number=1, type=field.TYPE_INT64, label=single)
    order.field.add(name="note", number=2, type=field.TYPE_STRING, label=single, proto3_optional=True, oneof_index=0)
    order.field.add(name="lines", number=3, type=field.TYPE_MESSAGE, label=many, type_name=".shop.Order.Line")
    order.field.add(name="at", number=4, type=field.TYPE_MESSAGE, label=single, type_name=".google.protobuf.Timestamp")
    order.field.add(name="counts", number=5, type=field.TYPE_MESSAGE, label=many, type_name=".shop.Order.CountsEntry")
    order.field.add(name="colour", number=6, type=field.TYPE_ENUM, label=single, type_name=".shop.Colour")
    order.field.add(name="raw", number=7, type=field.TYPE_BYTES, label=single)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=single)
    entry.field.add(name="value", number=2, type=field.TYPE_UINT64, label=single)
    order.nested_type.add(name="Line").field.add(name="price", number=1, type=field.TYPE_DOUBLE, label=single)
    return file


ORDER_MESSAGE = b"".join(
    [
        b"\x08\x07",  # id = 7
        b"\x1a\x09\x09" + struct.pack("<d", 1.5),  # one line
        b"\x22\x02\x08\x05",  # at = 5 s
        b"\x2a\x0e\x0a\x01k\x10" + b"\xff" * 9 + b"\x01",  # counts: k -> 2^64 - 1
        b"\x30\x01",  # BLUE
        b"\x3a\x01\xff",  # raw
    ]
)


def test_protobuf_becomes_a_struct() -> None:
    timestamp = timestamp_pb2.DESCRIPTOR.serialized_pb
    files = descriptor_pb2.FileDescriptorSet(
        file=[descriptor_pb2.FileDescriptorProto.FromString(timestamp), shop_file()]
    )
    form = Protobuf.of_set(files.SerializeToString(), "shop.Order")
    found, bad = form.decode(column(ORDER_MESSAGE, None, b"", b"\xff"))
    assert found[0].as_py() == {
        "id": 7,
        "note": None,
        "lines": [{"price": 1.5}],
        "at": datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC),
        "counts": [("k", Decimal((1 << 64) - 1))],
        "colour": "BLUE",
        "raw": b"\xff",
    }
    assert pickle.loads(pickle.dumps(form)).decode(column(ORDER_MESSAGE)).column[0] == found[0]
    assert found[1].as_py() is None
    assert found[2].as_py() == {
        "id": 0,
        "note": None,
        "lines": [],
        "at": None,
        "counts": [],
        "colour": "RED",
        "raw": b"",
    }
    assert list(bad) == [3]
    with pytest.raises(ValueError, match=r"no message 'shop\.Odrer'"):
        Protobuf.of_set(files.SerializeToString(), "shop.Odrer")
    with pytest.raises(ValueError, match="not the descriptor set"):
        Protobuf.of_set(b"\xff\xff", "shop.Order")


# What becomes of bad records


def test_bad_records_are_handled_as_the_user_chose() -> None:
    rows = batch(b'{"id": 1}', b"poison", b'{"id": 3}', b"more")
    forms = {"value": Json(pa.struct([("id", pa.int64())]))}
    with pytest.raises(BadRecord, match=r"shop-3 at offset 101: value: not the JSON .* \(1 more in the same batch\)"):
        decode_columns(rows, forms, FAIL)
    nulled = decode_columns(rows, forms, NULL)
    assert nulled.bad is None
    assert nulled.batch["value"].to_pylist() == [{"id": 1}, None, {"id": 3}, None]
    assert sorted(nulled.reasons) == [1, 3]
    good, reasons, bad = decode_columns(rows, forms, DEAD_LETTER)
    assert good["offset"].to_pylist() == [100, 102]
    assert not reasons
    assert bad is not None
    assert bad["offset"].to_pylist() == [101, 103]
    assert bad["value"].to_pylist() == [b"poison", b"more"]
    assert all("not the JSON" in reason for reason in bad["reason"].to_pylist())
    with pytest.raises(ValueError, match="a bad record can be fail, null, dead-letter"):
        decode_columns(rows, forms, "ignore")


def test_a_bad_key_makes_a_bad_record_with_all_reasons() -> None:
    # The rejected record is returned as it was read, also the column that could be decoded.
    rows = pa.record_batch({"key": column(b"k", b"\xff", b"\xff"), "value": column(b'{"id": 1}', b'{"id": 2}', b"{")})
    forms: dict[str, Format] = {"key": Text(), "value": Json(pa.struct([("id", pa.int64())]))}
    good, _, bad = decode_columns(rows, forms, DEAD_LETTER)
    assert good.to_pylist() == [{"key": "k", "value": {"id": 1}}]
    assert bad is not None
    assert bad["value"].to_pylist() == [b'{"id": 2}', b"{"]
    assert [reason.count("; value: ") for reason in bad["reason"].to_pylist()] == [0, 1]
    with pytest.raises(BadRecord, match="row 1: key: not UTF-8"):
        decode_columns(rows, forms)
