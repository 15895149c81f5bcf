"""Steps that keep no state: what they do to the rows, computed by Spark on a few rows, and what is refused."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ottla.streams import App, Context, Processor, TopologyError
from ottla.streams.graph import (
    ColumnStep,
    FunctionStep,
    Merge,
    Output,
    Process,
    Rekey,
    Repartition,
    Sink,
    ToStream,
    walk,
)
from ottla.streams.rows import DELETED, HEADERS, OFFSET, ORDER, TIMESTAMP, TOPIC, stream_schema, table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.streams import Stream, Table
    from ottla.streams.relation import Relation


@pytest.fixture
def app(spark: "SparkSession") -> App:
    return App("shop")


@pytest.fixture
def orders(app: App) -> "Stream":
    return app.stream("orders", key="string", value="shop string, amount double, tags array<string>")


@pytest.fixture
def prices(app: App) -> "Table":
    return app.table("prices", value="price double, name string")


def compute(app: App, relation: "Relation", rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the last step of a relation makes of these rows. Columns that they lack are null."""
    node = relation.node
    assert isinstance(node, ColumnStep)
    before = node.inputs[0]
    schema = table_schema(before.columns, before.key) if before.is_table else stream_schema(before.columns)
    table = pa.table({field.name: pa.array([row.get(field.name) for row in rows], field.type) for field in schema})
    result = node.apply(app.spark.createDataFrame(table)).toArrow()
    expected = table_schema(node.columns, node.key) if node.is_table else stream_schema(node.columns)
    assert result.schema.names == expected.names
    found: list[dict[str, Any]] = result.to_pylist()
    return found


def test_a_filter_keeps_rows_for_which_the_condition_holds(app: App, orders: "Stream") -> None:
    rows: list[dict[str, Any]] = [
        {"shop": "a", "amount": 1.0},
        {"shop": "b", "amount": 5.0},
        {"shop": "c", "amount": None},
    ]
    found = compute(app, orders.filter("amount > 3"), rows)
    assert [row["shop"] for row in found] == ["b"]


def test_a_select_keeps_the_key_and_our_columns(app: App, orders: "Stream") -> None:
    from pyspark.sql import functions as F

    selected = orders.select(F.explode("tags").alias("tag"), "amount * 2 as twice")
    rows: list[dict[str, Any]] = [{"key": "k", "amount": 2.0, "tags": ["x", "y"], ORDER: 7, OFFSET: 3}]

    found = compute(app, selected, rows)

    assert selected.columns == ["key", "tag", "twice"]
    assert [(row["key"], row["tag"], row["twice"], row[ORDER], row[OFFSET]) for row in found] == [
        ("k", "x", 4.0, 7, 3),
        ("k", "y", 4.0, 7, 3),
    ]


def trace_steps(app: App, *relations: "Relation") -> tuple[set[str], set[str]]:
    """The columns, ours among them, that the steps read, and those that they do not pass on."""
    from ottla.streams.columns import trace

    nodes = [each.node for each in relations]
    before = nodes[0].inputs[0]
    schema = table_schema(before.columns, before.key) if before.is_table else stream_schema(before.columns)
    names, frame = {*schema.names}, app.spark.createDataFrame(schema.empty_table())
    found = trace(frame, [node.apply for node in nodes if isinstance(node, ColumnStep)])
    return names.difference(found.unread), names.difference(found.passed)


def test_columns_go_to_spark_if_a_step_reads_them_and_come_back_if_one_makes_them(app: App, orders: "Stream") -> None:
    from pyspark.sql import functions as F

    kept = orders.filter("amount > 3")
    assert trace_steps(app, kept) == ({"amount"}, set())
    exploded = kept.select("shop", F.explode("tags").alias("tag"))
    assert trace_steps(app, kept, exploded) == ({"amount", "tags"}, {"amount", "tags"})
    assert trace_steps(app, orders.with_headers({"from": "shop"})) == ({"shop", HEADERS}, {HEADERS})
    timed = kept.with_timestamp("cast(amount as long)")
    assert trace_steps(app, kept, timed) == ({"amount", TIMESTAMP}, {TIMESTAMP})
    assert trace_steps(app, orders.filter(F.col(OFFSET) > 3)) == ({OFFSET}, set())
    swapped = orders.select(F.col("key").alias("shop"), "amount")
    assert trace_steps(app, swapped) == ({"key"}, {"shop", "tags"})


def test_columns_of_a_table_that_nothing_is_computed_of_do_not_go_to_spark(app: App) -> None:
    from pyspark.sql import functions as F

    table = app.table("newest", key="string", value="shop string, amount double")
    added = table.with_columns(letter=F.substring("key", 1, 1))
    assert trace_steps(app, added) == ({"key", DELETED}, set())
    assert trace_steps(app, added, added.select("shop", "letter")) == ({"key", DELETED}, {"amount"})


