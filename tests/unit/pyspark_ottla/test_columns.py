"""Decoded columns of format("ottla"), without Spark: the tests call the source, and check its rows, as Spark does."""

import json
import pickle
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from pyspark.sql.types import IntegerType, LongType, StructField, StructType
from pyspark.sql.worker.plan_data_source_read import records_to_arrow_batches

from ottla.errors import KafkaError
from ottla.pipeline.formats import BadRecord
from ottla.pipeline.registry import RegistryError
from ottla.testing import LocalBroker
from pyspark_ottla import DefaultSource
from pyspark_ottla.boundaries import OptionError
from tests.spark.topics import received, send
from tests.unit.client.shelf import Shelf, framed, proto, served

FIELDS = "id BIGINT, at TIMESTAMP, lines ARRAY<STRUCT<price: DOUBLE>>"
JSON = {"valueFormat": "json", "valueSchema": FIELDS}
GOOD = {"id": 1, "at": "2024-05-01T10:00:00Z", "lines": [{"price": 1.5}]}


@pytest.fixture(scope="module")
def broker(ottla_session_broker: LocalBroker) -> LocalBroker:
    """A topic with a valid value, one that is no JSON and whose key is no text, a tombstone, and another valid
    value."""
    broker = ottla_session_broker
    broker.create_topic("columns-json")
    send(
        broker,
        "columns-json",
        [
            {"key": "a", "value": json.dumps(GOOD)},
            {"key": b"\xff", "value": "poison", "headers": [("trace", b"7")]},
            {"key": "a", "value": None},
            {"key": "b", "value": '{"id": 2, "unknown": true}'},
        ],
    )
    return broker


