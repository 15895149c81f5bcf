"""Each transformation changes a record as Kafka's does, with and without a schema."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from ottla.connect.data.logical import DATE_SCHEMA, TIMESTAMP_SCHEMA, make_decimal_schema
from ottla.connect.data.record import Header, Record
from ottla.connect.data.schema import Field, Schema, Type
from ottla.connect.errors import BadConfig, RecordError
from ottla.connect.transforms.chain import make_transforms
from ottla.connect.transforms.kinds import TRANSFORMATIONS

INT, TEXT, OPTIONAL_TEXT = Schema(Type.INT32), Schema(Type.STRING), Schema(Type.STRING, optional=True)
INNER = Schema(Type.STRUCT, optional=True, fields=(Field("x", INT), Field("y.z", OPTIONAL_TEXT)))
ROW = Schema(
    Type.STRUCT,
    name="row",
    fields=(
        Field("id", INT),
        Field("name", Schema(Type.STRING, optional=True, default="nobody")),
        Field("inner", INNER),
    ),
)


def transform(kind: str, record: Record, **settings: str) -> Record:
    given = {f"transforms.a.{name.replace('_', '.')}": text for name, text in settings.items()}
    changed = make_transforms({"transforms": "a", "transforms.a.type": kind, **given}).apply(record)
    assert changed is not None
    return changed


def row(**changes: Any) -> Record:
    value = {"id": 7, "name": "Ana", "inner": {"x": 1, "y.z": None}, **changes}
    return Record("t", value, ROW, timestamp=1_000, partition=2, offset=5)


def loose(**value: Any) -> Record:
    return Record("t", value, timestamp=1_000, partition=2)


def field_types(schema: Schema | None) -> list[tuple[str, Type, bool]]:
    assert schema is not None
    return [(each.name, each.schema.type, each.schema.optional) for each in schema.fields]


def test_cast_fields() -> None:
    changed = transform("Cast$Value", row(), spec="id:string,name:boolean")
    assert changed.value["id"] == "7" and changed.value["name"] is False
    assert field_types(changed.value_schema)[:2] == [("id", Type.STRING, False), ("name", Type.BOOLEAN, True)]
    assert transform("Cast$Value", loose(a="300", b=2.9), spec="a:int16,b:int8").value == {"a": 300, "b": 2}


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (300, "int8", 44),
        (1e20, "int32", 2**31 - 1),
        (1e20, "int8", -1),
        (1e20, "int64", 2**63 - 1),
        (float("nan"), "int64", 0),
        (True, "float64", 1.0),
        ("1.5f", "float32", 1.5),
        (0.5, "boolean", False),
        ("TRUE", "boolean", True),
        (1e10, "string", "1.0E10"),
        (b"\0", "string", "AA=="),
    ],
)
def test_cast_the_whole_value(value: Any, kind: str, expected: Any) -> None:
    assert transform("Cast$Value", Record("t", value), spec=kind).value == expected


def test_cast_of_logical_types() -> None:
    record = Record("t", date(1970, 1, 3), DATE_SCHEMA)
    assert transform("Cast$Value", record, spec="int64").value == 2
    assert transform("Cast$Value", record, spec="string").value == "1970-01-03"
    assert transform("Cast$Value", Record("t", Decimal("7.9"), make_decimal_schema(1)), spec="int8").value == 7


@pytest.mark.parametrize(("value", "kind"), [("x", "int8"), ("300", "int8"), ([], "string"), (b"", "int8")])
def test_cast_refuses(value: Any, kind: str) -> None:
    with pytest.raises(RecordError):
        transform("Cast$Value", Record("t", value), spec=kind)


def test_extract_field() -> None:
    changed = transform("ExtractField$Value", row(name=None), field="name")
    assert (changed.value_schema, changed.value) == (ROW.fields[1].schema, "nobody")
    kept = transform("ExtractField$Value", row(name=None), field="name", **{"replace.null.with.default": "false"})
    assert kept.value is None
    nested = transform("ExtractField$Value", row(), field="inner.x", **{"field.syntax.version": "V2"})
    assert (nested.value_schema, nested.value) == (INT, 1)
    record = Record("t", None, key={"a": {"b.c": 3}})
    assert transform("ExtractField$Key", record, field="a.`b.c`", **{"field.syntax.version": "v2"}).key == 3
    with pytest.raises(RecordError, match="Unknown field: nope"):
        transform("ExtractField$Value", row(), field="nope")
    with pytest.raises(BadConfig, match="Incomplete backtick pair"):
        transform("ExtractField$Value", row(), field="`a.b", **{"field.syntax.version": "V2"})


def test_hoist_field() -> None:
    changed = transform("HoistField$Key", Record("t", None, key=1, key_schema=INT), field="id")
    assert changed.key == {"id": 1} and field_types(changed.key_schema) == [("id", Type.INT32, False)]
    assert transform("HoistField$Value", Record("t", None), field="v").value == {"v": None}


def test_flatten() -> None:
    changed = transform("Flatten$Value", row(), delimiter="_")
    assert changed.value == {"id": 7, "name": "Ana", "inner_x": 1, "inner_y.z": None}
    assert field_types(changed.value_schema) == [
        ("id", Type.INT32, False),
        ("name", Type.STRING, True),
        ("inner_x", Type.INT32, True),
        ("inner_y.z", Type.STRING, True),
    ]
    assert transform("Flatten$Value", loose(a={"b": {"c": 1}, "d": [{}]}, e=None)).value == {
        "a.b.c": 1,
        "a.d": [{}],
        "e": None,
    }
    mapped = Schema(Type.STRUCT, fields=(Field("m", Schema(Type.MAP, key_schema=TEXT, value_schema=INT)),))
    with pytest.raises(RecordError, match=r"does not support MAP for record with schemas \(for field m\)"):
        transform("Flatten$Value", Record("t", {"m": {}}, mapped))


def test_insert_field() -> None:
    settings = {"topic.field": "topic!", "timestamp.field": "at", "static.field": "s?", "static.value": "v"}
    changed = transform("InsertField$Value", row(), **settings, **{"offset.field": "o", "partition.field": "p"})
    assert changed.value["topic"] == "t" and changed.value["p"] == 2 and changed.value["o"] == 5
    assert changed.value["at"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC) and changed.value["s"] == "v"
    assert ("topic", Type.STRING, False) in field_types(changed.value_schema)
    assert transform("InsertField$Value", loose(a=1), **settings).value == {"a": 1, "topic": "t", "at": 1000, "s": "v"}
    with pytest.raises(RecordError, match="field name duplication id"):
        transform("InsertField$Value", row(), **{"topic.field": "id"})
    with pytest.raises(BadConfig, match="No field insertion configured"):
        transform("InsertField$Value", row())
    with pytest.raises(BadConfig, match="No value specified for static field"):
        transform("InsertField$Value", row(), **{"static.field": "x"})


def test_mask_field() -> None:
    assert transform("MaskField$Value", row(), fields="id,name").value["name"] == ""
    assert transform("MaskField$Value", row(), fields="id", replacement="9.7").value["id"] == 9
    assert transform("MaskField$Value", loose(a=1, b=[1]), fields="a,b").value == {"a": 0, "b": []}
    for settings in ({"fields": "inner"}, {"fields": "id", "replacement": "x"}):
        with pytest.raises(RecordError):
            transform("MaskField$Value", row(), **settings)


def test_replace_field() -> None:
    changed = transform("ReplaceField$Value", row(name=None), exclude="inner", renames="id:number")
    assert changed.value == {"number": 7, "name": "nobody"}
    assert changed.value_schema is not None and changed.value_schema.name == "row"
    assert transform("ReplaceField$Value", loose(a=1, b=2, c=3), include="a,b", renames="b:x").value == {"a": 1, "x": 2}
    with pytest.raises(BadConfig, match="Invalid rename mapping: x"):
        transform("ReplaceField$Value", row(), renames="x")
    with pytest.raises(RecordError, match='null used for required field: "id", schema type: INT32'):
        transform("ReplaceField$Value", row(id=None), exclude="name")


def test_set_schema_metadata() -> None:
    changed = transform("SetSchemaMetadata$Value", row(), **{"schema.name": "other", "schema.version": "3"})
    assert changed.value_schema is not None
    assert (changed.value_schema.name, changed.value_schema.version) == ("other", 3)
    with pytest.raises(RecordError, match="Schema required"):
        transform("SetSchemaMetadata$Value", loose(a=1), **{"schema.name": "other"})
    with pytest.raises(BadConfig, match="Neither schema name nor version configured"):
        transform("SetSchemaMetadata$Value", row())


def test_value_to_key() -> None:
    changed = transform("ValueToKey", row(name=None), fields="name,id")
    assert changed.key == {"name": "nobody", "id": 7}
    assert field_types(changed.key_schema) == [("name", Type.STRING, True), ("id", Type.INT32, False)]
    assert transform("ValueToKey", loose(a=1), fields="a,b").key == {"a": 1, "b": None}
    with pytest.raises(RecordError, match="Field does not exist: nope"):
        transform("ValueToKey", row(), fields="nope")


def test_headers() -> None:
    record = row()
    record.headers = [Header("a", 1), Header("b", 2), Header("a", 3)]
    assert [each.key for each in transform("DropHeaders", record, headers="a,x").headers] == ["b"]
    inserted = transform("InsertHeader", record, header="n", **{"value.literal": "42"}).headers[-1]
    assert inserted == Header("n", 42, Schema(Type.INT8))
    moved = transform("HeaderFrom$Value", record, fields="id,name", headers="h1,h2", operation="move")
    assert moved.value == {"inner": record.value["inner"]}
    assert moved.headers[3:] == [Header("h1", 7, INT), Header("h2", "Ana", ROW.fields[1].schema)]
    copied = transform("HeaderFrom$Value", loose(a=1), fields="a,b", headers="x,y", operation="copy")
    assert copied.value == {"a": 1} and copied.headers == [Header("x", 1), Header("y", None)]
    assert len(record.headers) == 3
    with pytest.raises(BadConfig, match="same number of elements"):
        transform("HeaderFrom$Value", record, fields="id", headers="a,b", operation="copy")


@pytest.mark.parametrize(
    ("regex", "replacement", "topic", "expected"),
    [
        ("(.*)-v1", "$1-v2", "orders-v1", "orders-v2"),
        ("(?<db>[^.]+)\\.(.*)", "${db}_$2", "shop.orders", "shop_orders"),
        ("orders", "x", "my-orders", "my-orders"),
        ("a|ab", "x", "ab", "xb"),
        ("(.)(.*)", "$11\\$", "ab", "a1$"),
        ("\\Qa.b\\E", "c", "a.b", "c"),
        ("\\p{Upper}[\\p{Lower}0]+", "c", "Ab0", "c"),
    ],
)
def test_regex_router(regex: str, replacement: str, topic: str, expected: str) -> None:
    assert transform("RegexRouter", Record(topic, 1), regex=regex, replacement=replacement).topic == expected


@pytest.mark.parametrize(
    ("regex", "replacement"), [("(", "x"), ("x", "$1"), ("x", "${n}"), ("x", "$"), ("x", "\\"), ("\\p{Greek}", "x")]
)
def test_regex_router_refuses(regex: str, replacement: str) -> None:
    with pytest.raises(BadConfig):
        transform("RegexRouter", Record("t", 1), regex=regex, replacement=replacement)


def test_timestamp_router() -> None:
    record = Record("t", 1, timestamp=1_600_000_000_000)
    assert transform("TimestampRouter", record).topic == "t-20200913"
    formats = {"topic.format": "${timestamp}.${topic}", "timestamp.format": "yyyy'-w'HH"}
    assert transform("TimestampRouter", record, **formats).topic == "2020-w12.t"
    with pytest.raises(RecordError, match="Timestamp missing on record"):
        transform("TimestampRouter", Record("t", 1))


MOMENT = datetime(2020, 9, 13, 12, 26, 40, 5000, UTC)
TYPES = {"string": "2020-09-13 12:26:40.005", "unix": 1_600_000_000_005, "Timestamp": MOMENT}
TYPES = {**TYPES, "Date": MOMENT.date(), "Time": MOMENT.time()}


@pytest.mark.parametrize("source", ["string", "unix", "Timestamp"])
@pytest.mark.parametrize("target", list(TYPES))
def test_timestamp_converter(source: str, target: str) -> None:
    settings = {"target.type": target, "format": "yyyy-MM-dd HH:mm:ss.SSS"}
    schema = {"string": TEXT, "unix": Schema(Type.INT64), "Timestamp": TIMESTAMP_SCHEMA}[source]
    changed = transform("TimestampConverter$Value", Record("t", TYPES[source], schema), **settings)
    assert changed.value == TYPES[target]
    struct = Schema(Type.STRUCT, optional=True, fields=(Field("at", schema), Field("n", INT)))
    in_struct = transform(
        "TimestampConverter$Value", Record("t", {"at": TYPES[source], "n": 1}, struct), field="at", **settings
    )
    assert in_struct.value == {"at": TYPES[target], "n": 1}
    assert in_struct.value_schema is not None and in_struct.value_schema.optional
    assert in_struct.value_schema.fields[0].schema == changed.value_schema
    assert transform("TimestampConverter$Value", loose(at=TYPES[source]), field="at", **settings).value == {
        "at": TYPES[target]
    }


@pytest.mark.parametrize(
    ("precision", "value"), [("seconds", -1), ("microseconds", -1_500_000), ("nanoseconds", -1_500_000_000)]
)
def test_unix_time_has_a_precision(precision: str, value: int) -> None:
    settings = {"unix.precision": precision, "target.type": "Timestamp"}
    moment = transform("TimestampConverter$Value", Record("t", value), **settings).value
    back = transform("TimestampConverter$Value", Record("t", moment), **{**settings, "target.type": "unix"})
    assert back.value == value
    assert moment.microsecond in (0, 500_000)


def test_timestamp_converter_refuses() -> None:
    with pytest.raises(BadConfig, match="requires format option"):
        transform("TimestampConverter$Value", Record("t", 1), **{"target.type": "string"})
    with pytest.raises(RecordError, match="does not match pattern"):
        transform("TimestampConverter$Value", Record("t", "x"), **{"target.type": "unix", "format": "yyyy"})
    with pytest.raises(RecordError, match="does not correspond to a known timestamp type"):
        transform("TimestampConverter$Value", Record("t", 1, INT), **{"target.type": "unix"})
    with pytest.raises(RecordError, match="does not support float"):
        transform("TimestampConverter$Value", Record("t", 1.5), **{"target.type": "unix"})


@pytest.mark.parametrize("kind", [each.class_name for each in TRANSFORMATIONS if "$" in each.class_name])
def test_keys_and_values_are_changed_alike(kind: str) -> None:
    """Every transformation of keys changes what its twin of values changes, and nothing else."""
    settings = {
        "Cast": {"spec": "id:string"},
        "ExtractField": {"field": "id"},
        "HeaderFrom": {"fields": "id", "headers": "h", "operation": "move"},
        "HoistField": {"field": "x"},
        "InsertField": {"topic.field": "topic"},
        "MaskField": {"fields": "id"},
        "ReplaceField": {"exclude": "id"},
        "SetSchemaMetadata": {"schema.name": "n"},
        "TimestampConverter": {"field": "at", "target.type": "unix"},
    }.get(kind.rpartition(".")[2].partition("$")[0], {})
    value, schema = row().value, ROW
    by_key = transform(kind.replace("Value", "Key"), Record("t", "v", TEXT, value, schema), **settings)
    by_value = transform(kind.replace("Key", "Value"), Record("t", value, schema, "v", TEXT), **settings)
    assert (by_key.key, by_key.key_schema) == (by_value.value, by_value.value_schema)
    assert (by_key.value, by_key.value_schema, by_value.key) == ("v", TEXT, "v")


def test_midnight_is_a_time() -> None:
    changed = transform("TimestampConverter$Value", Record("t", 0), **{"target.type": "Time"})
    assert changed.value == time()
