"""Sorts, searches and pages a list on the server."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from ottla.console.calls import Call

T = TypeVar("T")

PAGE_SIZE = 50
PAGES_MAX = 1_000_000


class Listing(NamedTuple, Generic[T]):
    rows: Sequence[T]
    """Those in view."""
    total: int
    """All that match the search."""
    page: int
    pages: int
    search: str
    sort: str
    """The name of a column, with "-" before it for the largest first."""

    @property
    def first_number(self) -> int:
        return (self.page - 1) * PAGE_SIZE + 1 if self.total else 0

    @property
    def last_number(self) -> int:
        return min(self.page * PAGE_SIZE, self.total)


def make_listing(
    call: Call, rows: Sequence[T], name_of: Callable[[T], str], columns: Mapping[str, Callable[[T], Any]]
) -> Listing[T]:
    """The page of the list that the parameters q, sort and page ask for. All words of q must be in the name."""
    search = call.text("q").strip()[:200]
    words = search.casefold().split()
    found = [row for row in rows if all(word in name_of(row).casefold() for word in words)] if words else list(rows)
    sort = call.text("sort")
    key = columns.get(sort.removeprefix("-"))
    if key is not None:
        found.sort(key=key, reverse=sort.startswith("-"))
    pages = max((len(found) + PAGE_SIZE - 1) // PAGE_SIZE, 1)
    page = min(call.number("page", 1, 1, PAGES_MAX), pages)
    start = (page - 1) * PAGE_SIZE
    return Listing(found[start : start + PAGE_SIZE], len(found), page, pages, search, sort if key else "")
