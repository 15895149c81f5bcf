"""Which requests a source makes, which records their answers have, and where it goes on."""

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from ottla.connect.connector import ConnectorContext, Part
from ottla.connect.connectors.http.http_source import HttpSource
from ottla.connect.connectors.http.paging import follow_pointer
from ottla.connect.errors import BadConfig, ConnectError, RetriableError
from ottla.connect.settings.parsing import parse
from tests.connect.http_server import Answer, HttpServer, Request, http_server


def make_source(server: HttpServer, path: str, **more: str) -> HttpSource:
    given = {"url": server.url + path, "topic.name.pattern": "t-${entityName}", "entity.names": "e", "max.retries": "0"}
    given |= {name.replace("_", "."): text for name, text in more.items()}
    return HttpSource(parse(HttpSource.settings, given), ConnectorContext("unit", "workers", 1, {}))


def read(source: HttpSource, offset: Mapping[str, Any] | None) -> tuple[list[Any], Mapping[str, Any] | None]:
    """The values of one round, and the offset after it."""
    values = []
    for batch in source.read(Part({"entity": "e"}), offset):
        for rows in batch.rows:
            assert isinstance(rows, list)
            assert all(each.topic == "t-e" for each in rows)
            values += [each.value for each in rows]
        offset = batch.offset
    return values, offset


def serve_list(values: list[Any]) -> Callable[[Request], Answer]:
    """What follows the parameter `from`, two at a time."""

    def answer(request: Request) -> Answer:
        start = int(parse_qs(urlsplit(request.path).query)["from"][0])
        return 200, json.dumps({"data": {"items": values[start : start + 2]}}).encode()

    return answer


def test_counting() -> None:
    values: list[Any] = [{"id": n} for n in range(3)]
    with http_server(serve_list(values)) as server:
        source = make_source(server, "/${entityName}?from=${offset}", http_response_data_json_pointer="/data/items")
        first, offset = read(source, None)
        second, offset = read(source, offset)
        nothing, offset = read(source, offset)
        values.append({"id": 3})
        third, offset = read(source, offset)
    assert (first, second, nothing, third) == (values[:2], values[2:3], [], values[3:])
    assert offset == {"offset": "4", "seen": 0}
    assert server.requests[0].path == "/e?from=0"


def test_chaining() -> None:
    """The offset of the last record is that of the next request."""

    def answer(request: Request) -> Answer:
        assert request.method == "POST"
        after = json.loads(request.body)["after"]
        return 200, json.dumps([{"id": f"{n:02}"} for n in range(20) if f"{n:02}" > after][:3]).encode()

    with http_server(answer) as server:
        source = make_source(
            server,
            "/",
            http_offset_mode="chaining",
            http_offset_json_pointer="/id",
            http_initial_offset="14",
            http_request_method="POST",
            http_request_body='{"after": "${offset}"}',
        )
        first, offset = read(source, None)
        second, offset = read(source, offset)
        third, after = read(source, offset)
    assert [each["id"] for each in first + second] == ["15", "16", "17", "18", "19"]
    assert (third, after) == ([], {"offset": "19", "seen": 0})


def serve_pages(pages: list[list[int]], next_of: Callable[[int], Any]) -> Callable[[Request], Answer]:
    def answer(request: Request) -> Answer:
        number = int((parse_qs(urlsplit(request.path).query).get("page") or ["0"])[0] or 0)
        more = next_of(number + 1) if number + 1 < len(pages) else None
        return 200, json.dumps({"rows": pages[number], "next": more}).encode()

    return answer


def test_cursors() -> None:
    """All pages of a round; of the last one only what was added later comes."""
    pages = [[1, 2], [3, 4], [5]]
    with http_server(serve_pages(pages, lambda number: number)) as server:
        source = make_source(
            server,
            "/?page=${offset}",
            http_offset_mode="CURSOR_PAGINATION",
            http_response_data_json_pointer="/rows",
            http_next_page_json_pointer="/next",
        )
        first, offset = read(source, None)
        nothing, same = read(source, offset)
        pages[2].append(6)
        pages.append([7])
        second, last = read(source, same)
    assert (first, offset) == ([1, 2, 3, 4, 5], {"offset": "2", "seen": 1})
    assert (nothing, same) == ([], offset)
    assert (second, last) == ([6, 7], {"offset": "3", "seen": 1})


