"""Groups and windows: which aggregates there are, what their tables look like, and what is refused."""

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ottla.streams import App, TopologyError, hopping, session, sliding, tumbling
from ottla.streams.graph import Aggregate, BuiltInAggregate, PythonAggregate, Reduce, Rekey

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.streams import Stream, Table

TIME = pa.timestamp("us", "UTC")


@pytest.fixture
def app(spark: "SparkSession") -> App:
    return App("shop")


@pytest.fixture
def orders(app: App) -> "Stream":
    return app.stream("orders", value="id long, shop string, amount double, at timestamp", time="at")


@pytest.fixture
def accounts(app: App) -> "Table":
    return app.table("accounts", value="branch string, balance double")


def aggregate_of(table: "Table") -> Aggregate:
    assert isinstance(table.node, Aggregate)
    return table.node


def test_windows_are_a_part_of_the_key(orders: "Stream") -> None:
    from pyspark.sql import functions as F

    window = tumbling("1 minute", grace="30 seconds", close_idle="10 seconds")
    table = (
        orders.group_by("shop")
        .window(window)
        .agg(F.sum("amount").alias("revenue"), name="revenue", emit="final", late="orders-late")
    )

    node = aggregate_of(table)
    assert table.key_columns == ("shop", "window_start", "window_end")
    assert table.schema == pa.schema(
        [("shop", pa.string()), ("window_start", TIME), ("window_end", TIME), ("revenue", pa.float64())]
    )
    assert (node.window, node.emit, node.late_topic, node.close_idle_ms) == (window, "final", "orders-late", 10_000)
    assert node.inputs[0].columns.names == ["shop", "key", "id", "amount", "at"], "late rows are written whole"


def test_groups_by_the_key_need_no_exchange(app: App) -> None:
    lines = app.stream("lines", key="string", value="string")

    assert aggregate_of(lines.group_by_key().count(name="lines")).inputs == (lines.node,)


def test_a_group_can_be_computed(orders: "Stream") -> None:
    from pyspark.sql import functions as F

    table = orders.group_by(F.upper("shop").alias("name"), "year(at) as year").count(name="by-year")

    assert table.schema == pa.schema([("name", pa.string()), ("year", pa.int32()), ("count", pa.int64())])
    assert isinstance(aggregate_of(table).inputs[0], Rekey)


