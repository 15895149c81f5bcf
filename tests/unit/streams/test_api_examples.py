"""Topologies as users write them, run by the test driver."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from ottla.streams import App, Context, FunctionFailed, Processor, ValueState, tumbling

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def app(spark: "SparkSession") -> App:
    return App("shop")


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def values(records: list[dict[str, Any]]) -> list[Any]:
    return [record["value"] for record in records]


def test_word_count(app: App, seed: int) -> None:
    from pyspark.sql import functions as F

    words = app.stream("lines", value="string").select(F.explode(F.split("value", " ")).alias("word"))
    words.group_by("word").count(name="word-counts").to("counts")

    with app.test(partitions=2, split=seed) as test:
        test.feed("lines", [{"value": "to be or"}, {"value": "not to be"}])
        assert test.table("counts") == {"to": {"count": 2}, "be": {"count": 2}, "or": {"count": 1}, "not": {"count": 1}}


def test_revenue_per_minute_with_late_orders(app: App) -> None:
    # The argument of the sum is computed by Spark. Late rows are written as they came.
    from pyspark.sql import functions as F

    orders = app.stream("orders", value="shop string, amount double, at timestamp", time="at")
    revenue = orders.group_by("shop").window(tumbling("1 minute", grace="10 seconds"))
    revenue.agg(F.sum(F.col("amount") * 2).alias("revenue"), name="revenue", emit="final", late="late").to("revenue")

    with app.test(partitions=1) as test:
        rows = [("a", 1.0, 1), ("a", 2.0, 59), ("b", 4.0, 69), ("a", 8.0, 58), ("b", 1.0, 70), ("a", 9.0, 2)]
        test.feed("orders", [{"shop": shop, "amount": amount, "at": at(time)} for shop, amount, time in rows])

        (final,) = test.read("revenue")
        assert final["key"] == {"shop": "a", "window_start": at(0), "window_end": at(60)}
        assert final["value"] == {"revenue": 22.0}
        (late,) = test.read("late")
        assert late["key"] == b"a"
        assert late["value"] == b'{"shop":"a","amount":9,"at":"1970-01-01T00:00:02.000000Z"}'


def test_views_enriched_by_a_changing_table(app: App) -> None:
    views = app.stream("views", value="user string, page string")
    users = app.table("users", value="name string, page string")
    views.join(users, on="user", how="left").to("enriched")

    with app.test(partitions=2) as test:
        test.feed("views", [{"user": "u", "page": "/1"}])
        test.feed("users", [{"key": "u", "name": "Ada", "page": "home"}])
        test.feed("views", [{"user": "u", "page": "/2"}])
        assert values(test.read("enriched")) == [
            {"user": "u", "page_left": "/1", "name": None, "page_right": None},
            {"user": "u", "page_left": "/2", "name": "Ada", "page_right": "home"},
        ]


def test_a_row_with_a_new_key_and_nothing_else_is_joined(app: App) -> None:
    # All columns but the key are null, as in a record without a value. But the key was made of the value.
    words = app.stream("words", value="string").select_key("value")
    meanings = app.table("meanings", value="meaning string")
    words.join(meanings).to("explained")

    with app.test(partitions=2) as test:
        test.feed("meanings", [{"key": "be", "meaning": "exist"}])
        test.feed("words", [{"value": "be"}])
        assert [record["value"]["meaning"] for record in test.read("explained")] == ["exist"]


def test_balances_by_branch_follow_the_accounts(app: App, seed: int) -> None:
    accounts = app.table("accounts", value="branch string, balance double")
    accounts.filter("balance > 0").group_by("upper(branch) as branch_name").agg(
        "sum(balance * 2) as total", "count(*) as accounts", name="totals"
    ).to("totals")

    with app.test(partitions=2, split=seed) as test:
        test.feed(
            "accounts", [{"key": "1", "branch": "a", "balance": 5.0}, {"key": "2", "branch": "a", "balance": 1.0}]
        )
        test.feed(
            "accounts", [{"key": "1", "branch": "b", "balance": 7.0}, {"key": "3", "branch": "b", "balance": -1.0}]
        )
        test.feed("accounts", [{"key": "2", "branch": "a", "balance": 3.0}])
        assert test.table("totals") == {"A": {"total": 6.0, "accounts": 1}, "B": {"total": 14.0, "accounts": 1}}


def test_a_table_is_filtered_and_mapped_with_tombstones(app: App) -> None:
    prices = app.table("prices", value="price double")
    prices.filter("price > 3").map(lambda row: {"twice": row["price"] * 2}, schema="twice double").to("twice")

    with app.test(partitions=1) as test:
        test.feed("prices", [{"key": "a", "price": 5.0}, {"key": "b", "price": 4.0}])
        test.feed("prices", [{"key": "a", "price": 2.0}, {"key": "b"}])
        assert [(each["key"], each["value"]) for each in test.read("twice")] == [
            ("a", {"twice": 10.0}),
            ("b", {"twice": 8.0}),
            ("a", None),
            ("b", None),
        ]


def test_a_new_key_is_written_beside_the_whole_value(app: App) -> None:
    orders = app.stream("orders", value="id long, customer string")
    orders.select_key("customer").to("by-customer")

    with app.test(partitions=1) as test:
        test.feed("orders", [{"id": 1, "customer": "c"}])
        (record,) = test.read("by-customer")
        assert (record["key"], record["value"]) == ("c", {"id": 1, "customer": "c"})


class Alarm(Processor):
    """Tells of the second row of a key, and asks for what is not there at the third."""

    seen = ValueState("long")

    def process(self, row: dict[str, Any], context: Context) -> list[dict[str, Any]]:
        self.seen.value = (self.seen.value or 0) + 1
        if self.seen.value == 3:
            context.schedule("1 minute")  # type: ignore[attr-defined]
        return [{"seen": self.seen.value}] if self.seen.value == 2 else []


def test_a_processor_has_no_wall_clock(app: App) -> None:
    payments = app.stream("payments", value="card string, amount double")
    payments.group_by("card").process(Alarm, schema="card string, seen long", name="alarm").to("alarms")

    with app.test(partitions=1) as test:
        test.feed("payments", [{"card": "a", "amount": 1.0}, {"card": "a", "amount": 1.0}])
        assert values(test.read("alarms")) == [{"card": "a", "seen": 2}]
        with pytest.raises(FunctionFailed, match="wall-clock timers: not supported yet"):
            test.feed("payments", [{"card": "a", "amount": 1.0}])