def test_steps_make_the_same_without_the_columns_that_they_do_not_read(app: App, orders: "Stream") -> None:
    from pyspark.sql.pandas.types import from_arrow_schema

    from ottla.streams.columns import apply_to_fewer

    kept = orders.filter("amount > 3").with_columns(twice="amount * 2")
    steps = [node.apply for node in walk([kept.node]) if isinstance(node, ColumnStep)]
    rows = pa.table({"amount": [2.0, 5.0], ORDER: [0, 1]})
    schema = from_arrow_schema(stream_schema(orders.node.columns))
    found = apply_to_fewer(app.spark.createDataFrame(rows), steps, schema, ["twice", ORDER])
    assert found.toArrow().to_pylist() == [{"twice": 10.0, ORDER: 1}]


def test_a_star_stands_for_the_columns_of_the_value(orders: "Stream") -> None:
    assert orders.select("*", "amount * 2 as twice").columns == ["key", "shop", "amount", "tags", "twice"]
    assert orders.select("key", "shop").columns == ["key", "shop"]


def test_our_columns_can_be_read(app: App, orders: "Stream") -> None:
    selected = orders.select("_topic as topic", "_offset as offset", "_timestamp as time")
    (found,) = compute(app, selected, [{TOPIC: "orders", OFFSET: 4, TIMESTAMP: 9}])
    assert (found["topic"], found["offset"], found["time"]) == ("orders", 4, 9)


def test_columns_are_added_replaced_and_dropped(orders: "Stream") -> None:
    assert orders.with_columns(amount="cast(amount as int)", new="1").schema == pa.schema(
        [
            ("key", pa.string()),
            ("shop", pa.string()),
            ("tags", pa.list_(pa.string())),
            ("amount", pa.int32()),
            ("new", pa.int32()),
        ]
    )
    assert orders.drop("tags", "shop").columns == ["key", "amount"]


def test_a_filter_of_a_table_deletes_rows_that_do_not_pass(app: App, prices: "Table") -> None:
    rows: list[dict[str, Any]] = [
        {"key": "a", "price": 5.0, "name": "x", DELETED: False},
        {"key": "b", "price": 1.0, "name": "y", DELETED: False},
        {"key": "c", "price": None, "name": "z", DELETED: False},
        {"key": "d", DELETED: True},
    ]
    found = compute(app, prices.filter("price > 3"), rows)
    assert [(row["key"], row["price"], row["name"], row[DELETED]) for row in found] == [
        ("a", 5.0, "x", False),
        ("b", None, None, True),
        ("c", None, None, True),
        ("d", None, None, True),
    ]


def test_a_deleted_row_of_a_table_has_no_value_after_a_select(app: App, prices: "Table") -> None:
    rows: list[dict[str, Any]] = [{"key": "a", "price": 2.0, DELETED: False}, {"key": "b", DELETED: True}]
    selected = prices.select("coalesce(price, 0) as price", "1 as one")
    found = compute(app, selected, rows)
    assert [(row["key"], row["price"], row["one"]) for row in found] == [("a", 2.0, 1), ("b", None, None)]


def test_branches_get_each_row_once(app: App, orders: "Stream") -> None:
    rows: list[dict[str, Any]] = [{"shop": str(amount), "amount": amount} for amount in (200.0, 50.0, -1.0, None)]

    branches = orders.branch("amount > 100", "amount > 0")

    assert [[row["amount"] for row in compute(app, each, rows)] for each in branches] == [[200.0], [50.0], [-1.0, None]]


def test_branches_by_functions_get_each_row_once(orders: "Stream") -> None:
    branches = orders.branch(lambda row: row["amount"] > 100, lambda row: row["amount"] > 0)

    found = []
    for each in branches:
        assert isinstance(each.node, FunctionStep)
        found.append([amount for amount in (200, 50, -1) if each.node.function({"amount": amount})])
    assert found == [[200], [50], [-1]]
    with pytest.raises(TopologyError, match="branch-2: either all conditions are functions, or none"):
        orders.branch("amount > 100", lambda row: row["amount"] > 0)


def test_the_time_of_rows_can_be_set(app: App, orders: "Stream") -> None:
    from pyspark.sql import functions as F

    rows: list[dict[str, Any]] = [{"amount": 3.0, TIMESTAMP: 1}, {"amount": None, TIMESTAMP: 2}]
    found = compute(app, orders.with_timestamp(F.timestamp_seconds("amount")), rows)
    assert [row[TIMESTAMP] for row in found] == [3000, 2]
    found = compute(app, orders.with_timestamp("cast(amount as long)"), rows)
    assert [row[TIMESTAMP] for row in found] == [3, 2]
    with pytest.raises(TopologyError, match="with_timestamp-3: amount is double; it must be a timestamp"):
        orders.with_timestamp("amount")