@pytest.mark.parametrize("kind", ["json", "header"])
def test_links_to_the_next_page(kind: str) -> None:
    pages = [[1, 2], [3]]

    def answer(request: Request) -> Answer:
        status, body, *_ = serve_pages(pages, lambda number: f"?page={number}")(request)
        link = json.loads(body)["next"]
        headers = {"Link": f'</first>; rel="first", <{link}>; rel="next"'} if link and kind == "header" else {}
        return status, body, headers

    with http_server(answer) as server:
        more = {"http_next_page_json_pointer": "/next"} if kind == "json" else {}
        source = make_source(
            server, "/list", http_offset_mode="NEXT_LINK", http_response_data_json_pointer="/rows", **more
        )
        first, offset = read(source, None)
        pages[1].append(4)
        second, last = read(source, offset)
    assert (first, second) == ([1, 2, 3], [4])
    assert last == {"offset": f"{server.url}/list?page=1", "seen": 2}


def test_a_link_to_another_server_is_not_followed() -> None:
    """It would get our credentials."""
    with http_server(lambda request: (200, b'{"next": "http://evil.example/"}')) as server:
        more = {"http_offset_mode": "NEXT_LINK", "http_next_page_json_pointer": "/next"}
        with pytest.raises(ConnectError, match="on another server"):
            read(make_source(server, "/", **more), None)


def test_answers_that_are_none() -> None:
    with http_server() as server:
        source = make_source(server, "/")
        server.answer = lambda request: (200, b"")
        assert read(source, None) == ([], None)
        server.answer = lambda request: (200, b"<html>")
        with pytest.raises(ConnectError, match="the answer is no JSON"):
            read(source, None)
        server.answer = lambda request: (404, b"nothing here")
        with pytest.raises(ConnectError, match="status 404: nothing here"):
            read(source, None)
        server.answer = lambda request: (503, b"")
        with pytest.raises(RetriableError, match="busy or away"):
            read(source, None)
        more = {"http_offset_mode": "CHAINING", "http_offset_json_pointer": "/id"}
        server.answer = lambda request: (200, b'[{"x": 1}]')
        with pytest.raises(ConnectError, match="has no offset"):
            read(make_source(server, "/", **more), None)


def test_when_the_server_is_asked() -> None:
    """Once for each entity, and then after the interval."""
    with http_server() as server:
        source = make_source(server, "/${entityName}", entity_names="a,b", request_interval_ms="10000000")
        assert [each.partition["entity"] for each in source.plan({})] == ["a", "b"]
        assert source.plan({}) == []


def test_parameters_and_headers() -> None:
    with http_server(lambda request: (200, b"[]")) as server:
        source = make_source(
            server,
            "/x?a=1",
            http_request_parameters="b=${offset}&c=${entityName}",
            http_initial_offset="5",
            http_request_headers="X-One:1",
            http_request_sensitive_headers="X-Key: hush",
        )
        read(source, None)
    assert server.requests[0].path == "/x?a=1&b=5&c=e"
    assert (server.requests[0].headers["X-One"], server.requests[0].headers["X-Key"]) == ("1", "hush")


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"url": "nowhere"}, "url"),
        ({"url": "http://x/${entityName}"}, "entity.names"),
        ({"http.offset.mode": "CHAINING"}, "http.offset.json.pointer"),
        ({"http.offset.mode": "CURSOR_PAGINATION"}, "http.next.page.json.pointer"),
        ({"http.initial.offset": "x"}, "http.initial.offset"),
        ({"http.response.data.json.pointer": "a"}, "http.response.data.json.pointer"),
        ({"auth.type": "OAUTH2"}, "auth.type"),
    ],
)
def test_what_cannot_be_obeyed_is_named(more: dict[str, str], name: str) -> None:
    with pytest.raises(BadConfig, match=name):
        parse(HttpSource.settings, {"url": "http://x", "topic.name.pattern": "t", **more})


@pytest.mark.parametrize(
    ("pointer", "expected"),
    [
        ("", {"a/b": [1, {"~": 2}]}),
        ("/a~1b/0", 1),
        ("/a~1b/1/~0", 2),
        ("/a~1b/9", None),
        ("/x", None),
        ("/a~1b/x", None),
    ],
)
def test_pointers(pointer: str, expected: Any) -> None:
    assert follow_pointer({"a/b": [1, {"~": 2}]}, pointer) == expected


@pytest.mark.parametrize("offset", [{"offset": 5}, {"offset": "1", "seen": -1}, {"offset": "1", "seen": True}])
def test_offsets_that_are_none(offset: dict[str, Any]) -> None:
    with http_server() as server:
        source = make_source(server, "/")
    with pytest.raises(ConnectError, match="an offset of this source"):
        source.check_offset({"entity": "e"}, offset)
    source.check_offset({"entity": "e"}, {"offset": "5", "seen": 0})
