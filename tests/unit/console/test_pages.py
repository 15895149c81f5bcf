"""Every page against a broker: what it shows, exactly and escaped."""

import json
import re
from html import unescape
from urllib.parse import quote

import pytest
from starlette.types import ASGIApp

from ottla.console.console import Console
from ottla.console.sampling import take_sample
from ottla.testing import LocalBroker
from tests.unit.console.asgi import ask
from tests.unit.console.conftest import Starter
from tests.unit.console.seeding import commit, make_topic, put

EVIL = "<script>alert(1)</script>'\"&"


@pytest.mark.parametrize(
    ("path", "heading"),
    [
        ("/", "Cluster"),
        ("/brokers/1", "Broker 1"),
        ("/topics", "Topics"),
        ("/groups", "Groups"),
        ("/transactions", "Transactions"),
        ("/apps", "Streams and Spark"),
        ("/connectors", "Connectors"),
        ("/access", "Access"),
    ],
)
def test_every_page_answers(app: ASGIApp, path: str, heading: str) -> None:
    answer = ask(app, path)
    assert answer.status == 200
    assert f"<h1>{heading}" in answer.text
    assert not re.search(r"<[^>]+ (style|on\w+)=", answer.text)  # the policy forbids both


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nowhere", 404),
        ("/topics/missing", 404),
        ("/topics/missing/records", 404),
        ("/topics/missing/records/live", 404),
        ("/groups/missing", 404),
        ("/brokers/77", 404),
        ("/apps/missing", 404),
        ("/connectors/missing", 400),
        ("/topics?page=many", 400),
        ("/topics?page=0", 400),
        ("/topics?page=99999", 200),
        (f"/topics?q={'x' * 5000}", 200),
        ("/topics?sort=nothing", 200),
    ],
)
def test_wrong_addresses_are_explained(app: ASGIApp, path: str, status: int) -> None:
    answer = ask(app, path)
    assert answer.status == status
    assert "Traceback" not in answer.text


def test_a_topic_that_was_just_created_has_its_page(app: ASGIApp, broker: LocalBroker) -> None:
    # By another program, while the metadata of before is still cached.
    assert ask(app, "/topics").status == 200
    broker.create_topic("just-created")
    assert ask(app, "/topics/just-created/records").status == 200


def test_what_comes_from_the_cluster_is_escaped(app: ASGIApp, console: Console) -> None:
    # Keys, values, headers, names of groups and the words of a search are whatever somebody has written.
    topic = make_topic(console, "escaped")
    put(
        console,
        topic,
        [EVIL.encode(), json.dumps({EVIL: EVIL}).encode()],
        key=EVIL.encode(),
        headers=[(EVIL, EVIL.encode())],
    )
    commit(console, EVIL, topic, {0: 1})
    group = quote(EVIL, safe="")
    pages = [
        f"/topics/{topic}/records",
        f"/topics/{topic}/records?q={quote('<script>')}",
        f"/topics/{topic}/produce?partition=0&offset=0",
        f"/topics/{topic}/groups",
        f"/topics?q={group}",
        "/topics",
        "/groups",
        f"/groups/{group}",
        f"/groups?q={group}&sort=-lag",
        f"/groups/{group}missing",
        f"/{group}",
    ]
    for path in pages:
        answer = ask(app, path)
        assert "alert(1)" in answer.text or "&lt;script" in answer.text or path == "/topics", path
        assert "<script>alert" not in answer.text, path
        assert 'value="<' not in answer.text, path
    assert ask(app, f"/groups/{group}").status == 200


def test_live_records_are_escaped_too(app: ASGIApp, console: Console) -> None:
    from threading import Thread
    from time import sleep

    topic = make_topic(console, "live")
    done: list[bool] = []

    def keep_writing() -> None:  # the first records may come before the reader has found the end
        while not done:
            put(console, topic, [EVIL.encode()])
            sleep(0.05)

    writer = Thread(target=keep_writing)
    writer.start()
    try:
        answer = ask(app, f"/topics/{topic}/records/live", body_max=1000)
    finally:
        done.append(True)
        writer.join()
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert "<tr" in events[0]
    assert "&lt;script&gt;alert(1)" in events[0]
    assert "<script" not in events[0]


def test_numbers_keep_all_their_digits(app: ASGIApp, console: Console) -> None:
    topic = make_topic(console, "exact")
    put(console, topic, [b'{"id": 9007199254740993, "price": 0.10000000000000000001, "big": 1e400}'])
    page = unescape(ask(app, f"/topics/{topic}/records").text)
    for digits in ("9007199254740993", "0.10000000000000000001", "1e400"):
        assert digits in page


@pytest.mark.parametrize("codec", range(5), ids=["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(app: ASGIApp, console: Console, codec: int) -> None:
    topic = make_topic(console, f"codec-{codec}")
    put(console, topic, [b"content-%d" % number for number in range(3)], codec=codec)
    page = ask(app, f"/topics/{topic}/records").text
    assert page.count("content-2") >= 1
    assert f"compression {('none', 'gzip', 'snappy', 'lz4', 'zstd')[codec]}" in page


def test_the_list_of_topics_has_groups_and_lag(app: ASGIApp, console: Console) -> None:
    topic = make_topic(console, "listed", 2)
    put(console, topic, [b"x"] * 10)
    commit(console, "reader", topic, {0: 4})
    page = ask(app, f"/topics?q={topic}").text
    (row,) = re.findall(r"<tr>\s*<th scope=\"row\">.*?</tr>", page, re.DOTALL)
    cells = [re.sub(r"<[^>]+>", "", cell).strip() for cell in re.findall(r"<td.*?</td>", row, re.DOTALL)]
    assert cells[:3] == ["2", "1", "10"]
    assert cells[5:] == ["reader", "6"]


def test_a_group_shows_lag_in_records_and_in_time(app: ASGIApp, console: Console) -> None:
    topic = make_topic(console, "lagging")
    put(console, topic, [b"x"] * 10, time=console.now_ms() - 7_200_000)
    commit(console, "slow/er", topic, {0: 7})  # a name with a slash
    take_sample(console)
    page = ask(app, "/groups/slow%2Fer").text
    assert re.search(r"<dt>Lag</dt><dd>3</dd>", page)
    assert re.search(r"<dt>Lag in time</dt><dd>2\.0 h</dd>", page)
    assert "2.0 h" in ask(app, "/groups?q=slow").text
    series = console.history.series("group-lag", "slow/er")
    assert [sample.value for sample in series] == [3.0]


def test_pages_of_a_read_only_console_offer_no_change(start: Starter, console: Console) -> None:
    topic = make_topic(console, "kept")
    app = start(settings=console.options.settings, is_read_only=True)
    for path in ("/topics", f"/topics/{topic}", f"/topics/{topic}/settings", f"/topics/{topic}/records", "/access"):
        page = ask(app, path)
        assert page.status == 200
        assert "read-only" in page.text
        assert 'method="post"' not in page.text, path


def test_many_topics_are_paged_on_the_server(app: ASGIApp, console: Console) -> None:
    for number in range(60):
        with console.clients.borrow() as client:
            from ottla.console.facts.topics import create_topic

            create_topic(client, f"many-{number:03d}", 1, 1, {})
    console.forget()
    first, second = ask(app, "/topics?q=many-").text, ask(app, "/topics?q=many-&page=2").text
    assert "many-049" in first
    assert "many-050" not in first
    assert "many-050" in second
    falling = ask(app, "/topics?q=many-&sort=-name").text
    assert falling.index("many-059") < falling.index("many-058")
    assert re.search(r"1\W50 of 60", first)
