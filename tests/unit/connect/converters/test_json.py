"""JSON of values is Kafka's, with and without schemas, and a column is written as its rows are."""

import json
import pickle
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ottla.connect.converters.choice import make_converter
from ottla.connect.converters.converter import Converter
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.conversion import array_to_values, columns_to_records, values_to_array
from ottla.connect.data.logical import DATE_SCHEMA, TIMESTAMP_SCHEMA, make_decimal_schema
from ottla.connect.data.record import Record
from ottla.connect.data.schema import Field, Schema, Type
from ottla.connect.errors import BadConfig, RecordError

PERSON = Schema(
    Type.STRUCT,
    name="person",
    version=2,
    fields=(
        Field("id", Schema(Type.INT32)),
        Field("name", Schema(Type.STRING, optional=True, doc="who")),
        Field("city", Schema(Type.STRING, optional=True, default="Ljubljana")),
    ),
)
PERSON_JSON = (
    b'{"schema":{"type":"struct","fields":[{"type":"int32","optional":false,"field":"id"},'
    b'{"type":"string","optional":true,"doc":"who","field":"name"},'
    b'{"type":"string","optional":true,"default":"Ljubljana","field":"city"}],'
    b'"optional":false,"name":"person","version":2},"payload":{"id":7,"name":null,"city":"Ljubljana"}}'
)


def make(**config: str) -> Converter:
    return make_converter("org.apache.kafka.connect.json.JsonConverter", config, False)


def plain(**config: str) -> Converter:
    return make(**{"schemas.enable": "false", **config})


def test_the_envelope_is_kafkas() -> None:
    converter = make()
    written = converter.to_bytes("t", (), PERSON, {"id": 7, "name": None})
    assert written == PERSON_JSON
    for _ in range(2):  # at first by the whole message, then by its known beginning
        schema, value = converter.from_bytes("t", (), written)
        assert (schema, value) == (PERSON, {"id": 7, "name": None, "city": "Ljubljana"})


def test_nulls_become_the_default_unless_told_otherwise() -> None:
    kept = make(**{"replace.null.with.default": "false"})
    written = kept.to_bytes("t", (), PERSON, {"id": 7})
    assert written is not None and json.loads(written)["payload"]["city"] is None
    assert kept.from_bytes("t", (), written)[1] == {"id": 7, "name": None, "city": None}


def test_without_schemas_a_value_is_what_it_is() -> None:
    assert plain().to_bytes("t", (), PERSON, {"id": 7}) == b'{"id":7,"name":null,"city":"Ljubljana"}'
    assert plain().from_bytes("t", (), b'{"a":[1,2.5,"x",null,true]}') == (None, {"a": [1, 2.5, "x", None, True]})
    assert plain().to_bytes("t", (), None, {"a": b"\0", "n": float("nan")}) == b'{"a":"AA==","n":"NaN"}'
    assert plain().to_bytes("t", (), None, {1: "a", "b": 2}) == b'[[1,"a"],["b",2]]'
    assert make().to_bytes("t", (), None, {"a": 1}) == b'{"schema":null,"payload":{"a":1}}'
    assert make().from_bytes("t", (), b'{"schema":null,"payload":{"a":1}}') == (None, {"a": 1})


def test_null_is_a_tombstone_only_without_a_schema() -> None:
    optional = Schema(Type.STRING, optional=True)
    assert make().to_bytes("t", (), None, None) is None
    assert plain().to_bytes("t", (), optional, None) == b"null"
    assert make().from_bytes("t", (), None) == (None, None)
    with pytest.raises(RecordError, match="null value for field that is required"):
        plain().to_bytes("t", (), Schema(Type.STRING), None)


@pytest.mark.parametrize(
    ("schema", "value", "payload"),
    [
        (make_decimal_schema(2), Decimal("-1.50"), '"/2o="'),
        (DATE_SCHEMA, datetime(2020, 1, 1, tzinfo=UTC).date(), "18262"),
        (TIMESTAMP_SCHEMA, datetime(2020, 1, 1, tzinfo=UTC), "1577836800000"),
        (Schema(Type.BYTES), b"\xff\xfe", '"//4="'),
        (Schema(Type.FLOAT32), 0.10000000149011612, "0.1"),
        (Schema(Type.FLOAT64), float("inf"), '"Infinity"'),
        (
            Schema(Type.MAP, key_schema=Schema(Type.INT32), value_schema=Schema(Type.STRING)),
            {1: "a", 2: "b"},
            '[[1,"a"],[2,"b"]]',
        ),
        (Schema(Type.ARRAY, value_schema=Schema(Type.BOOLEAN, optional=True)), [True, None], "[true,null]"),
    ],
)
def test_types_that_json_lacks(schema: Schema, value: Any, payload: str) -> None:
    written = make().to_bytes("t", (), schema, value)
    assert written is not None and written.endswith(f'"payload":{payload}}}'.encode())
    assert make().from_bytes("t", (), written) == (schema, value)
    column = values_to_array(schema, [value, value])
    assert make().columns_to_bytes("t", schema, column).to_pylist() == [written, written]