def test_python_reduces_and_aggregates(orders: "Stream") -> None:
    def larger(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        return max(one, other, key=lambda row: float(row["amount"]))

    largest = orders.group_by("shop").reduce(larger, name="largest")
    assert largest.columns == ["shop", "key", "id", "amount", "at"]
    assert aggregate_of(largest).aggregation == Reduce(larger)

    aggregation = aggregate_of(
        orders.group_by("shop").aggregate(dict, larger, schema="amount double, id long", name="python")
    ).aggregation
    assert aggregation == PythonAggregate(dict, larger)


def test_aggregates_can_be_sql_texts(orders: "Stream") -> None:
    table = orders.group_by("shop").agg(
        "sum(amount) as total", "count(*) as orders", "mean(amount)", "last(id)", name="sums"
    )

    assert aggregate_of(table).aggregation == (
        BuiltInAggregate("sum", "amount", "total", pa.float64()),
        BuiltInAggregate("count", None, "orders", pa.int64()),
        BuiltInAggregate("avg", "amount", "mean(amount)", pa.float64()),
        BuiltInAggregate("last", "id", "last(id)", pa.int64()),
    )


@pytest.mark.parametrize(
    ("aggregate", "reason"),
    [
        ("stddev(amount)", "stddev cannot be merged from parts"),
        ("sum(distinct amount)", "DISTINCT needs all rows"),
        ("sum(amount) filter (where amount > 3)", "use F.when"),
        ("last(amount) ignore nulls", "last does not ignore nulls"),
        ("sum(amount) + 1", "is not one aggregate"),
        ("amount", "an aggregate needs a group|is not one aggregate"),
        ("first(amount, true)", "first does not ignore nulls"),
        ("sum(amont)", "there is no column `amont`; there are key, id, shop, amount, at"),
        ("sum(shop) +", "Syntax error"),
    ],
)
def test_other_aggregates_are_refused_with_those_that_work(orders: "Stream", aggregate: str, reason: str) -> None:
    with pytest.raises(TopologyError, match=reason) as error:
        orders.group_by("shop").agg(aggregate, name="sums")
    assert "\n" not in str(error.value)


def test_tables_take_changed_rows_back(accounts: "Table") -> None:
    from pyspark.sql import functions as F

    table = accounts.group_by("branch").agg(F.sum("balance").alias("total"), F.count("*").alias("n"), name="totals")

    node = aggregate_of(table)
    assert node.inputs[0].is_table
    assert node.inputs[0].key == ("branch",)


@pytest.mark.parametrize("function", ["min", "max", "first", "collect_list"])
def test_what_cannot_be_taken_back_is_refused_over_tables(accounts: "Table", function: str) -> None:
    with pytest.raises(TopologyError, match=f"{function} cannot be taken back .* These work: count, sum, avg"):
        accounts.group_by("branch").agg(f"{function}(balance) as x", name="x")


def test_python_aggregates_over_tables_need_a_way_back(accounts: "Table") -> None:
    def add(value: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
        return {"total": value["total"] + row["balance"]}

    with pytest.raises(TopologyError, match="it needs subtract="):
        accounts.group_by("branch").reduce(add, None, name="x")  # type: ignore[arg-type]
    aggregation = aggregate_of(
        accounts.group_by("branch").aggregate(dict, add, add, schema="total double", name="x")
    ).aggregation
    assert aggregation == PythonAggregate(dict, add, add)


def test_sessions_in_python_need_a_merge(orders: "Stream") -> None:
    groups = orders.group_by("shop").window(session("5 minutes"))

    with pytest.raises(TopologyError, match="aggregate: it needs merge="):
        groups.aggregate(dict, lambda value, _: value, schema="n long", name="x")
    groups.count(name="sessions")


def test_windows_over_updates_of_a_table_are_refused(orders: "Stream", accounts: "Table") -> None:
    minute = tumbling("1 minute")
    with pytest.raises(TopologyError, match="windows over a table's updates: not supported yet"):
        accounts.group_by("branch").window(minute)
    with pytest.raises(TopologyError, match="windows over a table's updates"):
        orders.group_by("shop").count(name="counts").to_stream().filter("count > 1").group_by_key().window(minute)
    with pytest.raises(TopologyError, match="windows over a table's updates"):
        accounts.window(minute)

    final = orders.group_by("shop").window(minute).count(name="per-minute", emit="final").filter("count > 1")
    hours = final.to_stream().group_by("shop").window(tumbling("1 hour")).agg("sum(count) as n", name="per-hour")
    assert hours.key_columns == ("shop", "window_start", "window_end")


def test_names_are_mandatory_unique_and_valid(orders: "Stream") -> None:
    groups = orders.group_by("shop")
    groups.count(name="counts")

    with pytest.raises(TopologyError, match="the name 'counts' is taken by count; choose another"):
        groups.count(name="counts")
    with pytest.raises(TopologyError, match="count: state needs a name"):
        groups.count(name="")
    with pytest.raises(TopologyError, match="count: it needs name="):
        groups.count()  # type: ignore[call-arg]
    with pytest.raises(TopologyError, match="count: name: 'all counts' cannot name a topic"):
        groups.count(name="all counts")
    with pytest.raises(TopologyError, match="ends like the name of an internal topic"):
        groups.count(name="my-changelog")


def test_choices_of_a_window_are_checked(orders: "Stream") -> None:
    groups = orders.group_by("shop")
    with pytest.raises(TopologyError, match="none of tumbling"):
        groups.window("1 minute")  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="emit='end': it can be 'update' or 'final'"):
        groups.window(hopping("1 minute", "10 seconds")).count(name="x", emit="end")
    with pytest.raises(TopologyError, match="count: late: 'a b' cannot name a topic"):
        groups.window(tumbling(1000)).count(name="x", late="a b")
    with pytest.raises(TopologyError, match=r"sliding windows: not supported yet \(use hopping"):
        groups.window(sliding("1 minute"))
    with pytest.raises(TopologyError, match="cogroup: not supported yet"):
        groups.cogroup()
    with pytest.raises(TopologyError, match="a column 'window_start', which is one of the window"):
        orders.with_columns(window_start="at").group_by("window_start").window(tumbling(1000))


def test_a_group_has_columns_that_exist_and_that_can_be_a_key(orders: "Stream") -> None:
    with pytest.raises(TopologyError, match="group_by-1: there is no column 'shops'; there are key, id"):
        orders.group_by("shops")
    with pytest.raises(TopologyError, match="a key is made of simple columns"):
        orders.group_by("array(id) as ids")
    with pytest.raises(TopologyError, match="it needs at least one column"):
        orders.group_by()
    with pytest.raises(TopologyError, match="is not a function"):
        orders.group_by("shop").reduce("sum", name="x")  # type: ignore[arg-type]