def test_headers_can_be_set_and_removed(app: App, orders: "Stream") -> None:
    step = orders.with_headers({"shop": "shop", "old": None, "fixed": b"\x00\x01", "missing": "cast(null as string)"})
    headers = [{"key": "old", "value": b"1"}, {"key": "kept", "value": b"2"}, {"key": "shop", "value": b"3"}]

    found = compute(app, step, [{"shop": "a", HEADERS: headers}, {"shop": "b", HEADERS: None}])

    assert [[(each["key"], each["value"]) for each in row[HEADERS]] for row in found] == [
        [("kept", b"2"), ("shop", b"a"), ("fixed", b"\x00\x01")],
        [("shop", b"b"), ("fixed", b"\x00\x01")],
    ]


def test_streams_with_the_same_columns_are_merged(app: App, orders: "Stream") -> None:
    other = app.stream("more", key="string", value="amount double, shop string, tags array<string>")

    merged = orders.merge(other)

    assert isinstance(merged.node, Merge)
    assert merged.node.inputs == (orders.node, other.node)
    with pytest.raises(TopologyError, match=r"merge-2: stream 'orders' has .* make them equal with select"):
        orders.merge(orders.drop("tags"))
    with pytest.raises(TopologyError, match="make them equal"):
        orders.merge(orders.select_key("shop"))


def test_a_new_key_comes_first_and_the_old_one_stays_as_a_value(orders: "Stream") -> None:
    keyed = orders.select_key("shop")
    assert isinstance(keyed.node, Rekey)
    assert (keyed.columns, keyed.key_columns) == (["shop", "key", "amount", "tags"], ("shop",))

    computed = orders.select_key("upper(shop) as name", "amount")
    assert (computed.columns, computed.key_columns) == (["name", "amount", "key", "shop", "tags"], ("name", "amount"))
    assert orders.select_key("key").node is orders.node, "nothing changes"


def test_a_new_key_leaves_the_value_as_it_is(app: App, orders: "Stream") -> None:
    users = app.table("users", value="name string, amount double")

    keyed = orders.select_key("shop")
    assert keyed.value_columns == ("shop", "amount", "tags"), "a column can be a part of both"
    assert orders.select_key("upper(shop) as name").value_columns == ("shop", "amount", "tags")
    assert keyed.select("*", "key").value_columns == ("shop", "amount", "tags", "key"), "the key before can be selected"
    assert keyed.select("amount").value_columns == ("amount",)
    assert keyed.filter("amount > 1").with_columns(x="1").drop("tags").value_columns == ("shop", "amount", "x")
    assert keyed.map(lambda row: row, schema="n int").value_columns == ("n",)
    assert keyed.join(users).value_columns == ("shop", "amount_left", "tags", "name", "amount_right")
    assert keyed.to_table(name="newest").to_stream().value_columns == ("shop", "amount", "tags")
    assert keyed.group_by_key().count(name="counts").value_columns == ("count",)
    assert orders.group_by("shop").reduce(lambda one, _: one, name="reduced").value_columns == (
        "shop",
        "amount",
        "tags",
    )


def test_columns_are_found_by_name_even_if_they_are_called_key_or_value(app: App) -> None:
    lines = app.stream("lines", value="string")
    assert [str(each) for each in (lines.key, lines.value, lines["value"])] == [
        "Column<'key'>",
        "Column<'value'>",
        "Column<'value'>",
    ]


def test_an_exchange_can_be_asked_for(orders: "Stream") -> None:
    node = orders.select_key("shop").repartition(name="by-shop", partitions=7).node
    assert isinstance(node, Repartition)
    assert (node.name, node.partitions) == ("by-shop", 7)
    with pytest.raises(TopologyError, match="partitions=0"):
        orders.repartition(name="x", partitions=0)


def test_a_stream_becomes_a_table_and_a_table_a_stream(app: App, orders: "Stream") -> None:
    table = orders.to_table(name="latest")
    assert table.node in app.nodes
    stream = table.to_stream()
    assert isinstance(stream.node, ToStream)
    assert not stream.node.is_table
    assert stream.columns == orders.columns


def test_a_function_that_peeks_has_an_effect(app: App, orders: "Stream") -> None:
    peeked = orders.peek(lambda row: None)
    assert app.nodes == [peeked.node]


class Counter(Processor):
    def process(self, row: dict[str, Any], context: Context) -> None:
        return None


