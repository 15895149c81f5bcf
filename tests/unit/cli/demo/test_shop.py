"""The demo's shop and its books: the same seed gives the same day, and wrong results are reported."""

import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from random import Random

import pytest

from ottla.cli.demo.books import GUEST, MINUTE_MS, Books
from ottla.cli.demo.shop import GRACE_MINUTES, INCOMPLETE, NO_AMOUNT, NOT_JSON, OPENING_MS, Event, Shop, iso_time
from ottla.cli.demo.topics import ORDERS, PAGE_VIEWS

EVENTS = 3_000
Rows = list[dict[str, object]]


def generate_day(seed: int) -> tuple[Shop, list[Event], list[Event]]:
    shop = Shop(Random(seed), per_minute=500)
    customers = shop.customers()
    return shop, customers, [shop.event() for _ in range(EVENTS)]


def test_the_same_seed_makes_the_same_day() -> None:
    # Customers and events are equal to the byte. Another seed gives another day.
    assert generate_day(1)[1:] == generate_day(1)[1:]
    assert generate_day(1)[2] != generate_day(2)[2]


def test_a_day_has_everything_in_it() -> None:
    # A day has orders and views, late events, all kinds of bad ones, guests, and as many minutes as the rate says.
    shop, customers, events = generate_day(1)
    assert {event.topic for event in events} == {ORDERS, PAGE_VIEWS}
    assert any(customer.value is None for customer in customers)
    assert shop.delayed
    assert {reason for _, reason in shop.books.rejects} == {NOT_JSON, INCOMPLETE, NO_AMOUNT}
    assert GUEST in {sale.country for sale in shop.books.sales.values()}
    assert len({minute for minute, _ in shop.books.minutes}) == EVENTS // 500
    assert shop.orders + shop.page_views == EVENTS


def test_an_order_that_is_too_late_counts_in_no_minute() -> None:
    shop, _, events = generate_day(1)
    minutes = dict(shop.books.minutes)
    event = shop.straggler()
    assert event is not None
    before = [each for each in events if (each.topic, each.key) == (ORDERS, event.key)]
    assert event.at_ms + (GRACE_MINUTES + 1) * MINUTE_MS < max(each.at_ms for each in before)
    assert json.loads(event.value or "")["at"] == iso_time(event.at_ms)
    assert shop.orders in shop.books.sales
    assert shop.books.minutes == minutes


@pytest.mark.parametrize("after_ms", [0, 59_999, 3_600_000, 15 * 3_600_000, 40 * 3_600_000 + 123, -600_000])
def test_times_are_written_as_iso_8601(after_ms: int) -> None:
    # The shop's own fast function gives the same text as the library.
    written = datetime.fromisoformat(iso_time(OPENING_MS + after_ms))
    assert int(written.timestamp() * 1000) == OPENING_MS + after_ms


def results_of(books: Books) -> tuple[Rows, Rows, Rows]:
    """The results that a correct pipeline writes."""
    sales: Rows = [{"order": order, **sale._asdict()} for order, sale in books.sales.items()]
    minutes: Rows = [
        {"minute_ms": minute, "category": category, **tally._asdict()}
        for (minute, category), tally in books.minutes.items()
    ]
    rejects: Rows = [{"record": text, "reason": reason} for text, reason in books.rejects.elements()]
    return sales, minutes, rejects


def find_complaints(books: Books, *results: Rows) -> list[str]:
    sales, minutes, rejects = ([json.dumps(row).encode() for row in rows] for rows in results)
    return books.complaints(sales, minutes, rejects)


def test_correct_results_give_no_complaint() -> None:
    # The newest result of a minute counts, so a corrected result is right too.
    shop, _, _ = generate_day(1)
    sales, minutes, rejects = results_of(shop.books)
    assert find_complaints(shop.books, sales, [{**minutes[0], "cents": 0}, *minutes], rejects) == []


Change = Callable[[Rows, Rows, Rows], object]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda sales, minutes, rejects: sales.pop(), "was sold 0 times"),
        (lambda sales, minutes, rejects: sales.append(sales[0]), "was sold 2 times"),
        (lambda sales, minutes, rejects: sales[0].update(country="XX"), "country='XX'"),
        (lambda sales, minutes, rejects: minutes.pop(), "has None, not Tally"),
        (lambda sales, minutes, rejects: minutes[0].update(cents=1), "cents=1"),
        (lambda sales, minutes, rejects: minutes.append({**minutes[0], "category": "air"}), "air has Tally"),
        (lambda sales, minutes, rejects: rejects.pop(), "was rejected 0 times"),
        (lambda sales, minutes, rejects: rejects.append(rejects[0]), "was rejected 2 times"),
    ],
)
def test_a_wrong_result_is_reported(change: Change, complaint: str) -> None:
    # A row that is lost, repeated or changed in any of the three topics gives one line.
    shop, _, _ = generate_day(1)
    results = results_of(shop.books)
    change(*results)
    (line,) = find_complaints(shop.books, *results)
    assert complaint in line


def test_many_wrong_results_are_reported_briefly() -> None:
    shop, _, _ = generate_day(1)
    lines = find_complaints(shop.books, [], [], [])
    assert len(lines) == 6
    wrong = len(shop.books.sales) + len(shop.books.minutes) + len(Counter(shop.books.rejects))
    assert lines[-1] == f"and {wrong - 5:,} more"
