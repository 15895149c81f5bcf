"""Strings, bytes, booleans and numbers have the bytes of Kafka's serializers; headers are text that says its type."""

import pickle
from typing import Any

import pyarrow as pa
import pytest

from ottla.connect.converters.choice import CONVERTERS, find_converter, make_converter, make_header_converter
from ottla.connect.data.conversion import values_to_array
from ottla.connect.data.schema import Field, Schema, Type
from ottla.connect.errors import BadConfig, RecordError

CASES: list[tuple[str, Type, Any, bytes]] = [
    ("org.apache.kafka.connect.storage.StringConverter", Type.STRING, "žaba", "žaba".encode()),
    ("org.apache.kafka.connect.converters.ByteArrayConverter", Type.BYTES, b"\0\1", b"\0\1"),
    ("org.apache.kafka.connect.converters.BooleanConverter", Type.BOOLEAN, True, b"\1"),
    ("org.apache.kafka.connect.converters.ShortConverter", Type.INT16, -2, b"\xff\xfe"),
    ("org.apache.kafka.connect.converters.IntegerConverter", Type.INT32, 258, b"\0\0\1\2"),
    ("org.apache.kafka.connect.converters.LongConverter", Type.INT64, -1, b"\xff" * 8),
    ("org.apache.kafka.connect.converters.FloatConverter", Type.FLOAT32, 1.5, b"\x3f\xc0\0\0"),
    ("org.apache.kafka.connect.converters.DoubleConverter", Type.FLOAT64, 1.5, b"\x3f\xf8\0\0\0\0\0\0"),
]


@pytest.mark.parametrize(("name", "kind", "value", "data"), CASES)
def test_values_have_kafkas_bytes(name: str, kind: Type, value: Any, data: bytes) -> None:
    converter = pickle.loads(pickle.dumps(make_converter(name, {}, True)))
    schema = Schema(kind, optional=True)
    assert converter.to_bytes("t", (), schema, value) == data
    assert converter.to_bytes("t", (), None, None) is None
    assert converter.from_bytes("t", (), data) == (schema, value)
    assert converter.from_bytes("t", (), None) == (schema, None)


@pytest.mark.parametrize(("name", "kind", "value", "data"), CASES)
@pytest.mark.parametrize("rows", [["x", "x", "x"], ["x", None, "x"]])
def test_columns_are_converted_as_rows(name: str, kind: Type, value: Any, data: bytes, rows: list[str | None]) -> None:
    converter, schema = make_converter(name, {}, False), Schema(kind, optional=True)
    column = values_to_array(schema, [None, *[each and value for each in rows]])[1:]
    written = converter.columns_to_bytes("t", schema, column)
    assert written.to_pylist() == [each and data for each in rows]
    padded = pa.concat_arrays([pa.array([b"12345"]), written])[1:]
    assert converter.columns_from_bytes("t", padded) == (schema, column)


@pytest.mark.parametrize("name", ["boolean", "short", "integer", "long", "float", "double"])
def test_a_wrong_size_is_refused(name: str) -> None:
    converter = make_converter(name, {}, False)
    with pytest.raises(RecordError, match="failed to deserialize"):
        converter.from_bytes("t", (), b"123")
    with pytest.raises(RecordError, match="failed to deserialize"):
        converter.columns_from_bytes("t", pa.array([b"123"]))
    with pytest.raises(RecordError):
        converter.to_bytes("t", (), None, "text")


def test_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(RecordError, match="70000 does not fit"):
        make_converter("short", {}, False).to_bytes("t", (), None, 70000)
    with pytest.raises(RecordError, match="failed to serialize to short: it is int64"):
        make_converter("short", {}, False).to_bytes("t", (), Schema(Type.INT64), 7)


def test_strings_in_other_encodings_and_of_other_values() -> None:
    latin = make_converter("string", {"converter.encoding": "ISO-8859-1"}, False)
    assert latin.to_bytes("t", (), None, "é") == b"\xe9" and latin.from_bytes("t", (), b"\xe9")[1] == "é"
    column = latin.columns_from_bytes("t", pa.array([b"\xe9"]))
    assert column is not None and column[1].to_pylist() == ["é"]
    assert make_converter("string", {}, False).from_bytes("t", (), b"\xff")[1] == "\ufffd"
    struct = Schema(Type.STRUCT, fields=(Field("a", Schema(Type.FLOAT64)),))
    assert make_converter("string", {}, False).to_bytes("t", (), struct, {"a": 1.0}) == b"Struct{a=1.0}"
    with pytest.raises(BadConfig, match="no character set 'klingon'"):
        make_converter("string", {"converter.encoding": "klingon"}, False)


def test_headers_say_their_type() -> None:
    simple = make_header_converter("org.apache.kafka.connect.storage.SimpleHeaderConverter", {})
    assert simple.header_from_bytes("t", "h", b"42") == (Schema(Type.INT8), 42)
    assert simple.header_from_bytes("t", "h", b"\xff") == (Schema(Type.BYTES), b"\xff")
    assert simple.header_from_bytes("t", "h", None) == (None, None)
    assert simple.header_to_bytes("t", "h", None, [1, "a"]) == b'[1,"a"]'
    assert simple.header_to_bytes("t", "h", None, None) is None
    strings = make_header_converter("string", {})
    assert strings.header_from_bytes("t", "h", b"42") == (Schema(Type.STRING, optional=True), "42")
    assert strings.header_to_bytes("t", "h", None, "x") == b"x"


def test_every_converter_has_its_names() -> None:
    for kind in CONVERTERS:
        for name in (*kind.class_names, *kind.short_names):
            assert find_converter(name) is kind
    with pytest.raises(BadConfig, match="there is no converter 'nope'; there are JsonConverter, "):
        find_converter("nope")
