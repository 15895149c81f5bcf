"""The demo's shop: makes customers, orders and page views; the same ones for the same seed.

The shop has its own clock, which moves forward a minute after every `per_minute` events. Some events are out of order,
some orders are invalid, and a few are so late that they do not count in the revenue. `books` has the results that the
pipeline must compute.
"""

from random import Random
from typing import NamedTuple

from ottla.cli.demo.books import GUEST, MINUTE_MS, Books, Sale
from ottla.cli.demo.topics import CUSTOMERS, ORDERS, PAGE_VIEWS

CATEGORIES = ("books", "games", "garden", "music", "tools")
COUNTRIES = ("AT", "CZ", "DE", "FR", "IT", "NL", "PL", "SE")
CUSTOMER_COUNT = 500
ORDER_SHARE = 0.4
BROKEN_SHARE = 0.005
DELAYED_SHARE = 0.02
DELAY_MAX_MS = 2 * MINUTE_MS
GRACE_MINUTES = 15
"""How long after its end the pipeline still counts orders of a minute."""
TOO_LATE_MS = (GRACE_MINUTES + 10) * MINUTE_MS
"""How far behind an earlier order of the same customer one is whose minute is certainly closed."""
OPENING_MS = 1_767_603_600_000  # Monday, 5 January 2026, 09:00 UTC

NOT_JSON = "not JSON"
INCOMPLETE = "incomplete"
NO_AMOUNT = "no amount"


class Event(NamedTuple):
    topic: str
    key: str
    value: str | None
    at_ms: int
    """The time of the record."""


class Shop:
    def __init__(self, random: Random, per_minute: int) -> None:
        self._random = random
        self._step_ms = MINUTE_MS / per_minute
        self.books = Books()
        self.orders = self.page_views = self.delayed = self.stragglers = 0
        self._countries: dict[str, str] = {}
        """The newest record of each customer who has not been deleted."""
        self._ordered_ms: dict[str, int] = {}
        """The time of each customer's first order."""

    @property
    def now_ms(self) -> int:
        """The shop's own clock, in ms."""
        return OPENING_MS + int((self.orders + self.page_views) * self._step_ms)

    def customers(self) -> list[Event]:
        """The table of customers as a log of changes, from the day before: some move, and some leave."""
        events = []
        at_ms = OPENING_MS - 24 * 60 * MINUTE_MS
        for number in range(CUSTOMER_COUNT):
            customer = f"c{number:03}"
            for _ in range(self._random.randint(1, 3)):
                country = self._random.choice(COUNTRIES)
                self._countries[customer] = country
                events.append(Event(CUSTOMERS, customer, f'{{"customer":"{customer}","country":"{country}"}}', at_ms))
            if self._random.random() < 0.05:
                del self._countries[customer]
                events.append(Event(CUSTOMERS, customer, None, at_ms))
        return events

    def event(self) -> Event:
        """The next thing that happens in the shop."""
        random = self._random
        at_ms = self.now_ms
        if random.random() < DELAYED_SHARE:
            at_ms = max(at_ms - random.randrange(DELAY_MAX_MS), OPENING_MS)
            self.delayed += 1
        if random.random() >= ORDER_SHARE:
            return self._page_view(at_ms)
        customer = self._customer()
        if random.random() < BROKEN_SHARE:
            return self._broken_order(customer, at_ms)
        self._ordered_ms.setdefault(customer, at_ms)
        return self._order(customer, at_ms)

    def straggler(self) -> Event | None:
        """An order that arrives after its minute was closed: it is sold, but counts in no minute's revenue.

        A pipeline tells the time by what it has read from a partition, where orders of one customer follow each other.
        So it is the order of somebody who has ordered before. None if nobody has.
        """
        if not self._ordered_ms:
            return None
        self.stragglers += 1
        customer, ordered_ms = self._random.choice([*self._ordered_ms.items()])
        return self._order(customer, ordered_ms - TOO_LATE_MS, counted=False)

    def _page_view(self, at_ms: int) -> Event:
        self.page_views += 1
        category = CATEGORIES[int(self._random.random() * len(CATEGORIES))]
        customer = self._customer()
        self.books.page_viewed(at_ms, category)
        page = f"/{category}/{self._random.randrange(40)}"
        value = f'{{"page":"{page}","category":"{category}","customer":"{customer}","at":"{iso_time(at_ms)}"}}'
        return Event(PAGE_VIEWS, customer, value, at_ms)

    def _order(self, customer: str, at_ms: int, *, counted: bool = True) -> Event:
        self.orders += 1
        category = CATEGORIES[int(self._random.random() * len(CATEGORIES))]
        cents = self._random.randrange(199, 9_999)
        country = self._countries.get(customer, GUEST)
        self.books.sold(self.orders, Sale(category, country, cents), at_ms, counted=counted)
        return Event(ORDERS, customer, order_text(self.orders, customer, category, cents, at_ms), at_ms)

    def _broken_order(self, customer: str, at_ms: int) -> Event:
        """An order that cannot be read: cut off in the middle, without a price, or with an impossible price."""
        self.orders += 1
        whole = order_text(self.orders, customer, "books", 0, at_ms)
        reason = (NOT_JSON, INCOMPLETE, NO_AMOUNT)[self._random.randrange(3)]
        texts = {NOT_JSON: whole[: len(whole) // 2], INCOMPLETE: whole.replace('"cents":0,', ""), NO_AMOUNT: whole}
        self.books.rejected(texts[reason], reason)
        return Event(ORDERS, customer, texts[reason], at_ms)

    def _customer(self) -> str:
        """A customer number. A few of them belong to no customer; those order as guests."""
        return f"c{self._random.randrange(CUSTOMER_COUNT * 11 // 10):03}"


def order_text(number: int, customer: str, category: str, cents: int, at_ms: int) -> str:
    return (
        f'{{"order":{number},"customer":"{customer}","category":"{category}","cents":{cents},"at":"{iso_time(at_ms)}"}}'
    )


def iso_time(at_ms: int) -> str:
    """Format a time within the month that the shop is open; much faster than the standard library."""
    days, ms = divmod(at_ms - OPENING_MS + 9 * 60 * MINUTE_MS, 24 * 60 * MINUTE_MS)
    return f"2026-01-{5 + days:02}T{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}.{ms % 1000:03}Z"
