"""The apps of examples/streams, run by the test driver: what they write for a few records."""

import runpy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ottla.streams import App

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples/streams").glob("*.py"))

pytestmark = pytest.mark.usefixtures("spark")


def load(name: str) -> App:
    """The app of an example, made as `ottla stream run` makes it."""
    app = runpy.run_path(str(ROOT / f"examples/streams/{name}.py"))["app"]
    assert isinstance(app, App)
    return app


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def pairs(records: list[dict[str, Any]]) -> list[tuple[Any, Any]]:
    return [(record["key"], record["value"]) for record in records]


def test_every_example_is_on_the_page_and_has_a_test() -> None:
    page, tests = (ROOT / "docs/examples.md").read_text(), Path(__file__).read_text()
    names = [path.stem for path in EXAMPLES]
    assert len(names) == 6
    assert [name for name in names if f"(../examples/streams/{name}.py)" not in page] == []
    assert [name for name in names if f'load("{name}")' not in tests] == []


@pytest.mark.parametrize("split", [None, 1, 2])
def test_word_count(split: int | None) -> None:
    with load("word_count").test(split=split) as test:
        test.feed("lines", [{"value": "To be, or"}, {"value": "not to be."}, {"value": ""}])
        assert test.table("word-counts") == {
            "to": {"count": 2},
            "be": {"count": 2},
            "or": {"count": 1},
            "not": {"count": 1},
        }
        assert test.query("words").get("be") == {"word": "be", "count": 2}


def test_page_views_take_the_user_as_they_are_now() -> None:
    with load("page_views").test() as test:
        test.feed("users", [{"user": "ada", "country": "UK", "plan": "free"}])
        test.feed("views", [{"user": "ada", "page": "/1"}, {"user": "eve", "page": "/2"}])
        test.feed("users", [{"user": "ada", "country": "FR", "plan": "paid"}])
        test.feed("views", [{"user": "ada", "page": "/3"}])
        assert sorted(pairs(test.read("views-enriched")), key=lambda pair: pair[1]["page"]) == [
            ("ada", {"user": "ada", "page": "/1", "country": "UK", "plan": "free"}),
            ("eve", {"user": "eve", "page": "/2", "country": None, "plan": None}),
            ("ada", {"user": "ada", "page": "/3", "country": "FR", "plan": "paid"}),
        ]


def test_revenue_of_a_minute_is_written_once() -> None:
    def order(shop: str, price: float, pieces: int, seconds: int) -> dict[str, Any]:
        return {"shop": shop, "price": price, "pieces": pieces, "at": at(seconds)}

    with load("revenue").test(partitions=1) as test:
        test.feed("orders", [order("a", 2.0, 3, 5), order("b", 4.0, 1, 59), order("a", 1.0, 1, 69)])
        test.feed("orders", [order("a", 5.0, 2, 58)])  # out of order, and within the grace
        assert test.read("revenue-per-minute") == []
        test.feed("orders", [order("a", 7.0, 1, 70), order("a", 9.0, 1, 30)])  # closes the minute, then is late
        first = {"window_start": at(0), "window_end": at(60)}
        assert sorted(pairs(test.read("revenue-per-minute")), key=lambda pair: pair[0]["shop"]) == [
            ({"shop": "a", **first}, {"revenue": 16.0, "orders": 2}),
            ({"shop": "b", **first}, {"revenue": 4.0, "orders": 1}),
        ]
        (late,) = test.read("orders-late")
        assert late["key"] == b"a"
        assert b'"price":9' in late["value"]
        test.advance("2 minutes")  # nothing comes any more
        second = {"window_start": at(60), "window_end": at(120)}
        assert pairs(test.read("revenue-per-minute")) == [({"shop": "a", **second}, {"revenue": 8.0, "orders": 2})]


def test_a_large_payment_soon_after_a_small_one_is_an_alarm() -> None:
    def pay(card: str, amount: float, seconds: int) -> dict[str, Any]:
        return {"card": card, "amount": amount, "at": at(seconds)}

    with load("fraud").test(partitions=1) as test:
        test.feed("payments", [pay("a", 0.5, 0), pay("b", 900.0, 10), pay("a", 600.0, 59)])
        assert pairs(test.read("alarms")) == [("a", {"tried": 0.5, "taken": 600.0})]
        test.feed("payments", [pay("a", 700.0, 60)])  # the minute is over
        assert test.read("alarms") == []


@pytest.mark.parametrize("split", [None, 1, 2])
def test_orders_follow_their_customers(split: int | None) -> None:
    with load("order_view").test(split=split) as test:
        test.feed("shop-customers", [{"customer_id": "c1", "name": "Ada", "city": "London"}])
        test.feed(
            "shop-orders",
            [
                {"order_id": "o1", "customer_id": "c1", "amount": 5.0},
                {"order_id": "o2", "customer_id": "c1", "amount": 7.0},
                {"order_id": "o3", "customer_id": "nobody", "amount": 9.0},
            ],
        )
        test.feed("shop-customers", [{"customer_id": "c1", "name": "Ada", "city": "Paris"}])
        test.feed("shop-orders", [{"order_id": "o2"}])  # deleted
        assert test.table("orders-view") == {"o1": {"customer_id": "c1", "amount": 5.0, "name": "Ada", "city": "Paris"}}


def test_articles_are_published_once() -> None:
    week = 7 * 86_400_000
    body = "<p>Rain  <b>today</b></p>"
    with load("articles").test(partitions=1) as test:
        test.feed("articles-raw", [{"id": "1", "title": " Weather ", "body": body}], timestamp=0)
        test.feed("articles-raw", [{"id": "2", "title": "Copied", "body": "rain today"}], timestamp=1)
        test.feed("articles-raw", [{"id": "3", "title": "", "body": "no title"}], timestamp=2)
        assert pairs(test.read("articles-published")) == [("1", {"title": "Weather", "text": "Rain today"})]
        assert pairs(test.read("articles-rejected")) == [("3", {"title": "", "text": "no title"})]
        test.feed("articles-raw", [{"id": "4", "title": "Again", "body": body}], timestamp=week + 2)
        assert pairs(test.read("articles-published")) == [("4", {"title": "Again", "text": "Rain today"})]
