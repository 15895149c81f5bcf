"""Paths, methods, media types and sizes are accepted and refused as Kafka Connect's server does it."""

import asyncio
import json
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

from ottla.connect.rest.application import Application
from ottla.connect.rest.basic_auth import Users
from ottla.connect.rest.bodies import BODY_BYTES_MAX
from ottla.connect.rest.guard import Guard
from ottla.connect.rest.listeners import read_rest_options
from ottla.connect.rest.routing import Answer, Call, Resource, RestError
from ottla.connect.settings.redaction import Redactor
from tests.patience import PATIENCE_S
from tests.unit.connect.rest.conftest import RestClient, serve


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/nothing", 404, "HTTP 404 Not Found"),
        ("GET", "/connectors/x/tasks/a/status", 404, "HTTP 404 Not Found"),
        ("GET", "/connectors/x/tasks/99999999999/status", 404, "HTTP 404 Not Found"),
        ("DELETE", "/connectors", 405, "HTTP 405 Method Not Allowed"),
        ("TRACE", "/connectors", 405, "HTTP 405 Method Not Allowed"),
        ("PUT", "/", 405, "HTTP 405 Method Not Allowed"),
        ("GET", "/connectors//status", 400, "Ambiguous URI empty segment"),
        ("GET", "/connectors/a%2Fb", 400, "Ambiguous URI path separator"),
        ("GET", "/connectors/a%09b", 400, "Illegal character in path"),
        ("GET", "/connectors/a%20b", 404, "Connector a b not found"),
        ("GET", "/connectors/%C3%A4", 404, "Connector ä not found"),
    ],
)
def test_a_wrong_path_or_method_is_answered_as_jersey_does(
    client: RestClient, method: str, path: str, status: int, message: str
) -> None:
    assert client.send(method, path)[:2] == (status, {"error_code": status, "message": message})


def test_a_slash_at_the_end_does_not_matter(client: RestClient) -> None:
    client.create("c")
    for path in ("/connectors", "/connectors/c", "/connectors/c/status", "/connector-plugins", "/health"):
        assert client.send("GET", path)[0] == 200
        assert client.send("GET", path)[:2] == client.send("GET", f"{path}/")[:2]
    assert client.send("PUT", "/connectors/c/pause/")[0] == 202


def test_head_and_options(client: RestClient) -> None:
    status, text, headers = client.send("HEAD", "/connectors")
    assert (status, text, headers["content-length"]) == (200, "", "2")
    status, text, headers = client.send("OPTIONS", "/connectors/c/config")
    assert (status, text) == (200, "HEAD, GET, PUT, PATCH, OPTIONS")
    assert headers["allow"] == "HEAD,GET,PUT,PATCH,OPTIONS"
    assert client.send("OPTIONS", "/nothing")[0] == 404


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""])
def test_another_media_type_is_refused_whatever_the_method(client: RestClient, kind: str) -> None:
    for method, path in (("POST", "/connectors"), ("POST", "/connectors/c/restart"), ("GET", "/connectors")):
        status, document, _ = client.send(method, path, raw=b"{}", Content_Type=kind)
        assert (status, document["message"]) == (415, "HTTP 415 Unsupported Media Type")


def test_json_may_have_parameters_and_any_case(client: RestClient) -> None:
    for kind in ("application/json; charset=utf-8", "APPLICATION/JSON"):
        assert client.send("POST", "/connectors", {"name": "x", "config": {}}, Content_Type=kind)[0] == 400


def test_a_client_that_does_not_want_json_gets_none(client: RestClient) -> None:
    assert client.send("GET", "/connectors", Accept="text/plain")[0] == 406
    assert client.send("GET", "/connectors", Accept="text/html, */*;q=0.1")[0] == 200


def test_a_body_that_is_too_large_is_refused_unread(client: RestClient) -> None:
    status, document, _ = client.send("PUT", "/connectors/c/config", Content_Length=str(BODY_BYTES_MAX + 1))
    assert (status, document["message"]) == (413, "HTTP 413 Content Too Large")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "The request has no body"),
        (b"{", "The request body is not JSON: Expecting property name enclosed in double quotes"),
        (b"[" * 100_000, "The request body is not JSON"),
        (b"\xff", "The request body is not JSON"),
        (b'{"name":"\\ud800","config":{}}', "The request body is not JSON"),
        (b"[]", "The request body is a list instead of a JSON object"),
        (b"null", "The request body is null instead of a JSON object"),
        (b'{"name":"x","foo":1}', 'Unrecognized field "foo"; known are name, config, initial_state'),
        (b'{"name":"x"}', "config is null instead of a JSON object"),
        (b'{"name":"x","config":{"a":{}}}', "The value of a is an object instead of a text"),
        (b'{"name":[],"config":{}}', "name is a list instead of a text"),
        (b'{"name":"x","config":{},"initial_state":"foo"}', "There is no initial_state foo"),
    ],
)
def test_a_body_that_cannot_be_read_has_kafkas_status_and_a_clear_message(
    client: RestClient, body: bytes, message: str
) -> None:
    status, document, _ = client.send("POST", "/connectors", raw=body, Content_Type="application/json")
    assert status == 500
    assert document["error_code"] == 500
    assert document["message"].startswith(message)


