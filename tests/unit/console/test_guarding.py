"""Which requests the console lets in: DNS rebinding, CSRF, login, read-only mode; headers of every answer."""

import re

import pytest
from starlette.routing import Route

from ottla.console.app import make_routes
from ottla.console.guarding import is_loopback, name_of
from ottla.console.login import ATTEMPTS_MAX, SESSION_S, Login, TooManyAttempts
from ottla.console.serving import Listening, needs_login
from tests.unit.console.asgi import ask
from tests.unit.console.conftest import Starter


def test_a_page_of_another_name_gets_no_answer(start: Starter) -> None:
    # DNS rebinding: the attacker's name points to this machine, but its browser says the name.
    app = start()
    for host in ("evil.example", "evil.example:9280", "localhost.evil.example", ""):
        answer = ask(app, "/static/console.css", headers={"host": host})
        assert answer.status == 421, host
        assert ":root" not in answer.text
    for host in ("localhost", "LOCALHOST:9280", "127.0.0.1:1", "[::1]:9280", "[::1]"):
        assert ask(app, "/static/console.css", headers={"host": host}).status == 200, host


def test_a_form_of_another_site_changes_nothing(start: Starter) -> None:
    app = start()
    for origin in ("http://evil.example", "null", "http://localhost:8000", "-", ""):
        answer = ask(app, "/topics", {"name": "x"}, headers={"origin": origin})
        assert answer.status == 403, origin
        assert "Origin" in answer.text
    own = ask(app, "/topics", {"name": ""})
    assert own.status == 400  # let in, and refused for what the form says


def test_a_method_that_is_no_form_is_checked_as_one(start: Starter) -> None:
    app = start()
    for method in ("PUT", "DELETE", "PATCH", "POST"):
        assert ask(app, "/topics", method=method).status == 403, method


def list_changes() -> list[str]:
    """The path of every route that changes something, with values for its parameters."""
    return [
        re.sub(r"\{\w+:int\}", "1", re.sub(r"\{\w+(:path)?\}", "a", route.path))
        for route in make_routes()
        if isinstance(route, Route) and "POST" in (route.methods or ())
    ]


def test_every_route_that_changes_something_is_guarded(start: Starter) -> None:
    # All routes, also those that are added later: refused in read-only mode, for another site, for another name, and
    # without a login. No other method changes anything.
    changes = [path for path in list_changes() if path not in ("/login", "/logout")]
    assert len(changes) >= 13
    absent = {"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": "1"}
    free, read_only, closed = start(settings=absent), start(is_read_only=True), start(token="sesame")
    for path in changes:
        refused = ask(read_only, path, {"action": "x"})
        assert (refused.status, "read-only" in refused.text) == (403, True), path
        for headers in ({"origin": "http://evil.example"}, {"origin": "-"}, {"origin": "null"}):
            assert ask(free, path, {"action": "x"}, headers=headers).status == 403, path
        evil = {"host": "evil.example:9280", "origin": "http://evil.example:9280"}
        assert ask(free, path, {"action": "x"}, headers=evil).status == 421, path
        assert ask(closed, path, {"action": "x"}).status == 401, path
        assert ask(free, path, {"action": "x"}, method="PUT").status == 405, path
        let_in = ask(free, path, {"action": "no such action", "name": "", "record": "x"})
        assert let_in.status in (400, 502), path  # the form is wrong, or there is no cluster
    for route in make_routes():
        methods = getattr(route, "methods", None) or {"GET"}
        assert methods <= {"GET", "HEAD"} or methods == {"POST"}, route


def test_every_answer_has_a_strict_policy(start: Starter) -> None:
    app = start()
    for answer in (ask(app, "/nowhere"), ask(app, "/static/htmx.min.js"), ask(app, "/", headers={"host": "evil"})):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"


