"""A cluster with many groups: a page asks only for the groups in its view, however many there are."""

from typing import Any

import pytest
from starlette.types import ASGIApp

from ottla.client.connection import Connection
from ottla.console.console import GROUPS_MAX, Console
from ottla.console.sampling import take_sample
from ottla.console.views.listing import PAGE_SIZE
from tests.unit.console.asgi import ask
from tests.unit.console.seeding import commit, make_topic, put

COUNT = GROUPS_MAX + 20


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests that the console has sent."""
    found: list[Any] = []
    original = Connection.ask

    def ask_and_note(self: Connection, request: Any, *rest: Any) -> Any:
        found.append(request)
        return original(self, request, *rest)

    monkeypatch.setattr(Connection, "ask", ask_and_note)
    return found


def count_groups(asked: list[Any]) -> int:
    """For how many groups offsets were asked."""
    return sum(len(request.groups) for request in asked if type(request).__name__ == "OffsetFetchRequest")


def test_pages_ask_for_the_groups_in_view(app: ASGIApp, console: Console, asked: list[Any]) -> None:
    for number in range(3):
        put(console, make_topic(console, f"read-{number}"), [b"x"] * 5)
    for number in range(COUNT):
        commit(console, f"reader-{number:03d}", f"read-{number % 2}", {0: 2})
    console.forget()
    take_sample(console)
    asked.clear()
    listing = ask(app, "/groups").text
    assert listing.count('href="/groups/reader-') == PAGE_SIZE
    assert "reader-050" not in listing
    assert f"of {COUNT}" in listing
    assert count_groups(asked) == PAGE_SIZE
    asked.clear()
    assert "reader-119" in ask(app, "/groups/reader-119").text
    assert count_groups(asked) == 1
    asked.clear()
    commit(console, "reader-000", "read-0", {0: 1})  # newer than what is known of all groups
    page = ask(app, "/topics?q=read-0").text
    assert '<td class="num">4</td>' in page  # and yet its lag is right
    assert count_groups(asked) == COUNT // 2
    asked.clear()
    assert ask(app, "/topics?q=read-2").status == 200
    assert count_groups(asked) == 0
    assert len(asked) <= 6
