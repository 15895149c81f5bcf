"""Odd records, odd names and odd moments: what clumsy and hostile users do to the pages of records."""

import json
import re
import time
from contextlib import suppress
from html import unescape
from threading import Thread
from typing import Any

import pytest
from starlette.types import ASGIApp

from ottla.console.app import make_app
from ottla.console.console import Console, Options
from ottla.console.facts.topics import delete_topic
from ottla.console.guarding import LOOPBACK_NAMES
from ottla.console.views import records
from ottla.records.record import Headers
from ottla.testing import broker
from tests.unit.console.asgi import Answer, ask
from tests.unit.console.conftest import now_ms, patient
from tests.unit.console.seeding import make_topic, put
from tests.unit.console.test_changes import note_of, read_all

HUGE = 300_000


def read_form(page: Answer) -> dict[str, str]:
    """The fields of the form as a browser sends them."""
    found: dict[str, str] = {}
    for name, text in re.findall(r'<textarea name="(\w+)".*?>\n(.*?)</textarea>', page.text, re.DOTALL):
        found[name] = unescape(text).replace("\n", "\r\n")
    for name, text in re.findall(r'<input name="(\w+)"[^>]*? value="(.*?)"', page.text, re.DOTALL):
        found[name] = unescape(text).replace("\n", "")
    for name, options in re.findall(r'<select name="(\w+)">(.*?)</select>', page.text, re.DOTALL):
        chosen = re.search(r'value="(\w+)" selected', options)
        found[name] = chosen[1] if chosen else ""
    return {name: text for name, text in found.items() if name != "codec"}


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (b"k", b"\n\nbegins and ends with line breaks\n", []),
        (b"two\nlines", b"a\r\nb\rc", []),
        (b"", b"", []),
        (None, None, []),
        (b"\x00", b"a\x00b", []),
        (b"\xff\xfe", bytes(range(256)), []),
        ("\u202eevil".encode(), "</textarea><script>é\u2028".encode(), []),
        (b"k", b"v", [("bytes", b"\xff\x00"), ("null", None), ("empty", b""), ("lines", b"a\nb")]),
        (b"k", b"v", [("twice", b"1"), ("twice", b"2"), ("a:hex", b"text")]),
    ],
)
def test_a_record_that_is_sent_again_is_the_same(
    app: ASGIApp, console: Console, key: bytes | None, value: bytes | None, headers: Headers
) -> None:
    topic = f"again-{abs(hash((key, value, str(headers)))):x}"
    make_topic(console, topic)
    put(console, topic, [value], key=key, headers=headers)
    form = read_form(ask(app, f"/topics/{topic}/produce?partition=0&offset=0"))
    assert note_of(app, ask(app, f"/topics/{topic}/produce", form)) == "The record is at offset 1 of partition 0."
    first, second = read_all(console, topic)
    assert (second.key, second.value, list(second.headers)) == (first.key, first.value, list(first.headers))


def test_a_page_of_huge_values_stays_small(app: ASGIApp, console: Console) -> None:
    topic = make_topic(console, "huge", max_message_bytes="20000000")
    for value in (b"x" * HUGE, b"\xff" * HUGE, b"[" + b"1," * (HUGE // 2) + b"1]"):
        put(console, topic, [value])
    page = ask(app, f"/topics/{topic}/records")
    assert len(page.body) < 3 * 150_000
    links = re.findall(r'href="([^"]*/export[^"]*offset=\d+)"', unescape(page.text))
    assert len(links) == 3  # each can be had as a whole
    whole = [json.loads(ask(app, link).text)["value"] for link in sorted(links)]
    assert whole[0] == "x" * HUGE
    assert len(whole[1]["base64"]) > HUGE
    assert len(whole[2]) == HUGE // 2 + 1


def test_json_that_is_nested_deep(app: ASGIApp, console: Console) -> None:
    topic = make_topic(console, "deep")
    put(console, topic, [b"[" * depth + b"]" * depth for depth in (400, 900, 5_000)])
    assert ask(app, f"/topics/{topic}/records").status == 200
    assert ask(app, f"/topics/{topic}/records?q=x&in=field&field=a.b").status == 200
    assert ask(app, f"/topics/{topic}/records/export?as=jsonl").status == 200


@pytest.mark.parametrize(
    "query",
    [
        "start=time&time=99999999999999999999d",
        f"start=time&time={'9' * 5000}h",
        f"start=time&time={'9' * 5000}",
        "start=time&time=0001-01-01T00:00%2B23:59",
        f"start=offset&offset={'9' * 30}",
        "partition=99",
        "partition=%F0%9F%98%80",
        "q=(&pattern=1",
        "at=1:2:3",
        "limit=0",
        "values=exe",
    ],
)
def test_parameters_that_cannot_be(app: ASGIApp, console: Console, query: str) -> None:
    with suppress(Exception):
        make_topic(console, "asked")
    answer = ask(app, f"/topics/asked/records?{query}")
    assert answer.status in (200, 400)
    assert "Traceback" not in answer.text


def test_a_pattern_that_is_wrong_is_refused_before_it_is_followed(app: ASGIApp, console: Console) -> None:
    topic = make_topic(console, "patterned")
    assert ask(app, f"/topics/{topic}/records/live?q=(&pattern=1").status == 400


def test_text_keeps_its_lines_in_csv(app: ASGIApp, console: Console) -> None:
    topic = make_topic(console, "lines")
    put(console, topic, [b"two\n  lines\tand a tab"])
    assert '"two\n  lines\tand a tab"' in ask(app, f"/topics/{topic}/records/export?as=csv").text


def test_a_topic_that_is_deleted_while_it_is_followed(app: ASGIApp, console: Console) -> None:
    topic = make_topic(console, "vanishing")
    put(console, topic, [b"x"])

    def delete() -> None:
        with console.clients.borrow() as client:
            delete_topic(client, topic)
        console.forget()

    deleting = Thread(target=delete)
    deleting.start()
    try:
        answer = ask(app, f"/topics/{topic}/records/live")  # it ends by itself
    finally:
        deleting.join()
    assert answer.status == 404 or "event: trouble" in answer.text


def test_following_goes_on_when_the_broker_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    # A record that was written while the page could not read is shown when the broker answers again.
    monkeypatch.setattr(records, "AWAY_S", 0.05)
    with broker() as local:
        writing = Console(Options(patient(local.bootstrap)), now_ms, time.monotonic)
        settings = {**patient(local.bootstrap), "default.api.timeout.ms": "2000"}
        reading = Console(Options(settings), now_ms, time.monotonic)
        topic = make_topic(writing, "followed")
        read, calls = records._read_new, [0]

        def read_new(*given: Any) -> Any:
            calls[0] += 1
            if calls[0] == 1:
                local.stop()
                reading.forget()
            elif calls[0] == 3:
                local.restart()
                put(writing, topic, [b"meanwhile" * 3_000])
            return read(*given)

        monkeypatch.setattr(records, "_read_new", read_new)
        try:
            app = make_app(reading, LOOPBACK_NAMES, None)
            answer = ask(app, f"/topics/{topic}/records/live", body_max=20_000)
        finally:
            writing.close()
            reading.close()
    events = re.findall(r"event: (\w+)", answer.text)
    assert events[0] == "away"
    assert events[-2:] == ["back", "records"]
    assert "meanwhile" in answer.text
