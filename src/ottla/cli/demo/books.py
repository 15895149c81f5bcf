"""The results that the shop's pipeline must have, computed by a simple model while the events are made.

The pipeline reads the same events from topics in parallel, in batches, and some of them late. In the end its results
must be exactly these, each of them once.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

MINUTE_MS = 60_000
GUEST = "guest"
COMPLAINTS_MAX = 5


class Sale(NamedTuple):
    category: str
    country: str
    cents: int


class Tally(NamedTuple):
    """The revenue of one category in one minute."""

    orders: int = 0
    cents: int = 0
    views: int = 0


class Books:
    def __init__(self) -> None:
        self.sales: dict[int, Sale] = {}
        self.minutes: dict[tuple[int, str], Tally] = {}
        """Tallies by the first millisecond of the minute, and the category."""
        self.rejects: Counter[tuple[str, str]] = Counter()
        """Values that are not orders, with the reason."""

    def sold(self, order: int, sale: Sale, at_ms: int, *, counted: bool) -> None:
        self.sales[order] = sale
        if counted:
            self._add(at_ms, sale.category, Tally(1, sale.cents, 0))

    def page_viewed(self, at_ms: int, category: str) -> None:
        self._add(at_ms, category, Tally(views=1))

    def rejected(self, text: str, reason: str) -> None:
        self.rejects[text, reason] += 1

    def complaints(self, sales: Iterable[bytes], minutes: Iterable[bytes], rejects: Iterable[bytes]) -> list[str]:
        """List the differences between the result topics, given in order, and these books. Empty if all is right."""
        found = [*self._wrong_sales(sales), *self._wrong_minutes(minutes), *self._wrong_rejects(rejects)]
        more = len(found) - COMPLAINTS_MAX
        return [*found[:COMPLAINTS_MAX], *([f"and {more:,} more"] if more > 0 else [])]

    def _add(self, at_ms: int, category: str, more: Tally) -> None:
        place = at_ms - at_ms % MINUTE_MS, category
        old = self.minutes.get(place, Tally())
        self.minutes[place] = Tally(old.orders + more.orders, old.cents + more.cents, old.views + more.views)

    def _wrong_sales(self, values: Iterable[bytes]) -> Iterator[str]:
        seen: Counter[int] = Counter()
        for value in values:
            found = json.loads(value)
            order = found["order"]
            seen[order] += 1
            sale = Sale(found["category"], found["country"], found["cents"])
            if sale != self.sales.get(order):
                yield f"order {order} became {sale}, not {self.sales.get(order)}"
        for order in self.sales:
            if seen[order] != 1:
                yield f"order {order} was sold {seen[order]} times"

    def _wrong_minutes(self, values: Iterable[bytes]) -> Iterator[str]:
        """Keep the last value of each minute and category: a value replaces the one before it."""
        newest = {}
        for value in values:
            minute, category, tally = tally_of(value)
            newest[minute, category] = tally
        for place in sorted({*newest, *self.minutes}):
            if newest.get(place) != self.minutes.get(place):
                clock = f"{place[0] // 3_600_000 % 24:02}:{place[0] // MINUTE_MS % 60:02}"
                yield f"{clock} {place[1]} has {newest.get(place)}, not {self.minutes.get(place)}"

    def _wrong_rejects(self, values: Iterable[bytes]) -> Iterator[str]:
        found: Counter[tuple[str, str]] = Counter()
        for value in values:
            reject = json.loads(value)
            found[reject["record"], reject["reason"]] += 1
        for text, reason in sorted({*found, *self.rejects}):
            times, due = found[text, reason], self.rejects[text, reason]
            if times != due:
                yield f"{text!r} was rejected {times} times as {reason}, not {due} times"


def tally_of(value: bytes) -> tuple[int, str, Tally]:
    """Parse one result into minute, category and tally."""
    found = json.loads(value)
    return found["minute_ms"], found["category"], Tally(found["orders"], found["cents"], found["views"])