def test_numeric_decimals_keep_all_digits() -> None:
    converter = make(**{"decimal.format": "numeric"})
    schema = make_decimal_schema(3)
    written = converter.to_bytes("t", (), schema, Decimal("12345678901234567890.120"))
    assert written is not None and written.endswith(b'"payload":12345678901234567890.120}')
    for _ in range(2):
        assert str(converter.from_bytes("t", (), written)[1]) == "12345678901234567890.120"


@pytest.mark.parametrize(
    ("data", "trouble"),
    [
        (b"{", "serialization error"),
        (b'{"a":1}', 'requires "schema" and "payload" fields'),
        (b'{"schema":null,"payload":1,"x":2}', "may not contain additional fields"),
        (b'{"schema":{"type":"int8"},"payload":300}', "300 is not INT8"),
        (b'{"schema":{"type":"int8"},"payload":"x"}', '"x" is not INT8'),
        (b'{"schema":{"type":"int8"},"payload":null}', "Invalid null value for required INT8 field"),
        (b'{"schema":{"type":"thing"},"payload":1}', "Unknown schema type: thing"),
        (b'{"schema":{"optional":true},"payload":1}', "Schema must contain 'type' field"),
        (b'{"schema":{"type":"array"},"payload":[]}', "Array schema did not specify the element type"),
        (b'{"schema":{"type":"struct","fields":[]},"payload":[]}', "Structs should be encoded as JSON objects"),
        (b'{"schema":{"type":"string"},"payload":1}', "1 is not STRING"),
    ],
)
def test_bad_messages_say_what_is_wrong(data: bytes, trouble: str) -> None:
    with pytest.raises(RecordError, match=trouble):
        make().from_bytes("t", (), data)


def test_a_value_of_another_type_is_not_written() -> None:
    with pytest.raises(RecordError, match="Invalid type for INT32: str"):
        make().to_bytes("t", (), Schema(Type.INT32), "7")
    with pytest.raises(RecordError, match="datetime does not have a corresponding schema type"):
        plain().to_bytes("t", (), None, {"a": datetime(2020, 1, 1)})


def test_a_schema_in_the_settings_reads_plain_messages() -> None:
    converter = make(**{"schema.content": '{"type":"struct","fields":[{"field":"a","type":"int8"}]}'})
    schema, value = converter.from_bytes("t", (), b'{"a":1}')
    assert schema is not None and schema.fields[0].schema.type is Type.INT8 and value == {"a": 1}
    with pytest.raises(BadConfig, match=r"schema\.content"):
        make(**{"schema.content": "{"})


WIDE = Schema(
    Type.STRUCT,
    optional=True,
    fields=(
        Field("i", Schema(Type.INT64, optional=True)),
        Field("f", Schema(Type.FLOAT64, optional=True)),
        Field("s", Schema(Type.STRING, optional=True, default='d"')),
        Field("l", Schema(Type.ARRAY, optional=True, value_schema=Schema(Type.STRING, optional=True))),
        Field("n", Schema(Type.STRUCT, optional=True, fields=(Field("x", Schema(Type.BOOLEAN)),))),
        Field("d", make_decimal_schema(1, optional=True)),
    ),
)
ROWS: list[dict[str, Any] | None] = [
    {"i": 1, "f": 1.0, "s": 'quo"te\n', "l": ["a", None, "\\"], "n": {"x": True}, "d": Decimal("1.5")},
    {"i": None, "f": 1e20, "s": None, "l": [], "n": None, "d": None},
    None,
    {"i": -(2**63), "f": float("-inf"), "s": "žaba", "l": None, "n": {"x": False}, "d": Decimal("-0.1")},
]


@pytest.mark.parametrize("config", [{}, {"schemas.enable": "false"}, {"decimal.format": "NUMERIC"}])
def test_a_column_is_written_as_its_rows(config: dict[str, str]) -> None:
    converter = make(**config)
    column = values_to_array(WIDE, [None, *ROWS])[1:]
    written = converter.columns_to_bytes("t", WIDE, column).to_pylist()
    one_by_one = [None if each is None else converter.to_bytes("t", (), WIDE, each) for each in ROWS]
    assert [each and json.loads(each) for each in written] == [each and json.loads(each) for each in one_by_one]
    if config != {"schemas.enable": "false"}:
        found = converter.columns_from_bytes("t", pa.array(written, pa.binary()))
        assert found is not None and found[0] == WIDE
        assert array_to_values(found[1]) == [each and {**each, "s": each["s"] or 'd"'} for each in ROWS]


