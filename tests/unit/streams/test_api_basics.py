"""App, sources, and the steps from topic to topic: which nodes they make, and with which columns."""

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ottla.streams import App
from ottla.streams.graph import Aggregate, BuiltInAggregate, ColumnStep, FunctionStep, Rekey, Sink, Source, walk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDER = "id long, shop string, amount double, at timestamp"


@pytest.fixture
def app(spark: "SparkSession") -> App:
    return App("shop")


def test_a_source_has_the_columns_of_its_key_and_its_value(app: App) -> None:
    orders = app.stream("orders", key="string", value=ORDER, time="at")

    assert orders.columns == ["key", "id", "shop", "amount", "at"]
    assert orders.key_columns == ("key",)
    assert orders.schema.field("at").type == pa.timestamp("us", "UTC")
    assert isinstance(orders.node, Source)
    assert (orders.node.topic, orders.node.time, orders.node.is_table) == ("orders", "at", False)


def test_a_value_of_one_type_is_the_column_value(app: App) -> None:
    assert app.stream("lines", value="string").columns == ["key", "value"]


def test_a_key_of_several_fields_makes_several_columns(app: App) -> None:
    visits = app.table("visits", key="user string, page string", value="seconds long")

    assert (visits.columns, visits.key_columns) == (["user", "page", "seconds"], ("user", "page"))


def test_word_count_is_a_chain_of_nodes(app: App) -> None:
    from pyspark.sql import functions as F

    words = app.stream("lines", value="string").select(F.explode(F.split("value", " ")).alias("word"))
    words.group_by("word").count(name="word-counts").to("counts")

    counts, sink = app.nodes
    assert [type(node) for node in walk([sink])] == [Source, ColumnStep, Rekey, Aggregate, Sink]
    assert isinstance(counts, Aggregate)
    assert counts.name == "word-counts"
    assert counts.columns == pa.schema([("word", pa.string()), ("count", pa.int64())])
    assert counts.aggregation == (BuiltInAggregate("count", None, "count"),)
    assert counts.key == ("word",)
    assert isinstance(sink, Sink)
    assert (sink.topic, sink.key_format.kind, sink.value_format.kind) == ("counts", "string", "json")


def test_an_aggregate_is_taken_apart_into_its_function_and_its_argument(app: App) -> None:
    from pyspark.sql import functions as F

    orders = app.stream("orders", value=ORDER)
    table = orders.group_by("shop").agg(
        F.sum(F.col("amount") * 2).alias("revenue"), F.max("at"), F.count("*").alias("orders"), name="revenue"
    )

    node = table.node
    assert isinstance(node, Aggregate)
    assert node.aggregation == (
        BuiltInAggregate("sum", "revenue", "revenue", pa.float64()),
        BuiltInAggregate("max", "at", "max(at)", pa.timestamp("us", "UTC")),
        BuiltInAggregate("count", None, "orders", pa.int64()),
    )
    assert table.columns == ["shop", "revenue", "max(at)", "orders"]
    assert node.inputs[0].columns.names == ["shop", "revenue", "at"], "an exchange carries only what is aggregated"


def test_a_filter_is_a_column_an_sql_text_or_a_function(app: App) -> None:
    orders = app.stream("orders", value=ORDER)

    by_column = orders.filter(orders.amount > 3)
    by_text = orders.filter("amount > 3 and shop is not null")
    by_function = orders.filter(lambda row: row["amount"] > 3)

    assert [type(each.node) for each in (by_column, by_text)] == [ColumnStep, ColumnStep]
    assert isinstance(by_function.node, FunctionStep)
    assert by_function.node.kind == "filter"
    assert all(each.columns == orders.columns for each in (by_column, by_text, by_function))


def test_a_function_returns_rows_of_a_schema_and_keeps_the_key(app: App) -> None:
    lines = app.stream("lines", key="string", value="string")
    lengths = lines.map(lambda row: {"length": len(row["value"])}, schema="length int")

    assert lengths.schema == pa.schema([("key", pa.string()), ("length", pa.int32())])
    assert isinstance(lengths.node, FunctionStep)
    assert lengths.node.function({"key": "a", "value": "hello"}) == {"key": "a", "length": 5}
