"""Formats of records: what users may say, and columns that survive being written and read in each of them."""

import json as json_module
import pickle
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ottla.streams.formats import (
    RecordFormat,
    avro,
    decode_column,
    encode_columns,
    json,
    protobuf,
    registry,
    resolve,
)
from tests.unit.client.shelf import V1, Shelf, served
from tests.unit.streams.strategies import EDGES, plain, tables

FIELDS = pa.struct([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def url(shelf: Shelf) -> Iterator[str]:
    with served(shelf) as address:
        yield address


def write_and_read(form: RecordFormat, rows: pa.Table) -> list[Any]:
    """Encodes the rows, decodes them again with a pickled copy of the format."""
    encoded = encode_columns(form, rows, rows.schema.names)
    assert encoded.type == pa.binary()
    column, bad = decode_column(pickle.loads(pickle.dumps(form)), encoded)
    assert not bad
    assert column.type == form.type
    found: list[Any] = column.to_pylist()
    return found


# What users say


@pytest.mark.parametrize(
    ("said", "kind", "decoded"),
    [
        ("string", "string", pa.string()),
        (" Long ", "long", pa.int64()),
        ("bigint", "long", pa.int64()),
        ("boolean", "bool", pa.bool_()),
        (None, "binary", pa.binary()),
        ("id long, name string", "json", FIELDS),
        ("id long NOT NULL, name string", "json", FIELDS),
        ("struct<id: long, name: string>", "json", FIELDS),
        ("array<long>", "json", pa.list_(pa.int64())),
        (StructType([StructField("id", LongType(), False), StructField("name", StringType())]), "json", FIELDS),
        (StringType(), "string", pa.string()),
        (FIELDS, "json", FIELDS),
        (pa.schema(list(FIELDS)), "json", FIELDS),
        (pa.int64(), "long", pa.int64()),
        (json("id long, name string"), "json", FIELDS),
        (
            json('{"type": "object", "properties": {"id": {"type": "integer"}}}'),
            "json",
            pa.struct([("id", pa.int64())]),
        ),
        (avro(json_module.dumps(V1)), "avro", pa.struct([("id", pa.int32())])),
        (RecordFormat("long"), "long", pa.int64()),
    ],
)
def test_what_a_user_may_say(said: Any, kind: str, decoded: pa.DataType) -> None:
    found = resolve(said)
    assert (found.kind, found.type) == (kind, decoded)
    assert resolve(found) == found


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("xml", "'xml' is no format: there are string, binary, int, long, double, bool, or fields such as"),
        ("float", "'float' is no format"),
        ("", "'' is no format"),
        (7, "7 is no format"),
        ("id longer", "there is no type 'longer'"),
        ("id long, id long", "the schema has two fields 'id'"),
        ("json", r"json needs a schema: json\('id long, name string'\)"),
        ("avro", r"avro needs a schema: avro\(schema\)"),
        ("protobuf", r"protobuf needs a schema: protobuf\(descriptors, message\)"),
        (pa.struct([("a", pa.duration("us"))]), r"column 'value\.a': duration\[us\] has no form in JSON"),
        (RecordFormat("avro", registry="http://127.0.0.1:1"), "name the subject="),
    ],
)
def test_what_cannot_be_understood_is_refused_in_one_line(said: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        resolve(said)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: json("{"),
        lambda: avro("{"),
        lambda: protobuf(b"\xff", "a.B"),
        lambda: registry("http://127.0.0.1:1", "xml"),
        lambda: registry("http://127.0.0.1:1", schema="{}"),
        lambda: resolve(registry("127.0.0.1:1"), topic="orders"),
        lambda: resolve(registry("http://127.0.0.1:1", "avro"), topic="orders"),
    ],
)
def test_a_wrong_schema_or_registry_is_refused_in_one_line(make: Any) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        make()
    assert "\n" not in str(caught.value)


