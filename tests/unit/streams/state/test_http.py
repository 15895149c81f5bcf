"""Queries over HTTP, with a server in a thread and stores in memory."""

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from urllib.parse import urlsplit

import orjson
import pyarrow as pa
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.client.http_connections import CONNECTIONS_MAX
from ottla.streams.errors import StreamsError
from ottla.streams.kernels.kernel import StoreSpec
from ottla.streams.planning.plan import StorePlan
from ottla.streams.queries import Query, QueryFailed
from ottla.streams.state.http import HttpServer, make_query_routes
from ottla.streams.state.keys import encode_key, window_key
from ottla.streams.state.store import MemoryReader
from ottla.streams.state.views import QueryError, StoreView, partition_of
from tests.patience import PATIENCE_S

AT = datetime(2026, 1, 1, tzinfo=UTC)
TOTAL = pa.schema([("at", pa.timestamp("us", "UTC")), ("total", pa.float64())])
SHOP_DAY = pa.schema([("shop", pa.string()), ("day", pa.int64())])
PARTITIONS = 2


def make_stores() -> dict[str, StoreView]:
    value = b'{"at":"2026-01-01T00:00:00Z","total":%d,"_timestamp":7}'
    tables = {encode_key({"shop": shop, "day": day}, SHOP_DAY) or b"": day for shop in ("a", "b/c") for day in (1, -2)}
    windows = {window_key(b"a", start): start for start in (0, 60_000, 120_000)}
    lines = {b"%05d" % number: number for number in range(2500)}
    return {
        "totals": _view(
            StorePlan(StoreSpec("totals"), "t", SHOP_DAY, TOTAL), {key: (key, value % tables[key]) for key in tables}
        ),
        "lines": _view(
            StorePlan(StoreSpec("lines"), "t", pa.schema([("id", pa.string())]), TOTAL),
            {key: (key, value % lines[key]) for key in lines},
        ),
        "revenue": _view(
            StorePlan(StoreSpec("revenue"), "t", pa.schema([("shop", pa.string())]), TOTAL, "window", window_ms=60_000),
            {key: (b"a", value % windows[key]) for key in windows},
        ),
    }


def _view(plan: StorePlan, values: dict[bytes, tuple[bytes, bytes]]) -> StoreView:
    readers = [MemoryReader() for _ in range(PARTITIONS)]
    for key, (own, value) in values.items():
        readers[partition_of(own, PARTITIONS)].values[key] = value
    return StoreView(plan, PARTITIONS, readers.__getitem__)


@contextmanager
def serve(token: str | None = None) -> Iterator[str]:
    stores = make_stores()
    server = HttpServer(make_query_routes(lambda: stores), "127.0.0.1", 0, token)
    server.start()
    try:
        yield server.address
    finally:
        server.stop()


def test_rows_are_found_by_key_window_and_range() -> None:
    with serve() as address:
        totals = Query(address, "totals")
        assert totals.get("a", -2) == {"shop": "a", "day": -2, "at": AT, "total": -2.0}
        assert totals.get("b/c", 1) == {"shop": "b/c", "day": 1, "at": AT, "total": 1.0}
        assert totals.get("nobody", 1) is None
        assert sorted((row["shop"], row["day"]) for row in totals.all()) == [
            ("a", -2),
            ("a", 1),
            ("b/c", -2),
            ("b/c", 1),
        ]
        revenue = Query(address, "revenue")
        start, end = datetime.fromtimestamp(60, UTC), datetime.fromtimestamp(120, UTC)
        assert revenue.get("a", window=start) == {
            "shop": "a", "window_start": start, "window_end": end, "at": AT, "total": 60_000.0
        }  # fmt: skip
        assert [row["total"] for row in revenue.window("a", start=1, end=end)] == [60_000.0, 120_000.0]
        assert [row["total"] for row in revenue.all(end=start)] == [0.0, 60_000.0]
        lines = Query(address, "lines")
        assert [row["id"] for row in lines.range("00500", "02000")] == [f"{number:05}" for number in range(500, 2001)]
        assert sum(1 for _ in lines.all()) == 2500