def test_a_processor_has_a_main_output_and_others(app: App, orders: "Stream") -> None:
    processed = orders.group_by("shop").process(
        Counter, schema="shop string, n long", name="counter", outputs={"audit": "text string"}
    )

    node = processed.node
    assert isinstance(node, Process)
    assert node.inputs[0].key == ("shop",)
    assert processed.columns == ["shop", "n"]
    audit = processed.output("audit")
    assert isinstance(audit.node, Output)
    assert (audit.columns, audit.key_columns, audit.node.inputs) == (["shop", "text"], ("shop",), (node,))
    with pytest.raises(TopologyError, match="counter: there is no output 'audits'; there are audit"):
        processed.output("audits")
    with pytest.raises(TopologyError, match=r"output: stream 'orders' is no processor"):
        orders.output("audit")
    with pytest.raises(TopologyError, match=r"is not a subclass of ottla.streams.Processor"):
        orders.process(lambda row: row, schema="n long", name="x")  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="the key's column 'key' is string and stays so; the schema says int64"):
        orders.process(Counter, schema="key long", name="x")


def test_functions_keep_the_key(orders: "Stream") -> None:
    def function(row: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"n": 1}, {"n": 2, "key": row["key"]}]

    node = orders.flat_map(function, schema="n int").node
    assert isinstance(node, FunctionStep)
    assert node.function({"key": "a"}) == [{"n": 1, "key": "a"}, {"n": 2, "key": "a"}]

    node = orders.map(lambda row: {"key": "b", "n": 1}, schema="n int").node
    assert isinstance(node, FunctionStep)
    with pytest.raises(ValueError, match=r"changed the key's column 'key'; use select_key"):
        node.function({"key": "a"})
    node = orders.map(lambda row: [1], schema="n int").node  # type: ignore[arg-type,return-value]
    assert isinstance(node, FunctionStep)
    with pytest.raises(TypeError, match=r"returned \[1\], not a dictionary"):
        node.function({"key": "a"})


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("amont * 2", "select-1: there is no column `amont`; there are key, shop, amount, tags"),
        ("amount +", "select-1: Syntax error at or near end of input"),
        ("sum(amount)", "select-1: an aggregate needs a group; use group_by"),
        ("row_number() over (order by amount)", "window functions need all rows at once"),
        ("no_such_function(amount)", "no_such_function"),
        ("amount as _amount", "columns that begin with '_' are Ottla's; name '_amount' otherwise"),
        ("_timestamp", "name '_timestamp' otherwise"),
        ("amount as SHOP", "there are two columns 'shop' and 'SHOP'"),
        ("upper(key) as key", "there are two columns 'key'"),
        ("amount + tags", "(?i)data type mismatch"),
    ],
)
def test_wrong_columns_are_refused_in_one_line(orders: "Stream", expression: str, reason: str) -> None:
    with pytest.raises(TopologyError, match=reason) as error:
        orders.select("shop", expression)
    assert "\n" not in str(error.value)


def test_wrong_steps_are_refused_in_one_line(orders: "Stream", prices: "Table") -> None:
    with pytest.raises(TopologyError, match=r"filter-1: .* is not a boolean"):
        orders.filter("amount")
    with pytest.raises(TopologyError, match="filter-2: 3 is neither a Column nor an SQL text"):
        orders.filter(3)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match=r"explode\(\) and the like make several rows of one"):
        prices.select("explode(array(1, 2)) as n")
    with pytest.raises(TopologyError, match="'amounts'"):
        orders.drop("amounts")
    with pytest.raises(TopologyError, match=r"drop-2: 'key' is a column of the key; .* select_key"):
        orders.drop("key")
    with pytest.raises(TopologyError, match="'key' is the key; name the new column otherwise"):
        orders.with_columns(key="upper(key)")
    with pytest.raises(TopologyError, match=r"map-1: schema='n integers': .* there is no type 'integers'"):
        orders.map(lambda row: row, schema="n integers")
    with pytest.raises(TopologyError, match="map-2: function='abc' is not a function"):
        orders.map("abc", schema="n int")  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="Stream has no method and no column 'amounts'"):
        _ = orders.amounts


def test_the_topic_of_a_row_can_be_computed(app: App, orders: "Stream") -> None:
    from pyspark.sql import functions as F

    orders.to(F.concat(F.lit("orders-"), "shop"))
    orders.to(orders.shop)

    computed, plain = app.nodes
    assert isinstance(computed, Sink)
    assert isinstance(plain, Sink)
    assert (computed.topic, computed.topic_column) == (None, "topic")
    assert [field.name for field in computed.value_format.type or ()] == ["shop", "amount", "tags"]
    assert (plain.topic, plain.topic_column) == (None, "shop")
    with pytest.raises(TopologyError, match="'amount' is double; names of topics are strings"):
        orders.to(orders.amount)
