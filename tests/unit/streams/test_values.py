"""Values of state: JSON objects that bring back every type and value, fast or row by row."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given

from ottla.streams.state.values import RowCodec
from tests.unit.streams.strategies import EDGES, plain, tables


@given(tables())
def test_rows_survive_a_round_trip(rows: pa.Table) -> None:
    codec = RowCodec(rows.schema)
    encoded = codec.encode(rows)
    assert plain(codec.decode(encoded).to_pylist()) == plain(rows.to_pylist())
    assert codec.decode(encoded).schema == rows.schema


@given(tables())
def test_single_rows_and_batches_are_the_same_to_a_reader(rows: pa.Table) -> None:
    codec = RowCodec(rows.schema)
    singly = [codec.encode_row(row) for row in rows.to_pylist()]
    assert plain(codec.decode(singly).to_pylist()) == plain(rows.to_pylist())
    as_dicts = rows.to_pylist(maps_as_pydicts="strict")
    assert plain([codec.decode_row(value) for value in codec.encode(rows)]) == plain(as_dicts)
    assert plain([codec.decode_row(codec.encode_row(row)) for row in as_dicts]) == plain(as_dicts)


def test_edges_survive_a_round_trip() -> None:
    codec = RowCodec(EDGES.schema)
    assert plain(codec.decode(codec.encode(EDGES)).to_pylist()) == plain(EDGES.to_pylist())
    for start in range(EDGES.num_rows):
        part = EDGES.slice(start, 1)
        assert plain(codec.decode(codec.encode(part)).to_pylist()) == plain(part.to_pylist())


def test_the_text_is_what_a_person_would_write() -> None:
    rows = pa.table(
        {
            "id": [7],
            "amount": [0.5],
            "ok": [True],
            "name": ["Zoë"],
            "at": pa.array([datetime(2024, 5, 1, 12, tzinfo=UTC)], pa.timestamp("us", "UTC")),
            "price": pa.array([Decimal("9.90")], pa.decimal128(10, 2)),
            "tags": [["a", "b"]],
            "gone": pa.array([None], pa.string()),
        }
    )
    text = '{"id":7,"amount":0.5,"ok":true,"name":"Zoë","at":"2024-05-01T12:00:00.000000Z","price":"9.90",'
    text += '"tags":["a","b"],"gone":null}'
    assert RowCodec(rows.schema).encode(rows) == [text.encode()]
    assert RowCodec(rows.schema).encode_row(rows.to_pylist()[0]) == text.encode()


def test_every_value_is_a_json_object_for_any_reader() -> None:
    for value in RowCodec(EDGES.schema).encode(EDGES):
        assert list(json.loads(value, parse_constant=pytest.fail)) == EDGES.schema.names


def test_a_missing_value_is_a_row_of_nulls() -> None:
    codec = RowCodec(pa.schema([("a", pa.int64()), ("b", pa.binary())]))
    assert codec.decode([None, b'{"a":1}']).to_pylist() == [{"a": None, "b": None}, {"a": 1, "b": None}]
    fast = RowCodec(pa.schema([("a", pa.int64())]))
    assert fast.decode([None, b'{"a":1}', None]).to_pylist() == [{"a": None}, {"a": 1}, {"a": None}]
    assert fast.decode([]).num_rows == 0


def test_a_changed_schema_reads_old_values() -> None:
    """A new column is null, a removed one is ignored, and a number may become wider."""
    old = RowCodec(pa.schema([("a", pa.int32()), ("b", pa.string())]))
    new = RowCodec(pa.schema([("a", pa.float64()), ("c", pa.int64())]))
    assert new.decode([old.encode_row({"a": 1, "b": "x"})]).to_pylist() == [{"a": 1.0, "c": None}]
    assert new.decode_row(old.encode_row({"a": 1, "b": "x"})) == {"a": 1.0, "c": None}


def test_a_row_without_columns_is_an_empty_object() -> None:
    codec = RowCodec(pa.schema([]))
    assert codec.encode(pa.table({"other": [1, 2]})) == [b"{}", b"{}"]
    assert codec.decode([b"{}", None]).num_rows == 2


def test_times_that_python_cannot_express_are_numbers() -> None:
    rows = pa.table({"at": pa.array([10**18, 0], pa.timestamp("us", "UTC")), "day": pa.array([10**7, 0], pa.date32())})
    codec = RowCodec(rows.schema)
    assert codec.encode(rows)[0] == b'{"at":1000000000000000000,"day":10000000}'
    assert codec.decode(codec.encode(rows)) == rows


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int8(), 128),
        (pa.int64(), "1"),
        (pa.int64(), True),
        (pa.bool_(), 1),
        (pa.string(), b"x"),
        (pa.binary(), "x"),
        (pa.float64(), "1"),
        (pa.decimal128(4, 2), Decimal("1.234")),
        (pa.timestamp("us", "UTC"), "2024-01-01"),
        (pa.list_(pa.int64()), [1, "2"]),
        (pa.struct([("x", pa.int64())]), {"x": 1.5}),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_the_name_of_its_column(kind: pa.DataType, value: object) -> None:
    with pytest.raises(ValueError, match=r"^column 'a': .* is not ") as caught:
        RowCodec(pa.schema([("a", kind)])).encode_row({"a": value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [b"", b"7", b'{"a":', b'{"a":"x"}', b'{"a":1}\n{"a":2}', b'{"a":1.5}'])
def test_a_corrupt_value_is_refused(value: bytes) -> None:
    codec = RowCodec(pa.schema([("a", pa.int64())]))
    with pytest.raises(ValueError, match="is not"):
        codec.decode([value])
    with pytest.raises(ValueError, match="is not"):
        codec.decode_row(value)


def test_a_type_without_json_is_refused() -> None:
    with pytest.raises(ValueError, match=r"column 'a\.element': duration\[us\] has no form in JSON"):
        RowCodec(pa.schema([("a", pa.list_(pa.duration("us")))]))