# Kafka's serializers


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("string", "Zoë", "Zoë".encode()),
        ("binary", b"\x00", b"\x00"),
        ("int", -2, struct.pack(">i", -2)),
        ("long", 2**40, struct.pack(">q", 2**40)),
        ("double", 1.5, struct.pack(">d", 1.5)),
        ("bool", True, b"\x01"),
    ],
)
def test_simple_formats_have_the_bytes_of_kafkas_serializers(kind: str, value: Any, expected: bytes) -> None:
    form = resolve(kind)
    rows = pa.table({"c": pa.array([value, None], form.type)})
    assert encode_columns(form, rows, ["c"]).to_pylist() == [expected, None]
    assert write_and_read(form, rows) == [value, None]


def test_a_number_of_another_size_is_bad() -> None:
    column, bad = decode_column(resolve("long"), pa.array([struct.pack(">q", 7), b"7", None]))
    assert column.to_pylist() == [7, None, None]
    assert bad == {1: "1 bytes, where int64 has 8"}


def test_columns_are_cast_to_the_type_of_the_format() -> None:
    rows = pa.table({"c": pa.array([1], pa.int16())})
    assert encode_columns(resolve("long"), rows, ["c"]).to_pylist() == [struct.pack(">q", 1)]
    with pytest.raises(ValueError, match="column 'c' is string, and its values do not fit int64"):
        encode_columns(resolve("long"), pa.table({"c": ["x"]}), ["c"])
    with pytest.raises(ValueError, match="long takes one column, not a, b"):
        encode_columns(resolve("long"), pa.table({"a": [1], "b": [2]}), ["a", "b"])


# JSON


@given(tables())
def test_json_survives(rows: pa.Table) -> None:
    form = resolve("json", columns=list(rows.schema))
    expected = [None if all(value is None for value in row.values()) else row for row in rows.to_pylist()]
    assert plain(write_and_read(form, rows)) == plain(expected)


def test_bad_json_names_the_field_and_leaves_other_rows_alone() -> None:
    form = resolve("id long, at timestamp, ratio double")
    values = [
        b'{"id": 1, "at": "2024-05-01T12:00:00+02:00"}',
        b'{"id": "x"}',
        b"{",
        None,
        b'{"id": 2,\n "ratio": "NaN"}',
        b'{"at": 1700000000000}',
        b"[]",
    ]
    column, bad = decode_column(form, pa.array(values, pa.binary()))
    rows = column.to_pylist()
    assert rows[0]["id"] == 1 and rows[0]["at"].isoformat() == "2024-05-01T10:00:00+00:00"
    assert plain(rows[4]["ratio"]) == "nan"
    assert [row for row, value in enumerate(rows) if value is None] == [1, 2, 3, 5, 6] and sorted(bad) == [1, 2, 5, 6]
    assert bad[1] == "not the JSON that the schema says: id: 'x' is not int64"
    assert bad[2].startswith("not JSON: ")
    assert bad[5] == "not the JSON that the schema says: at: 1700000000000 is not timestamp[us, tz=UTC]"


def test_fields_that_are_not_columns_are_null_and_others_are_refused() -> None:
    form = resolve("id long, name string")
    assert encode_columns(form, pa.table({"id": [1]}), ["id"]).to_pylist() == [b'{"id":1,"name":null}']
    with pytest.raises(ValueError, match="the json schema has no field 'other'"):
        encode_columns(form, pa.table({"other": [1]}), ["other"])


# Avro


AVRO = {
    "type": "record",
    "name": "Everything",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["new", "old"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "millis", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "either", "type": ["null", "string", "int"]},
        {"name": "price", "type": {"type": "fixed", "name": "P", "size": 8, "logicalType": "decimal", "precision": 9}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "inner", "type": {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "float"}]}},
    ],
}


@given(tables(depth=1))
def test_avro_survives_with_a_schema_made_from_the_columns(rows: pa.Table) -> None:
    rows = rows.rename_columns([f"c{at}" for at in range(rows.num_columns)])
    try:
        form = resolve("avro", columns=list(rows.schema))
    except ValueError as error:
        assert str(error).startswith("Avro ")  # it has no maps with other keys than strings, and other names
        return
    rows = rows.cast(pa.schema(list(form.resolved_type)))
    expected = [None if all(value is None for value in row.values()) else row for row in rows.to_pylist()]
    assert plain(write_and_read(form, rows)) == plain(expected)


