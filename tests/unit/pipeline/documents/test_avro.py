"""Avro values as JSON documents: what fastavro writes is shown, and what is written fastavro reads."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from ottla.pipeline.documents.avro import make_document_reader, make_document_writer

ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "street", "type": "string"}]}
SCHEMA = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "exact", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "raw", "type": "bytes"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "lines", "type": {"type": "array", "items": ADDRESS}},
        {"name": "who", "type": ["null", "string", "int", "Address"]},
        {"name": "ratio", "type": "double", "default": 0.5},
    ],
}
VALUE = {
    "id": 9_007_199_254_740_993,
    "note": "x",
    "price": Decimal("12.30"),
    "day": date(2026, 1, 31),
    "at": datetime(2026, 1, 31, 18, tzinfo=UTC),
    "exact": datetime(2026, 1, 31, 18, 0, 0, 1, tzinfo=UTC),
    "raw": b"\xff\0a",
    "hash": b"\x01\x02",
    "state": "PAID",
    "tags": {"a": 1},
    "lines": [{"street": "Main"}],
    "who": 7,
    "ratio": 0.25,
}
DOCUMENT = {
    "id": 9_007_199_254_740_993,
    "note": "x",
    "price": "12.30",
    "day": "2026-01-31",
    "at": "2026-01-31T18:00:00.000Z",
    "exact": "2026-01-31T18:00:00.000001Z",
    "raw": "\u00ff\0a",
    "hash": "\x01\x02",
    "state": "PAID",
    "tags": {"a": 1},
    "lines": [{"street": "Main"}],
    "who": {"int": 7},
    "ratio": 0.25,
}


def write_with_fastavro(value: Any) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(json.loads(json.dumps(SCHEMA))), value)
    return file.getvalue()


def test_a_value_of_another_library_is_shown() -> None:
    assert make_document_reader(json.dumps(SCHEMA))(b"??" + write_with_fastavro(VALUE), 2) == DOCUMENT


def test_a_document_is_written_as_another_library_writes_the_value() -> None:
    write = make_document_writer(json.dumps(SCHEMA))
    assert write(json.dumps(DOCUMENT).encode()) == write_with_fastavro(VALUE)


def test_forms_of_other_tools_and_defaults_are_accepted() -> None:
    # Avro's own encoding names the type of a union and writes times as numbers. A field with a default may be missing.
    write = make_document_writer(json.dumps(SCHEMA))
    other = {
        **DOCUMENT,
        "note": {"string": "x"},
        "day": 20484,
        "at": 1769882400000,
        "exact": "2026-01-31T18:00:00.000001",
    }
    other |= {"price": 12.30, "who": 7}
    assert write(json.dumps(other).encode()) == write_with_fastavro(VALUE)
    del other["note"], other["ratio"]
    assert write(json.dumps(other).encode()) == write_with_fastavro({**VALUE, "note": None, "ratio": 0.5})
    other["who"] = {"Address": {"street": "Main"}}
    found = make_document_reader(json.dumps(SCHEMA))(write(json.dumps(other).encode()), 0)
    assert found["who"] == {"shop.Address": {"street": "Main"}}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"id": "1"}, "value.id: '1' does not fit Avro's long"),
        ({"id": 1 << 63}, "value.id: 9223372036854775808 does not fit Avro's long"),
        ({"id": True}, "value.id: True does not fit"),
        ({"oops": 1}, "value: the schema has no field 'oops'"),
        ({"day": "soon"}, "value.day: 'soon' is not a time such as"),
        ({"at": 1 << 62}, "value.at: .* is not a time"),
        ({"raw": "\u0100"}, "value.raw: bytes are text"),
        ({"hash": "abc"}, "value.hash: 3 bytes, and the schema wants 2"),
        ({"state": "LOST"}, "value.state: 'LOST' is none of the symbols NEW, PAID"),
        ({"tags": {"a": "b"}}, "value.tags.value: 'b' does not fit Avro's int"),
        ({"lines": [{}]}, "value.lines.element.street is missing"),
        ({"who": 1.5}, "value.who: .* fits none of the types null, string, int, shop.Address"),
        ({"price": "1.005"}, "value.price: .* does not fit Avro's decimal"),
        ({"price": "cheap"}, "value.price: 'cheap' is not a decimal"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_path(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        make_document_writer(json.dumps(SCHEMA))(json.dumps({**DOCUMENT, **change}).encode())
