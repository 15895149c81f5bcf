"""Sources and sinks: columns, formats, and topics that an app both reads and writes."""

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ottla.streams import App, TopologyError
from ottla.streams.formats import avro, json
from ottla.streams.graph import Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AVRO = (
    '{"type": "record", "name": "User", "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]}'
)


@pytest.fixture
def app(spark: "SparkSession") -> App:
    return App("shop")


def last_sink(app: App) -> Sink:
    sink = app.nodes[-1]
    assert isinstance(sink, Sink)
    return sink


def test_schemas_are_sql_texts_spark_types_or_formats(app: App) -> None:
    from pyspark.sql.types import DoubleType, StringType, StructField, StructType

    struct = StructType([StructField("id", StringType(), nullable=False), StructField("amount", DoubleType())])
    expected = pa.schema([("key", pa.binary()), ("id", pa.string()), ("amount", pa.float64())])

    assert app.stream("a", value=struct).schema == expected
    assert app.stream("b", value=json("id string, amount double")).schema == expected
    assert app.stream("c", value=avro(AVRO)).columns == ["key", "id", "name"]


def test_the_column_of_the_key_can_be_named(app: App) -> None:
    users = app.table("users", value="key string, name string", key_column="user_id")
    assert (users.columns, users.key_columns) == (["user_id", "key", "name"], ("user_id",))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"value": "key string"}, r"the value has a field 'key'.* key_column="),
        ({"value": "_id string"}, "the column '_id' begins with '_'"),
        ({"value": "id string, ID string"}, "there are two columns 'id' and 'ID'"),
        ({"value": "strings"}, "value: 'strings' is no format"),
        ({"value": "id strings"}, "there is no type 'strings'"),
        ({"value": 3}, "3 is no format"),
        ({"value": "id long", "time": "at"}, "time='at': there is no such column; there are key, id"),
        ({"value": "at string", "time": "at"}, "time='at' is string; it must be a timestamp, or a long"),
        ({"value": "avro"}, "avro needs a schema"),
        ({"start": "now"}, "start='now': an app can start at 'earliest' or 'latest'"),
    ],
)
def test_wrong_sources_are_refused_in_one_line(app: App, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(TopologyError, match=f"^stream 'orders': .*{reason}") as error:
        app.stream("orders", **options)
    assert "\n" not in str(error.value)


def test_a_name_that_cannot_be_a_topic_is_refused(app: App) -> None:
    with pytest.raises(TopologyError, match="stream: 'my orders' cannot name a topic"):
        app.stream("my orders")
    with pytest.raises(TopologyError, match=r"to-1: 'a/b' cannot name a topic"):
        app.stream("orders").to("a/b")


def test_internal_topics_are_left_to_the_app(app: App) -> None:
    with pytest.raises(TopologyError, match="'shop-counts-changelog' is named like an internal topic of this app"):
        app.table("shop-counts-changelog")
    with pytest.raises(TopologyError, match="named like an internal topic"):
        app.stream("orders").to("shop-by-user-repartition")
    with pytest.raises(TopologyError, match="ends like the name of an internal topic; choose another name="):
        app.table("other-counts-changelog")
    app.table("other-counts-changelog", name="other-counts")


def test_a_topic_is_read_once(app: App) -> None:
    first = app.stream("orders", value="id long")

    assert app.stream("orders", value="id long").node is first.node
    with pytest.raises(TopologyError, match=r"stream 'orders' reads the topic 'orders' with another schema"):
        app.stream("orders", value="id string")
    with pytest.raises(TopologyError, match=r"table 'orders': stream 'orders' reads .* with another schema"):
        app.table("orders", key="binary", value="id string")
    with pytest.raises(TopologyError, match=r"already, with another time=, start= or name="):
        app.stream("orders", value="id long", start="latest")
    app.table("orders", key="binary", value="id long")


def test_a_sink_writes_simple_columns_as_serializers_do_and_others_as_json(app: App) -> None:
    app.stream("lines", key="string", value="string").filter("value is not null").to("copies")
    sink = last_sink(app)
    assert (sink.key_format.kind, sink.value_format.kind) == ("string", "string")

    visits = app.stream("visits", key="user string, page string", value="seconds long")
    visits.to("visits-2")
    sink = last_sink(app)
    assert (sink.key_format.kind, sink.value_format.kind) == ("json", "json")
    assert sink.key_format.type == pa.struct([("user", pa.string()), ("page", pa.string())])

    visits.select_key("seconds").to("visits-3")
    assert last_sink(app).key_format.kind == "long"


def test_a_sink_has_the_format_that_it_is_given(app: App) -> None:
    users = app.stream("users", key="string", value="id int, name string")

    users.to("wider", value="id long, name string")
    assert last_sink(app).value_format.type == pa.struct([("id", pa.int64()), ("name", pa.string())])
    users.to("avro", value="avro")
    assert last_sink(app).value_format.kind == "avro"
    users.to("whole", value="name string, key string, id int")
    assert last_sink(app).value_columns == ("name", "key", "id"), "a column of the key can be a part of the value"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"value": "id int"}, r"the value's schema has no field 'name'; add it, or drop\(\) the column"),
        ({"value": "id int, name string, x int"}, "the value's schema has a field 'x', but there is no such column"),
        (
            {"value": "id string, name string"},
            r"the value's schema has 'id' as string, the column is int32; cast it with with_columns\(\)",
        ),
        ({"value": "string"}, "value='string' takes one column of type string; there is id int32, name string"),
        ({"key": "long"}, "key='long' takes one column of type int64; there is key string"),
        ({"key": "id int"}, "the key's schema has no field 'key'"),
    ],
)
def test_a_format_that_does_not_fit_is_refused(app: App, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(TopologyError, match=f"^to-1: {reason}"):
        app.stream("users", key="string", value="id int, name string").to("copy", **options)


def test_a_topic_that_the_app_reads_is_written_as_it_is_read(app: App) -> None:
    orders = app.stream("orders", key="string", value="id long, amount double")
    large = app.stream("large-orders", key="string", value="id long")

    orders.filter("amount > 100").to("large-orders")
    with pytest.raises(TopologyError, match=r"to-2 writes the value of 'large-orders' as json \(amount double\)"):
        orders.select("amount").to("large-orders")
    large.to("ids")
    with pytest.raises(TopologyError, match=r"stream 'ids': to-3 writes the value of 'ids' as json \(id int64\)"):
        app.stream("ids", key="string", value="id string")
    app.stream("ids", key="string", value="id long")


def test_a_loop_must_be_meant(app: App) -> None:
    retries = app.stream("retries", key="string", value="attempt int")

    with pytest.raises(
        TopologyError, match=r"would go round for ever; write to another topic, or say allows_loop=True"
    ):
        retries.filter("attempt < 3").with_columns(attempt="attempt + 1").to("retries")
    retries.filter("attempt < 3").with_columns(attempt="attempt + 1").to("retries", allows_loop=True)


def test_a_sink_is_told_its_topic(app: App) -> None:
    with pytest.raises(TopologyError, match="to-1: 3 is neither the name of a topic nor a Column"):
        app.stream("users").to(3)  # type: ignore[arg-type]


def test_what_is_written_can_be_read_again(app: App) -> None:
    from pyspark.sql import functions as F

    users = app.stream("users", key="string", value="id long, name string")
    users.to("whole", value="name string, key string, id long")
    users.filter("name is not null").to(F.concat(F.lit("by-"), "name"))

    with app.test(partitions=1) as test:
        test.feed("users", [{"key": "a", "id": 1, "name": "x"}, {"key": "b"}])
        assert [record["value"] for record in test.read("whole")] == [{"name": "x", "key": "a", "id": 1}, None]
        assert [record["value"] for record in test.read("by-x")] == [{"id": 1, "name": "x"}]