def test_avro_survives_with_every_kind_of_schema() -> None:
    form = resolve(avro(json_module.dumps(AVRO)))
    row = {
        "id": -5,
        "state": "old",
        "hash": b"ab",
        "millis": EDGES["moment"][0].as_py(),
        "either": {"member0": None, "member1": 7},
        "price": -12345,
        "tags": ["a", "b"],
        "counts": [("x", 1)],
        "inner": {"x": 0.5},
    }
    rows = pa.Table.from_pylist(
        [row, {**row, "either": None, "tags": [], "counts": []}], pa.schema(list(form.resolved_type))
    )
    assert write_and_read(form, rows) == rows.to_pylist()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"state": "odd"}, "value.state: 'odd' is none of the symbols new, old"),
        ({"id": None}, "value.id is null, which the Avro schema does not allow"),
        ({"tags": None}, "value.tags is null, which the Avro schema does not allow"),
        ({"inner": None}, "value.inner is null"),
        ({"hash": b"abc"}, "value.hash: b'abc' does not fit Avro's fixed"),
    ],
)
def test_a_value_that_avro_cannot_hold_is_refused(changed: dict[str, Any], reason: str) -> None:
    form = resolve(avro(json_module.dumps(AVRO)))
    row = {"id": 1, "state": "new", "hash": b"ab", "millis": EDGES["moment"][0].as_py(), "price": 1}
    row |= {"tags": [], "counts": [], "inner": {"x": 1}, **changed}
    rows = pa.Table.from_pylist([row], pa.schema(list(form.resolved_type)))
    with pytest.raises(ValueError, match=reason):
        encode_columns(form, rows, rows.schema.names)


# Protobuf


def descriptor_set() -> bytes:
    """message Order with a field of each kind, and message Other nested in Box."""
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="shop.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    file.enum_type.add(name="State").value.extend(
        [
            descriptor_pb2.EnumValueDescriptorProto(name="NEW", number=0),
            descriptor_pb2.EnumValueDescriptorProto(name="OLD", number=1),
        ]
    )
    order = file.message_type.add(name="Order")
    line = order.nested_type.add(name="Line")
    line.field.add(name="count", number=1, type=kind.TYPE_UINT64, label=kind.LABEL_OPTIONAL)
    entry = order.nested_type.add(name="CountsEntry", options=descriptor_pb2.MessageOptions(map_entry=True))
    entry.field.add(name="key", number=1, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=kind.TYPE_INT64, label=kind.LABEL_OPTIONAL)
    message = kind.TYPE_MESSAGE
    for number, (name, type_, label, type_name) in enumerate(
        [
            ("id", kind.TYPE_INT64, kind.LABEL_OPTIONAL, ""),
            ("name", kind.TYPE_STRING, kind.LABEL_OPTIONAL, ""),
            ("raw", kind.TYPE_BYTES, kind.LABEL_OPTIONAL, ""),
            ("state", kind.TYPE_ENUM, kind.LABEL_OPTIONAL, ".shop.State"),
            ("at", message, kind.LABEL_OPTIONAL, ".google.protobuf.Timestamp"),
            ("lines", message, kind.LABEL_REPEATED, ".shop.Order.Line"),
            ("tags", kind.TYPE_STRING, kind.LABEL_REPEATED, ""),
            ("counts", message, kind.LABEL_REPEATED, ".shop.Order.CountsEntry"),
            ("first", message, kind.LABEL_OPTIONAL, ".shop.Order.Line"),
        ],
        1,
    ):
        order.field.add(name=name, number=number, type=type_, label=label, type_name=type_name or None)
    serialized: bytes = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    return serialized