def test_a_login_is_asked_and_remembered(start: Starter) -> None:
    app = start(token="sesame")
    first = ask(app, "/topics?q=a")
    assert (first.status, first.headers["location"]) == (303, "/login?to=/topics%3Fq%3Da")
    assert ask(app, "/topics", headers={"accept": "application/json"}).status == 401
    assert ask(app, "/login").status == 200
    assert ask(app, "/login", {"token": "wrong"}).status == 401
    entered = ask(app, "/login", {"token": "sesame", "to": "/topics?q=a"})
    assert (entered.status, entered.headers["location"]) == (303, "/topics?q=a")
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert ask(app, "/nowhere", headers={"cookie": cookie.split(";")[0]}).status == 404  # let in
    assert ask(app, "/nowhere", headers={"authorization": "Bearer sesame"}).status == 404
    assert ask(app, "/nowhere", headers={"authorization": "Bearer open"}).status == 401
    assert ask(app, "/logout", {}, headers={"cookie": cookie.split(";")[0]}).status == 303


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", ""])
def test_a_login_leads_to_the_console_only(start: Starter, to: str) -> None:
    answer = ask(start(token="sesame"), "/login", {"token": "sesame", "to": to})
    assert answer.headers["location"] == "/"


@pytest.mark.parametrize("cookie", ["", "9999999999.", "9999999999.abc", "a.b", "ottla_console=;;=", "9" * 40 + ".é"])
def test_a_forged_cookie_opens_nothing(start: Starter, cookie: str) -> None:
    app = start(token="sesame")
    header = f"ottla_console={cookie}".encode().decode("latin-1")
    assert ask(app, "/topics", headers={"cookie": header}).status == 303


def test_a_cookie_ends_with_its_time_and_with_the_key() -> None:
    now = [1_000_000]
    login = Login("t", b"key", lambda: now[0])
    cookie = login.make_cookie()
    assert login.knows_cookie(cookie)
    assert not Login("t", b"other", lambda: now[0]).knows_cookie(cookie)
    now[0] += (SESSION_S + 1) * 1000
    assert not login.knows_cookie(cookie)


def test_guessing_is_slow() -> None:
    now = [0]
    login = Login("t", b"key", lambda: now[0])
    for _ in range(ATTEMPTS_MAX):
        assert not login.accepts("guess")
    with pytest.raises(TooManyAttempts):
        login.accepts("t")
    now[0] += 61_000
    assert login.accepts("t")


def test_below_a_path_of_a_proxy(start: Starter) -> None:
    # The proxy may remove the path or leave it; links have it.
    app = start(token="sesame", root_path="/kafka")
    assert ask(app, "/kafka/topics").headers["location"] == "/kafka/login?to=/topics"
    assert ask(app, "/topics").headers["location"] == "/kafka/login?to=/topics"
    page = ask(app, "/kafka/login").text
    assert 'href="/kafka/static/console.css"' in page
    assert 'action="/kafka/login"' in page
    assert "Path=/kafka" in ask(app, "/kafka/login", {"token": "sesame"}).headers["set-cookie"]


def test_who_is_asked_for_a_login() -> None:
    assert not needs_login(Listening("localhost", 1))
    assert not needs_login(Listening("::1", 1))
    assert needs_login(Listening("localhost", 1, "token"))
    assert needs_login(Listening("0.0.0.0", 1))
    assert needs_login(Listening("localhost", 1, allowed_hosts=["kafka.example"]))  # a proxy lets others in
    assert not needs_login(Listening("0.0.0.0", 1, is_open=True))


def test_names_and_addresses() -> None:
    assert [name_of(host) for host in ("a:1", "A", "[::1]:2", "[::1]")] == ["a", "a", "[::1]", "[::1]"]
    assert is_loopback("127.8.8.8")
    assert is_loopback("LOCALHOST")
    assert not is_loopback("10.0.0.1")
    assert not is_loopback("localhost.example")


def test_a_cluster_that_is_not_there_is_explained(start: Starter) -> None:
    answer = ask(start(settings={"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": "1"}), "/topics")
    assert answer.status == 502
    assert "connection refused" in answer.text
    assert "ottla up" in answer.text
