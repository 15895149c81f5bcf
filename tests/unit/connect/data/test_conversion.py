"""Records become columns and records again without a loss, and schemas have one Arrow type each."""

import pickle
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest

from ottla.connect.data.arrow_types import find_arrow_type, find_schema, normalise
from ottla.connect.data.conversion import array_to_values, columns_to_records, records_to_columns, values_to_array
from ottla.connect.data.logical import (
    DATE_SCHEMA,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    from_logical,
    make_decimal_schema,
    to_logical,
)
from ottla.connect.data.record import Header, Record
from ottla.connect.data.schema import Field, Schema, Type
from ottla.connect.errors import ConnectError, RecordError

INNER = Schema(Type.STRUCT, optional=True, fields=(Field("x", Schema(Type.FLOAT64)),))
EVERYTHING = Schema(
    Type.STRUCT,
    name="everything",
    fields=(
        Field("int8", Schema(Type.INT8)),
        Field("int64", Schema(Type.INT64, optional=True)),
        Field("float", Schema(Type.FLOAT32)),
        Field("flag", Schema(Type.BOOLEAN)),
        Field("text", Schema(Type.STRING, optional=True)),
        Field("data", Schema(Type.BYTES)),
        Field("list", Schema(Type.ARRAY, value_schema=INNER)),
        Field("map", Schema(Type.MAP, key_schema=Schema(Type.STRING), value_schema=Schema(Type.INT32))),
        Field("inner", INNER),
        Field("decimal", make_decimal_schema(2)),
        Field("date", DATE_SCHEMA),
        Field("time", TIME_SCHEMA),
        Field("timestamp", TIMESTAMP_SCHEMA),
    ),
)
VALUE = {
    "int8": -5,
    "int64": None,
    "float": 0.5,
    "flag": True,
    "text": "grüße",
    "data": b"\0\xff",
    "list": [{"x": 1.5}, None],
    "map": {"a": 1, "b": 2},
    "inner": None,
    "decimal": Decimal("12.30"),
    "date": date(2020, 2, 29),
    "time": time(23, 59, 59, 999_000),
    "timestamp": datetime(2020, 2, 29, 1, 2, 3, 4000, UTC),
}


def test_records_become_columns_and_records_again() -> None:
    records = [
        Record("t", VALUE, EVERYTHING, "k1", Schema(Type.STRING), 5, [Header("h", 1)], 3, 7),
        Record("t", None, None, "k2", Schema(Type.STRING), 6, [], 3, 8),
        Record("t", {**VALUE, "inner": {"x": 2.0}}, EVERYTHING, None, None, None, [], 3, 9),
    ]
    columns = records_to_columns(records)
    assert columns is not None and len(columns) == 3
    assert columns.value.type == find_arrow_type(EVERYTHING)
    assert columns_to_records(columns) == records


@pytest.mark.parametrize(
    "other",
    [
        Record("u", 1, Schema(Type.INT64)),
        Record("t", "1", Schema(Type.STRING)),
        Record("t", 1, Schema(Type.INT64), key=1, key_schema=Schema(Type.INT64)),
        Record("t", 1, None),
    ],
)
def test_records_of_several_topics_or_schemas_stay_records(other: Record) -> None:
    first = Record("t", 1, Schema(Type.INT64), key="k", key_schema=Schema(Type.STRING))
    assert records_to_columns([first, other]) is None
    assert records_to_columns([]) is None


def test_a_sliced_column_gives_its_own_rows() -> None:
    column = values_to_array(EVERYTHING, [VALUE, None, {**VALUE, "int8": 3}])
    assert [each and each["int8"] for each in array_to_values(column[1:])] == [None, 3]


def test_a_value_of_another_type_is_refused() -> None:
    with pytest.raises(RecordError, match="a value is not int8"):
        values_to_array(Schema(Type.INT8), [300])
    with pytest.raises(RecordError, match="a value is not string"):
        values_to_array(Schema(Type.STRING), [1])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.uint32(), Schema(Type.INT64, optional=True)),
        (pa.large_string(), Schema(Type.STRING, optional=True)),
        (pa.dictionary(pa.int32(), pa.string()), Schema(Type.STRING, optional=True)),
        (pa.list_(pa.int16()), Schema(Type.ARRAY, True, value_schema=Schema(Type.INT16, True))),
        (
            pa.map_(pa.string(), pa.bool_()),
            Schema(Type.MAP, True, key_schema=Schema(Type.STRING), value_schema=Schema(Type.BOOLEAN, True)),
        ),
    ],
)
def test_an_arrow_type_has_a_schema(kind: pa.DataType, expected: Schema) -> None:
    assert find_schema(kind) == expected


def test_columns_are_cast_to_the_type_of_their_schema() -> None:
    schema, column = normalise(pa.array([datetime(2020, 1, 1, 0, 0, 0, 1500)], pa.timestamp("us")))
    assert schema.name == TIMESTAMP_SCHEMA.name
    assert column.to_pylist() == [datetime(2020, 1, 1, 0, 0, 0, 1000, UTC)]
    schema, column = normalise(pa.array([2**64 - 1], pa.uint64()))
    assert column.to_pylist() == [Decimal(2**64 - 1)]


def test_an_arrow_type_without_a_schema_is_named() -> None:
    with pytest.raises(ConnectError, match=r"no type for Arrow's duration\[s\]"):
        find_schema(pa.duration("s"))


@pytest.mark.parametrize("unscaled", [0, 1, -1, 127, 128, -128, -129, 255, 256, 10**40, -(10**40)])
def test_decimals_are_kept_as_the_bytes_of_their_unscaled_value(unscaled: int) -> None:
    schema = make_decimal_schema(3)
    value = Decimal(unscaled).scaleb(-3) if abs(unscaled) < 1000 else to_logical(schema, _big(unscaled))
    data = from_logical(schema, value)
    assert int.from_bytes(data, "big", signed=True) == unscaled
    assert len(data) == 1 or data[:2] not in (b"\0\0", b"\xff\xff")
    assert to_logical(schema, data) == value


def _big(unscaled: int) -> bytes:
    return unscaled.to_bytes(40, "big", signed=True)


def test_logical_types_refuse_what_they_cannot_keep() -> None:
    with pytest.raises(RecordError, match="mismatching scale: the schema has scale 2, the value 1"):
        from_logical(make_decimal_schema(2), Decimal("1.5"))
    with pytest.raises(RecordError, match="milliseconds of a day"):
        to_logical(TIME_SCHEMA, 86_400_000)
    with pytest.raises(RecordError, match="not between the years 1 and 9999"):
        to_logical(TIMESTAMP_SCHEMA, 10**18)
    with pytest.raises(RecordError, match="invalid type for Date: str"):
        from_logical(DATE_SCHEMA, "2020-01-01")


def test_equal_schemas_have_equal_hashes_also_in_another_process() -> None:
    copy = pickle.loads(pickle.dumps(EVERYTHING))
    assert hash(EVERYTHING) == hash(copy) and copy == EVERYTHING
    assert not [name for name in copy.__getstate__() if name.startswith("_")]