class TestBrowsers:
    """Pages of other sites can neither change nor read anything through a browser."""

    def test_a_page_of_another_site_changes_nothing(self, client: RestClient) -> None:
        client.create("c")
        for origin in ("http://evil.example", "null", f"https://127.0.0.1.evil.example:{client.port}"):
            status, document, _ = client.send("POST", "/connectors/c/restart", Origin=origin)
            assert status == 403
            assert origin in document["message"]
        assert client.send("POST", "/connectors/c/restart", Origin=f"http://127.0.0.1:{client.port}")[0] == 204

    def test_a_page_of_another_site_gets_no_leave_to_read(self, client: RestClient) -> None:
        assert "access-control-allow-origin" not in client.send("GET", "/connectors", Origin="http://evil.example")[2]

    def test_a_name_that_is_not_of_this_machine_is_refused(self, client: RestClient) -> None:
        assert client.send("GET", "/connectors", Host="evil.example:8083")[0] == 403
        for name in ("localhost", "LOCALHOST:8083", "127.0.0.1", "[::1]:8083"):
            assert client.send("GET", "/connectors", Host=name)[0] == 200


def test_a_page_that_gives_its_own_name_the_address_of_a_worker_changes_nothing() -> None:
    """A worker on the network does not know all its names, so a page could call its own name one of them (DNS
    rebinding). Programs, which have no Origin, may use any name, and so may pages if there are passwords."""
    options = read_rest_options({"listeners": "http://:8083", "rest.advertised.host.name": "Connect.example"})
    guard = options.make_guard(options.listeners, "Machine")
    for host in ("connect.example:8083", "machine:8083", "10.1.2.3:8083", "[fd00::1]:8083", "localhost:8083"):
        guard.check("POST", {"host": host, "origin": f"http://{host}"})
    guard.check("POST", {"host": "any.example:8083"})
    page = {"host": "evil.example:8083", "origin": "http://evil.example:8083"}
    with pytest.raises(RestError, match=r"Pages of http://evil\.example:8083 may not change anything"):
        guard.check("POST", page)
    replace(guard, origins=(page["origin"],)).check("POST", page)
    replace(guard, users=Users({"ottla": "hush"})).check("POST", page | {"authorization": "Basic b3R0bGE6aHVzaA=="})


def test_a_page_of_an_allowed_site_may_do_everything() -> None:
    properties = {
        "access.control.allow.origin": "https://ui.example, https://other.example",
        "access.control.allow.methods": "GET,PUT",
        "response.http.headers.config": "add X-Frame-Options: DENY, set Cache-Control: no-store",
    }
    with serve(properties) as client:
        client.create("c")
        status, _, headers = client.send("PUT", "/connectors/c/pause", Origin="https://ui.example")
        assert status == 202
        assert headers["access-control-allow-origin"] == "https://ui.example"
        assert (headers["x-frame-options"], headers["cache-control"]) == ("DENY", "no-store")
        assert client.send("PUT", "/connectors/c/pause", Origin="https://evil.example")[0] == 403
        preflight: dict[str, Any] = {"Origin": "https://ui.example", "Access_Control_Request_Method": "PUT"}
        headers = client.send("OPTIONS", "/connectors", **preflight)[2]
        assert headers["access-control-allow-methods"] == "GET,PUT"


def test_a_caller_is_told_when_the_worker_does_not_finish() -> None:
    """The request is given up after its time; what was asked for goes on."""
    finish = Event()

    def wait(call: Call) -> Answer:
        finish.wait(PATIENCE_S)
        return Answer(204)

    application = Application([Resource("/", {"GET": wait})], Redactor(), Guard(is_loopback=False), timeout_s=0.01)
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "scheme": "http", "server": ("h", 1), "path": "/", "raw_path": b"/"}
    try:
        asyncio.run(application({**scope, "query_string": b"", "headers": []}, receive, send))
    finally:
        finish.set()
    assert sent[0]["status"] == 500
    assert json.loads(sent[1]["body"]) == {"error_code": 500, "message": "Request timed out"}