def source(broker: LocalBroker, topic: str, **options: str) -> DefaultSource:
    return DefaultSource({"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **options})


def rows(broker: LocalBroker, topic: str, **options: Any) -> list[dict[str, Any]]:
    """Read rows as Spark does: the source, and then the reader, are pickled on their way. `schema` is the user's
    own."""
    schema: StructType | None = options.pop("schema", None)
    made = source(broker, topic, **options)
    wanted = made.schema() if schema is None else schema
    reader = pickle.loads(pickle.dumps(made)).reader(wanted)
    reader = pickle.loads(pickle.dumps(reader))
    return [
        row
        for partition in reader.partitions()
        for batch in records_to_arrow_batches(reader.read(partition), 10_000, wanted, made)
        for row in batch.to_pylist()
    ]


def test_values_become_columns_of_their_schema(broker: LocalBroker) -> None:
    """JSON fields become columns of the SQL schema, keys become text, and other columns are unchanged."""
    options = {**JSON, "keyFormat": "string", "badRecords": "null", "columns": "key,value,offset,error"}
    assert source(broker, "columns-json", **options).schema().simpleString() == (
        "struct<key:string,value:struct<id:bigint,at:timestamp,lines:array<struct<price:double>>>,offset:bigint,"
        "error:string>"
    )
    found = rows(broker, "columns-json", **options)
    assert [row["key"] for row in found] == ["a", None, "a", "b"]
    assert found[0]["value"]["at"].isoformat() == "2024-05-01T10:00:00+00:00"
    assert found[0]["value"]["lines"] == GOOD["lines"]
    assert [row["value"] and row["value"]["id"] for row in found] == [1, None, None, 2]
    assert [row["error"] and row["error"].count("not ") for row in found] == [None, 2, None, None]


def test_a_bad_record_fails_the_read_and_is_named(broker: LocalBroker) -> None:
    with pytest.raises(BadRecord) as error:
        rows(broker, "columns-json", **JSON, columns="value")
    assert str(error.value).startswith("columns-json-0 at offset 1: value: not the JSON that the schema says")
    assert "\n" not in str(error.value)


def test_bad_records_go_to_a_topic_of_their_own(broker: LocalBroker) -> None:
    """Bad records are written unchanged, with their headers and the reason. The others are rows. The topic must
    exist."""
    options = {**JSON, "badRecords": "dead-letter", "deadLetterTopic": "columns-dead", "columns": "offset"}
    with pytest.raises(KafkaError, match="deadLetterTopic: there is no topic 'columns-dead'"):
        rows(broker, "columns-json", **options)
    broker.create_topic("columns-dead")
    assert [row["offset"] for row in rows(broker, "columns-json", **options)] == [0, 2, 3]
    (letter,) = received(broker, "columns-dead", 1)
    assert (letter.key(), letter.value()) == (b"\xff", b"poison")
    headers: dict[str, Any] = dict(letter.headers() or [])
    assert headers.pop("__connect.errors.exception.message").startswith(b"value: not the JSON")
    assert headers == {
        "trace": b"7",
        "__connect.errors.topic": b"columns-json",
        "__connect.errors.partition": b"0",
        "__connect.errors.offset": b"1",
    }


def test_a_pattern_does_not_read_its_own_dead_letters(broker: LocalBroker) -> None:
    for name in ("looped", "looped-dead"):
        broker.create_topic(name)
        send(broker, name, [{"value": "poison"}])
    options = {**JSON, "badRecords": "dead-letter", "deadLetterTopic": "looped-dead", "subscribePattern": "looped.*"}
    made = DefaultSource({"kafka.bootstrap.servers": broker.bootstrap, **options})
    assert [each.range.where.topic for each in made.reader(made.schema()).partitions()] == ["looped"]


def test_fields_can_be_columns(broker: LocalBroker) -> None:
    """The fields replace the value. A column of the record that has the name of a field is renamed."""
    broker.create_topic("columns-wide")
    send(broker, "columns-wide", [{"value": '{"id": 5, "Offset": "far"}'}, {"value": None}])
    schema = "id BIGINT, Offset STRING"
    options = {"valueFormat": "json", "valueSchema": schema, "expandValue": "true", "columns": "offset,value"}
    assert rows(broker, "columns-wide", **options) == [
        {"record_offset": 0, "id": 5, "Offset": "far"},
        {"record_offset": 1, "id": None, "Offset": None},
    ]
    whole = source(broker, "columns-wide", valueFormat="avro", valueSchema='"int"', expandValue="true", columns="value")
    assert whole.schema().simpleString() == "struct<value:int>"


def test_a_schema_can_be_inferred(broker: LocalBroker) -> None:
    options = {"valueFormat": "json", "valueSchema": "infer", "columns": "value", "badRecords": "null"}
    assert source(broker, "columns-json", **options).schema()["value"].dataType.simpleString() == (
        "struct<id:bigint,at:string,lines:array<struct<price:double>>,unknown:boolean>"
    )
    broker.create_topic("columns-empty")
    with pytest.raises(OptionError, match="valueSchema: there are no values to infer it from; a schema must be given"):
        source(broker, "columns-empty", **options).schema()


def test_the_user_may_give_a_schema(broker: LocalBroker) -> None:
    """It chooses columns, and is the schema of JSON if no option gives one. A type that does not fit is an error."""
    inner = StructType([StructField("id", IntegerType())])
    chosen = StructType([StructField("offset", LongType()), StructField("value", inner)])
    options = {"valueFormat": "json", "badRecords": "null"}
    found = rows(broker, "columns-json", schema=chosen, **options)
    assert [row["value"] for row in found] == [{"id": 1}, None, None, {"id": 2}]
    flat = StructType([StructField("id", IntegerType()), StructField("offset", LongType())])
    assert rows(broker, "columns-json", schema=flat, **options, expandValue="true")[3] == {"id": 2, "offset": 3}
    for schema, said in (
        (chosen, "schema: column 'value' is struct<id:bigint,at:timestamp"),
        (flat, "schema: there is no column 'id'"),
        (StructType([StructField("offset", LongType(), False)]), "schema: column 'offset' has a NOT NULL"),
    ):
        with pytest.raises(OptionError, match=said):
            source(broker, "columns-json", **JSON).reader(schema)


# Schemas of a registry, and of files


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def url(shelf: Shelf) -> Iterator[str]:
    with served(shelf) as address:
        yield address


def test_a_registry_has_the_schema(ottla_broker: LocalBroker, url: str, shelf: Shelf) -> None:
    """The newest schema of the subject makes the column, and is requested once. Each value is read with its own
    schema."""
    broker = ottla_broker  # a broker of its own, because the subject is named after the topic
    broker.create_topic("orders")
    send(broker, "orders", [{"value": framed(1, b"\x02")}, {"value": framed(2, b"\x04\x02x")}, {"value": b"plain"}])
    options = {
        "valueFormat": "avro",
        "schemaRegistry": url,
        "schemaRegistryUser": "me:secret",
        "badRecords": "null",
        "columns": "value,error",
    }
    found = rows(broker, "orders", **options)
    assert [row["value"] for row in found] == [{"id": 1, "note": "-"}, {"id": 2, "note": "x"}, None]
    assert (
        found[2]["error"]
        == "value: it does not begin with the id of a schema, as values written with a schema registry do"
    )
    assert shelf.asked.count("/subjects/orders-value/versions/latest") == 1
    assert set(shelf.authorization) == {"Basic " + b64encode(b"me:secret").decode()}
    send(broker, "orders", [{"value": framed(1, b"\x04")}])
    shelf.failing = True
    with pytest.raises(OptionError, match=r"schemaRegistry: http.*: 500"):
        source(broker, "orders", **options).schema()


def test_a_registry_that_goes_away_fails_the_read(broker: LocalBroker, url: str, shelf: Shelf) -> None:
    """Records do not count as bad because of that, whatever the option for bad records says."""
    broker.create_topic("registered")
    send(broker, "registered", [{"value": framed(1, b"\x02")}])
    options = {"valueFormat": "avro", "schemaRegistry": url, "valueSubject": "orders-value", "badRecords": "null"}
    made = source(broker, "registered", **options)
    reader = made.reader(made.schema())
    shelf.failing = True
    with pytest.raises(RegistryError, match="/schemas/ids/1: 500"):
        list(reader.read(reader.partitions()[0]))


def test_schemas_can_be_in_files(broker: LocalBroker, tmp_path: Path) -> None:
    broker.create_topic("filed")
    send(broker, "filed", [{"key": b"\x06", "value": b"\x0a\x01k"}])
    file = descriptor_pb2.FileDescriptorProto.FromString(b64decode(proto("Customer", "shop", ("name", 1, ""))))
    (tmp_path / "shop.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    (tmp_path / "key.avsc").write_text('"long"')
    options = {
        "keyFormat": "avro",
        "keySchema": f"@{tmp_path}/key.avsc",
        "valueFormat": "protobuf",
        "valueSchema": f"@{tmp_path}/shop.desc",
        "valueMessage": "shop.Customer",
        "columns": "key,value",
    }
    assert rows(broker, "filed", **options) == [{"key": 3, "value": {"name": "k"}}]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"valueFormat": "xml"}, "valueFormat: 'xml' is none of binary, string, json, avro, protobuf"),
        ({"valueFormat": "json"}, "valueSchema: json needs a schema, or 'infer' to take it from the newest records"),
        ({"valueFormat": "avro"}, "valueSchema: avro needs a schema, or a schemaRegistry"),
        ({"valueFormat": "json", "valueSchema": "id BIGINTEGER"}, "valueSchema: not a schema .* no type 'BIGINTEGER'"),
        ({"valueFormat": "json", "valueSchema": "id MAP<STRING, INT>"}, "valueSchema: JSON cannot be read as"),
        ({"valueFormat": "avro", "valueSchema": "{"}, "valueSchema: Avro: '{' is no type"),
        ({"valueFormat": "avro", "valueSchema": "infer"}, "valueSchema: only the schema of json"),
        ({"valueFormat": "avro", "valueSchema": "@/no/such"}, "valueSchema: /no/such: No such file"),
        ({"valueFormat": "protobuf", "valueSchema": "AA=="}, "valueSchema: protobuf needs the full name of a message"),
        ({"valueSchema": "id BIGINT"}, "valueSchema: valueFormat is binary, which has no schema"),
        ({"valueFormat": "json", "valueSchema": " "}, "valueSchema: it is empty"),
        ({"valueFormat": "json", "valueMessage": "x"}, "valueMessage: only protobuf has messages"),
        ({"keyFormat": "avro", "keySchema": '"int"', "keySubject": "x"}, "keySubject: it is for a schema registry"),
        ({"schemaRegistry": "http://localhost:1"}, "schemaRegistry: neither valueFormat nor keyFormat"),
        ({"schemaRegistry": "localhost", "valueFormat": "avro"}, "schemaRegistry: .*'localhost' is no http"),
        ({"schemaRegistry": "http://127.0.0.1:1", "valueFormat": "avro"}, "schemaRegistry: .*refused"),
        ({"schemaRegistryToken": "x"}, "schemaRegistryToken: there is no schemaRegistry"),
        (
            {"schemaRegistry": "http://localhost:1", "schemaRegistryUser": "me"},
            "schemaRegistryUser: it must be name:pass",
        ),
        ({"schemaRegistry": "http://localhost:1", "valueFormat": "avro", "subscribe": "a,b"}, "valueSubject: not one"),
        ({"expandValue": "true", "valueFormat": "string"}, "expandValue: values have fields only with"),
        ({"badRecords": "drop"}, "badRecords: 'drop' is none of fail, null, dead-letter"),
        ({"badRecords": "null"}, "badRecords: nothing is decoded"),
        (
            {"badRecords": "dead-letter", "valueFormat": "string"},
            "deadLetterTopic: it goes with badRecords=dead-letter",
        ),
        ({"deadLetterTopic": "x", "valueFormat": "string"}, "deadLetterTopic: it goes with badRecords=dead-letter"),
        ({"badRecords": "dead-letter", "valueFormat": "string", "deadLetterTopic": "shop"}, "'shop' is read too"),
    ],
)
def test_a_wrong_option_is_reported_in_one_line(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said) as error:
        DefaultSource({"kafka.bootstrap.servers": "localhost:1", "subscribe": "shop", **options}).schema()
    assert "\n" not in str(error.value)