ORDER = {
    "id": 7,
    "name": "Zoë",
    "raw": b"\x00",
    "state": "OLD",
    "at": EDGES["moment"][1].as_py(),
    "lines": [{"count": 2**63}, {"count": 0}],
    "tags": ["a"],
    "counts": [("x", 1)],
    "first": {"count": 0},
}
NOTHING = {
    "id": 0,
    "name": "",
    "raw": b"",
    "state": "NEW",
    "at": None,
    "lines": [],
    "tags": [],
    "counts": [],
    "first": None,
}


def test_protobuf_survives() -> None:
    form = resolve(protobuf(descriptor_set(), "shop.Order"))
    rows = pa.Table.from_pylist([ORDER, {**NOTHING, "id": 1}], pa.schema(list(form.resolved_type)))
    assert write_and_read(form, rows) == rows.to_pylist()


def test_a_null_is_the_default_of_its_protobuf_field() -> None:
    form = resolve(protobuf(descriptor_set(), "shop.Order"))
    rows = pa.table({"id": [5, None]})
    assert write_and_read(form, rows) == [{**NOTHING, "id": 5}, None]


def test_a_value_that_protobuf_cannot_hold_is_refused() -> None:
    form = resolve(protobuf(descriptor_set(), "shop.Order"))
    rows = pa.table({"state": ["ODD"]})
    with pytest.raises(ValueError, match=r"shop\.Order\.state: 'ODD' does not fit the Protobuf field"):
        encode_columns(form, rows, ["state"])


# Schema registry


def test_a_source_takes_the_newest_schema_of_its_topic(url: str, shelf: Shelf) -> None:
    form = resolve(registry(url), topic="orders")
    assert (form.kind, form.subject, form.type) == (
        "avro",
        "orders-value",
        pa.struct([("id", pa.int64()), ("note", pa.string())]),
    )
    shelf.failing = True
    with pytest.raises(ValueError, match=r"schema registry: .* 500") as caught:
        resolve(registry(url), topic="orders")
    assert "\n" not in str(caught.value)


def test_a_source_without_a_subject_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="the schema registry has no subject 'new-value'"):
        resolve(registry(url, "avro"), topic="new")
    with pytest.raises(ValueError, match="subject 'shop-value' holds json, not avro"):
        resolve(registry(url, "avro"), topic="shop")


@pytest.mark.parametrize("kind", ["avro", "json"])
def test_a_sink_registers_a_schema_made_from_its_columns(url: str, shelf: Shelf, kind: str) -> None:
    rows = pa.table({"id": [1, None], "name": ["a", None]})
    form = resolve(registry(url, kind, user="me:secret"), topic="new", columns=list(rows.schema))
    assert form.schema_id is not None
    assert write_and_read(form, rows) == [{"id": 1, "name": "a"}, None]
    assert encode_columns(form, rows, ["id", "name"])[0].as_py()[:5] == b"\0" + struct.pack(">i", form.schema_id)
    again = resolve(registry(url, kind), topic="new")
    assert (again.kind, again.type, again.schema_id) == (kind, form.type, form.schema_id)
    assert shelf.authorization[0] == shelf.authorization[1] != shelf.authorization[-1]


def test_a_sink_with_a_schema_registers_it_once(url: str, shelf: Shelf) -> None:
    columns = [pa.field("id", pa.int32())]
    forms = [
        resolve(registry(url, "avro", schema=json_module.dumps(V1)), topic="new", part="key", columns=columns)
        for _ in range(2)
    ]
    assert forms[0] == forms[1] and forms[0].subject == "new-key"
    assert write_and_read(forms[0], pa.table({"id": pa.array([3], pa.int32())})) == [{"id": 3}]


def test_protobuf_of_a_registry_is_written_and_read(url: str) -> None:
    form = resolve(registry(url, "protobuf"), topic="proto", columns=[])
    assert form.message == "shop.Order"
    rows = pa.table({"customer": [{"name": "k"}]})
    assert encode_columns(form, rows, ["customer"]).to_pylist() == [b"\0\0\0\0\x05\x00\x0a\x03\x0a\x01k"]
    assert write_and_read(form, rows) == [{"customer": {"name": "k"}}]
