"""What a server gets for the records of a batch, and what becomes of its answers."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.connect.connector import ConnectorContext, SinkBatch
from ottla.connect.connectors.http.http_sink import HttpSink
from ottla.connect.data.record import Record
from ottla.connect.errors import BadConfig, ConnectError, RetriableError
from ottla.connect.settings.parsing import parse
from tests.connect.http_server import HttpServer, http_server


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with http_server() as found:
        yield found


def make_sink(server: HttpServer, path: str = "/in", **more: str) -> HttpSink:
    given = {"http.api.url": server.url + path, "max.retries": "0"}
    given |= {name.replace("_", "."): text for name, text in more.items()}
    return HttpSink(parse(HttpSink.settings, given), ConnectorContext("unit", "workers", 1, {}))


def make_batch(values: list[Any], keys: list[Any] | None = None, first: int = 0) -> SinkBatch:
    names = keys or ["k"] * len(values)
    records = [
        Record("t", value, None, key, partition=3, offset=first + n)
        for n, (value, key) in enumerate(zip(values, names, strict=True))
    ]
    return SinkBatch("t", 3, first, first + len(values), [records])


def test_each_record_is_a_request(server: HttpServer) -> None:
    sink = make_sink(server, headers="X-Colour:blue|X-Size: 5")
    assert not sink.write(make_batch(["a", {"n": 1}])).refused
    assert [(each.method, each.path, each.body) for each in server.requests] == [
        ("POST", "/in", b"a"),
        ("POST", "/in", b'{"n":1}'),
    ]
    headers = server.requests[0].headers
    assert (headers["X-Colour"], headers["X-Size"], headers["Idempotency-Key"]) == ("blue", "5", "t-3-0-0")
    assert headers["Content-Type"].startswith("text/plain")


def test_batches(server: HttpServer) -> None:
    make_sink(server, batch_max_size="2", batch_json_as_array="true").write(make_batch(["a", 2, None, [3]]))
    assert [json.loads(each.body) for each in server.requests] == [["a", 2], [[3]]]
    assert [each.headers["Idempotency-Key"] for each in server.requests] == ["t-3-0-1", "t-3-3-3"]
    server.requests.clear()
    more = {"batch_prefix": "<", "batch_suffix": ">", "batch_separator": ";", "request_method": "put"}
    make_sink(server, batch_max_size="9", **more).write(make_batch(["a", "b"]))
    assert [(each.method, each.body) for each in server.requests] == [("PUT", b"<a;b>")]


def test_records_of_a_batch_key_share_requests(server: HttpServer) -> None:
    """In their order, also if those of other keys are between."""
    sink = make_sink(server, "/${topic}/${key}?n=${n.m}", batch_max_size="2", batch_separator=" ")
    values = [{"n": {"m": "x y"}, "v": number} for number in range(4)]
    sink.write(make_batch(values, ["a", "b", "a", "b/c"]))
    assert [(each.path, each.body.count(b"{")) for each in server.requests] == [
        ("/t/a?n=x%20y", 4),
        ("/t/b?n=x%20y", 2),
        ("/t/b%2Fc?n=x%20y", 2),
    ]


def test_deletions(server: HttpServer) -> None:
    sink = make_sink(server, "/${key}", behavior_on_null_values="delete", batch_max_size="5")
    sink.write(make_batch(["a", None, "b"]))
    assert [(each.method, each.path, each.body) for each in server.requests] == [
        ("POST", "/k", b"a"),
        ("DELETE", "/k", b""),
        ("POST", "/k", b"b"),
    ]
    written = make_sink(server, behavior_on_null_values="fail").write(make_batch([None]))
    assert [each.record.offset for each in written.refused] == [0]


def test_patterns(server: HttpServer) -> None:
    make_sink(server, regex_patterns=r"(\d+)~b", regex_replacements="<$1>~B").write(make_batch(["ab12"]))
    assert server.requests[0].body == b"aB<12>"


@pytest.mark.parametrize("behavior", ["fail", "ignore", "log"])
def test_records_that_the_server_refuses(server: HttpServer, behavior: str) -> None:
    """They are handed over with its words, or left out; the others are written."""
    server.answer = lambda request: (422, b"no\nthanks") if b"bad" in request.body else (200, b"")
    written = make_sink(server, behavior_on_error=behavior).write(make_batch(["a", "bad", "b"]))
    assert len(server.requests) == 3
    if behavior == "fail":
        assert [each.record.offset for each in written.refused] == [1]
        assert "status 422: no thanks" in written.refused[0].reason
    else:
        assert not written.refused


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_that_is_busy(server: HttpServer, status: int) -> None:
    """What was sent before is not sent again; without any progress the task is repeated."""
    server.answer = lambda request: (status, b"later") if b"c" in request.body else (200, b"")
    sink = make_sink(server)
    written = sink.write(make_batch(["a", "b", "c", "d"]))
    assert written.end == 2
    with pytest.raises(RetriableError, match=f"the server is busy or away .status {status}: later"):
        sink.write(make_batch(["c", "d"], first=2))


def test_requests_are_repeated(server: HttpServer) -> None:
    answers = iter([503, 500, 200])
    server.answer = lambda request: (next(answers), b"")
    assert not make_sink(server, max_retries="2", retry_backoff_ms="1").write(make_batch(["a"])).refused
    assert len(server.requests) == 3
    assert len({each.headers["Idempotency-Key"] for each in server.requests}) == 1


def test_a_server_that_is_away() -> None:
    with http_server() as gone:
        sink = make_sink(gone)
    with pytest.raises(RetriableError, match="no answer"):
        sink.write(make_batch(["a"]))


def test_who_we_are(server: HttpServer) -> None:
    basic = {"auth_type": "basic", "connection_user": "me", "connection_password": "hush"}
    make_sink(server, **basic).write(make_batch(["a"]))
    make_sink(server, auth_type="BEARER", bearer_token="token").write(make_batch(["a"]))
    expected = [f"Basic {base64.b64encode(b'me:hush').decode()}", "Bearer token"]
    assert [each.headers["Authorization"] for each in server.requests] == expected
    server.answer = lambda request: (401, b"who?")
    with pytest.raises(ConnectError, match="does not let us in") as failure:
        make_sink(server, **basic).write(make_batch(["a"]))
    assert "hush" not in str(failure.value)
    assert "hush" not in repr(make_sink(server, **basic)._server)


def test_credentials_do_not_follow_a_redirect(server: HttpServer) -> None:
    with http_server() as other:
        server.answer = lambda request: (307, b"", {"Location": f"{other.url.replace('127.0.0.1', 'localhost')}/x"})
        make_sink(server, auth_type="BEARER", bearer_token="token").write(make_batch(["a"]))
        assert [(each.path, "Authorization" in each.headers) for each in other.requests] == [("/x", False)]


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"http.api.url": "ftp://x"}, "http.api.url"),
        ({"auth.type": "OAUTH2"}, "auth.type"),
        ({"auth.type": "BASIC"}, "connection.user"),
        ({"headers": "no colon"}, "headers"),
        ({"headers": "a b:c"}, "headers"),
        ({"retry.on.status.codes": "4xx"}, "retry.on.status.codes"),
        ({"regex.patterns": "a~b", "regex.replacements": "c"}, "regex.replacements"),
        ({"reporter.error.topic.name": "x"}, "reporter.error.topic.name"),
        ({"http.proxy.host": "x"}, "http.proxy.host"),
    ],
)
def test_what_cannot_be_obeyed_is_named(more: dict[str, str], name: str) -> None:
    with pytest.raises(BadConfig, match=name):
        parse(HttpSink.settings, {"http.api.url": "http://localhost", **more})