@pytest.mark.parametrize(
    "rows",
    [
        [{"s": 'say "no"', "i": 7, "f": 0.5}] * 3,
        [{"s": "C:\\dir", "i": 7, "f": 0.0}, {"s": "C:\\dir", "i": 7, "f": -0.0}],
        [{"s": "one", "i": None, "f": 1.5}, {"s": 'a "tab"\t', "i": None, "f": 2.0}, {"s": "\\", "i": None, "f": 1.5}],
        [{"s": "", "i": 1, "f": 1e300}, {"s": None, "i": 1, "f": 1e300}, {"s": "", "i": 1, "f": 1e300}],
        [{"s": None, "i": None, "f": None}] * 2,
    ],
)
def test_values_that_repeat_and_texts_that_are_escaped(rows: list[dict[str, Any]]) -> None:
    """Byte for byte as one by one, also with a slice of a longer column."""
    kinds = {"s": Type.STRING, "i": Type.INT32, "f": Type.FLOAT64}
    schema = Schema(Type.STRUCT, fields=tuple(Field(name, Schema(kind, optional=True)) for name, kind in kinds.items()))
    column = values_to_array(schema, [{"s": '"\n', "i": 5, "f": 4.0}, *rows])[1:]
    one_by_one = [plain().to_bytes("t", (), schema, each) for each in rows]
    written = plain().columns_to_bytes("t", schema, column).to_pylist()
    assert [json.loads(each) for each in written] == rows
    assert written == one_by_one


def test_rows_whose_writer_puts_blanks_between_tokens_are_read_as_a_column() -> None:
    """As Python's json writes them. A payload that comes first is read row by row."""
    message = json.loads(PERSON_JSON)
    spaced, turned = json.dumps(message), json.dumps({"payload": message["payload"], "schema": message["schema"]})
    found = make().columns_from_bytes("t", pa.array([spaced.encode(), None], pa.binary()))
    assert found is not None and array_to_values(found[1]) == [make().from_bytes("t", (), PERSON_JSON)[1], None]
    assert make().columns_from_bytes("t", pa.array([turned.encode()], pa.binary())) is None
    assert make().from_bytes("t", (), turned.encode()) == make().from_bytes("t", (), PERSON_JSON)


def test_rows_with_the_same_fields_get_a_schema() -> None:
    found = plain().columns_from_bytes("t", pa.array([b'{"a":1,"b":null}', None, b'{"a":2,"b":"x"}'], pa.binary()))
    assert found is not None
    assert [(each.name, each.schema.type) for each in found[0].fields] == [("a", Type.INT64), ("b", Type.STRING)]
    assert array_to_values(found[1]) == [{"a": 1, "b": None}, None, {"a": 2, "b": "x"}]
    records = columns_to_records(RecordColumns("t", *found))
    assert found[0].is_inferred and records[0] == Record("t", {"a": 1, "b": None})


@pytest.mark.parametrize("other", [b'{"a":1}', b'{"a":1.5,"b":2}', b'{"b":1,"a":2}', b"[]", b"5", b'{"a":{},"b":1}'])
def test_rows_that_differ_are_taken_one_by_one(other: bytes) -> None:
    assert plain().columns_from_bytes("t", pa.array([b'{"a":1,"b":2}', other], pa.binary())) is None


def test_rows_with_several_schemas_are_taken_one_by_one() -> None:
    other = make().to_bytes("t", (), Schema(Type.INT8), 1)
    assert make().columns_from_bytes("t", pa.array([PERSON_JSON, other], pa.binary())) is None


def test_a_bad_row_fails_the_column() -> None:
    with pytest.raises(RecordError):
        make().columns_from_bytes("t", pa.array([PERSON_JSON, PERSON_JSON.replace(b":7,", b":null,")], pa.binary()))
    with pytest.raises(RecordError):
        plain().columns_from_bytes("t", pa.array([b"{}", b"{"], pa.binary()))


def test_a_converter_survives_pickling() -> None:
    converter = make()
    converter.from_bytes("t", (), converter.to_bytes("t", (), PERSON, {"id": 7}))
    copy = pickle.loads(pickle.dumps(converter))
    assert copy.to_bytes("t", (), PERSON, {"id": 7}) == PERSON_JSON
