"""Joins of streams and tables: which node each one makes, how columns are named, and what does not fit together."""

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ottla.streams import App, TopologyError
from ottla.streams.graph import ForeignKeyJoin, Rekey, StreamJoin, StreamTableJoin, TableJoin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def app(spark: "SparkSession") -> App:
    return App("shop")


def test_a_stream_joins_a_table_by_a_column(app: App) -> None:
    views = app.stream("views", value="user_id string, page string, at timestamp", time="at")
    users = app.table("users", key="string", value="name string, page string")

    joined = views.join(users, on="user_id", how="left")

    node = joined.node
    assert isinstance(node, StreamTableJoin)
    assert isinstance(node.inputs[0], Rekey)
    assert (node.name, node.how, node.key, node.is_table) == ("join-users", "left", ("user_id",), False)
    assert joined.columns == ["user_id", "key", "page_left", "at", "name", "page_right"]
    assert node.left_columns == {"key": "key", "page": "page_left", "at": "at"}
    assert node.right_columns == {"name": "name", "page": "page_right"}


def test_two_streams_are_joined_within_a_window(app: App) -> None:
    clicks = app.stream("clicks", key="string", value="page string")
    sales = app.stream("sales", key="string", value="amount double")

    node = clicks.join(sales, within="5 minutes", grace="10 seconds", name="bought").node
    assert isinstance(node, StreamJoin)
    assert (node.before_ms, node.after_ms, node.grace_ms, node.how) == (300_000, 300_000, 10_000, "inner")

    node = clicks.join(sales, after="1 minute", how="left", close_idle="1 hour", name="bought-after").node
    assert isinstance(node, StreamJoin)
    assert (node.before_ms, node.after_ms, node.how, node.close_idle_ms) == (0, 60_000, "left", 3_600_000)


def test_columns_on_which_two_streams_are_joined_become_the_key_of_both(app: App) -> None:
    clicks = app.stream("clicks", value="user string, page string")
    sales = app.stream("sales", value="amount double, user string")

    node = clicks.join(sales, on="user", within="5 minutes", name="bought").node

    assert [each.key for each in node.inputs] == [("user",), ("user",)]
    assert node.columns.names == ["user", "key_left", "page", "key_right", "amount"]


def test_two_tables_are_joined_by_their_key(app: App) -> None:
    prices = app.table("prices", value="price double")
    stock = app.table("stock", value="pieces int")

    joined = prices.join(stock, how="outer", name="offers")

    assert isinstance(joined.node, TableJoin)
    assert joined.node.is_table
    assert joined.schema == pa.schema([("key", pa.string()), ("price", pa.float64()), ("pieces", pa.int32())])
    assert joined.node in app.nodes


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_table_joins_another_by_a_foreign_key(app: App, how: str) -> None:
    orders = app.table("orders", key="long", value="customer_id string, amount double")
    customers = app.table("customers", value="name string")

    joined = orders.join(customers, on=orders.customer_id, how=how, name="order-view")

    assert isinstance(joined.node, ForeignKeyJoin)
    assert (joined.node.foreign_key, joined.node.how) == (("customer_id",), how)
    assert joined.key_columns == ("key",)
    assert joined.columns == ["key", "customer_id", "amount", "name"]


def test_keys_of_different_types_are_not_joined(app: App) -> None:
    orders = app.stream("orders", value="customer long, amount double")
    customers = app.table("customers", value="name string")

    with pytest.raises(TopologyError, match="'customer' of the left side is int64, 'key' of the right side is string"):
        orders.join(customers, on="customer")
    with pytest.raises(TopologyError, match="cast one of them with with_columns"):
        app.table("orders-by-id", key="long", value="customer long").join(customers, on="customer", name="x")
    orders.with_columns(customer="cast(customer as string)").join(customers, on="customer")


def test_keys_with_different_numbers_of_columns_are_not_joined(app: App) -> None:
    visits = app.stream("visits", key="user string, page string", value="seconds long")
    users = app.table("users", value="name string")

    with pytest.raises(TopologyError, match=r"has the key \(user, page\), the right side \(key\)"):
        visits.join(users)


def test_joins_that_do_not_exist_are_refused_by_name(app: App) -> None:
    clicks = app.stream("clicks", key="string", value="page string")
    sales = app.stream("sales", key="string", value="amount double")
    users = app.table("users", value="name string")
    orders = app.table("orders", value="user string")

    with pytest.raises(TopologyError, match="outer joins of two streams: not supported yet"):
        clicks.join(sales, within=1000, how="outer", name="x")
    with pytest.raises(TopologyError, match="as-of joins: not supported yet"):
        clicks.join(users, as_of="at")
    with pytest.raises(TopologyError, match="how='outer': it can be 'inner' or 'left'"):
        clicks.join(users, how="outer")
    with pytest.raises(TopologyError, match="how='outer': it can be 'inner' or 'left'"):
        orders.join(users, on="user", how="outer", name="x")
    with pytest.raises(TopologyError, match="how='right': it can be 'inner' or 'left' or 'outer'"):
        orders.join(users, how="right", name="x")


def test_a_join_of_streams_needs_a_window_and_a_name(app: App) -> None:
    clicks = app.stream("clicks", key="string", value="page string")
    sales = app.stream("sales", key="string", value="amount double")

    with pytest.raises(TopologyError, match="within='5 minutes'"):
        clicks.join(sales, name="x")
    with pytest.raises(TopologyError, match="either within or the two"):
        clicks.join(sales, within=1, before=2, name="x")
    with pytest.raises(TopologyError, match="state needs a name"):
        clicks.join(sales, within="5 minutes")
    with pytest.raises(TopologyError, match="'soon' is not a duration"):
        clicks.join(sales, within="soon", name="x")


def test_a_second_join_with_the_same_table_needs_a_name(app: App) -> None:
    views = app.stream("views", key="string", value="page string")
    users = app.table("users", value="name string")

    views.join(users)
    with pytest.raises(TopologyError, match="the name 'join-users' is taken by join; choose another"):
        views.join(users)
    views.join(users, name="again")


def test_sides_of_two_apps_are_not_joined(app: App) -> None:
    views = app.stream("views", key="string", value="page string")
    users = App("other").table("users", value="name string")

    with pytest.raises(TopologyError, match="make both with the same App"):
        views.join(users)


def test_a_table_does_not_join_a_stream(app: App) -> None:
    users = app.table("users", value="name string")
    views = app.stream("views", key="string", value="page string")

    with pytest.raises(TopologyError, match=r"stream\.join\(table\)"):
        users.join(views, name="x")  # type: ignore[arg-type]


def test_renamed_columns_that_collide_are_refused(app: App) -> None:
    left = app.table("left", value="a int, a_right int")
    right = app.table("right", value="a int")

    with pytest.raises(TopologyError, match="there are two columns 'a_right'; rename one"):
        left.join(right, name="x")