def test_the_form_of_answers() -> None:
    with serve() as address:
        with urllib.request.urlopen(f"{address}/stores/lines?limit=2&from=00007") as response:
            page = orjson.loads(response.read())
        assert page["rows"] == [
            {"id": f"{number:05}", "at": "2026-01-01T00:00:00.000000Z", "total": float(number)} for number in (7, 8)
        ]
        with urllib.request.urlopen(f"{address}/stores/lines?limit=2&from=00007&after={page['next']}") as response:
            assert [row["id"] for row in orjson.loads(response.read())["rows"]] == ["00009", "00010"]
        with urllib.request.urlopen(f"{address}/stores") as response:
            stores = orjson.loads(response.read())["stores"]
        assert [(store["name"], store["kind"], store["key"]) for store in stores] == [
            ("lines", "key-value", ["id"]),
            ("revenue", "window", ["shop"]),
            ("totals", "key-value", ["shop", "day"]),
        ]


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/stores/nothing/a", 404, "there is no store 'nothing'; there are: lines, revenue, totals"),
        ("/stores/lines/x", 404, "store 'lines' has no such key"),
        ("/stores/totals/a", 400, "the key of store 'totals' is shop, day: 1 values given"),
        ("/stores/totals/a/one", 400, "key column 'day': 'one' is not a value of type int64"),
        ("/stores/lines?limit=0", 400, "limit=0: it must be a number from 1 to 10000"),
        ("/stores/lines?after=%C3%A4", 400, "after: it must be the text that the page before has as next"),
        ("/stores/lines/00001?window=7", 400, "store 'lines' has no windows"),
        ("/stores/revenue/a?window=soon", 400, "'soon' is not a time"),
        ("/stores/totals?from=a", 400, "ranges need a key of one string, binary, int or long; the key is shop string"),
    ],
)
def test_a_wrong_question_gets_one_line(path: str, status: int, message: str) -> None:
    with serve() as address, pytest.raises(urllib.error.HTTPError) as found:
        urllib.request.urlopen(address + path)
    with found.value:
        assert (found.value.code, found.value.headers["content-type"]) == (status, "application/json")
        assert orjson.loads(found.value.read())["error"].startswith(message)


def test_without_the_token_nothing_is_answered() -> None:
    with serve("secret") as address:
        assert Query(address, "lines", token="secret").get("00001") is not None
        for token in (None, "wrong"):
            with pytest.raises(QueryError, match="needs the app's token"):
                Query(address, "lines", token=token).get("00001")


def test_a_page_of_another_name_cannot_read_without_a_token() -> None:
    # DNS rebinding: the browser believes that the answer comes from the page's own server.
    with serve() as address:
        request = urllib.request.Request(f"{address}/stores", headers={"Host": "evil.example:80"})
        with pytest.raises(urllib.error.HTTPError, match="403") as found:
            urllib.request.urlopen(request)
        found.value.close()
        for name in ("localhost", "[::1]:7", "127.0.0.1:80"):
            urllib.request.urlopen(urllib.request.Request(f"{address}/stores", headers={"Host": name})).close()


def test_a_value_that_does_not_fit_is_an_error_of_one_line() -> None:
    plan = StorePlan(StoreSpec("odd"), "t", pa.schema([("id", pa.string())]), TOTAL)
    stores = {"odd": _view(plan, {b"a": (b"a", b'{"at":"never"}')})}
    server = HttpServer(make_query_routes(lambda: stores), "127.0.0.1", 0, None)
    server.start()
    try:
        with pytest.raises(QueryFailed, match="store 'odd': column 'at'"):
            Query(server.address, "odd").get("a")
    finally:
        server.stop()


def test_strangers_cannot_use_up_the_file_descriptors() -> None:
    """Connections without a request make room for others."""
    with serve(token="secret") as address, ExitStack() as crowd:
        place = ("127.0.0.1", urlsplit(address).port or 0)
        strangers = [
            crowd.enter_context(socket.create_connection(place, PATIENCE_S)) for _ in range(CONNECTIONS_MAX + 10)
        ]
        assert Query(address, "totals", token="secret").get("a", -2) is not None
        with suppress(ConnectionResetError):
            assert not strangers[0].recv(1)


def test_a_page_of_another_site_cannot_change_anything() -> None:
    """A form in a browser may be sent to any address; its Origin says where it came from."""
    stopped: list[str] = []

    def stop(request: Request) -> Response:
        stopped.append(request.headers.get("origin", ""))
        return Response()

    server = HttpServer([Route("/stop", stop, methods=["POST"])], "127.0.0.1", 0, None)
    address = server.address
    server.start()
    try:
        for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
            request = urllib.request.Request(f"{address}/stop", b"", {"Origin": origin})
            with pytest.raises(urllib.error.HTTPError, match="403") as found:
                urllib.request.urlopen(request)
            found.value.close()
        for headers in ({}, {"Origin": address}):
            urllib.request.urlopen(urllib.request.Request(f"{address}/stop", b"", headers)).close()
    finally:
        server.stop()
    assert stopped == ["", address]


def test_an_address_for_other_machines_needs_a_token() -> None:
    with pytest.raises(
        StreamsError, match=r"http=0\.0\.0\.0:0: an address that other machines can reach needs a token"
    ):
        HttpServer([], "0.0.0.0", 0, None)


def test_an_app_that_is_away_is_named() -> None:
    with pytest.raises(QueryFailed, match=r"http://127\.0\.0\.1:9 does not answer: .*refused.* Is the app running\?"):
        Query("http://127.0.0.1:9", "lines").get("a")
