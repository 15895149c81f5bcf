"""The console of a cluster with logins and ACLs: users, ACLs and quotas are changed; what is denied is explained."""

import re
import time
from collections.abc import Iterator
from contextlib import closing
from html import unescape

import pytest
from starlette.types import ASGIApp

import ottla.testing
from ottla.client.client import Client
from ottla.client.connection import NotAuthenticated
from ottla.console.app import make_app
from ottla.console.console import Console, Options
from ottla.console.facts.quotas import parse_amount, write_amount
from ottla.console.guarding import LOOPBACK_NAMES
from ottla.testing import LocalBroker
from tests.unit.console.asgi import Answer, ask
from tests.unit.console.conftest import now_ms, patient
from tests.unit.console.seeding import make_topic
from tests.unit.console.test_changes import note_of


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with ottla.testing.broker(security="sasl_ssl", acls=True) as local:
        yield local


def make_console(broker: LocalBroker, settings: dict[str, str]) -> Console:
    return Console(Options({**patient(broker.bootstrap), **settings}), now_ms, time.monotonic)


@pytest.fixture(scope="module")
def console(broker: LocalBroker) -> Iterator[Console]:
    """Of an administrator."""
    made = make_console(broker, broker.client_settings)
    yield made
    made.close()


@pytest.fixture(scope="module")
def nobody(broker: LocalBroker) -> Iterator[ASGIApp]:
    """The console of a user without a single right."""
    made = make_console(broker, broker.create_user("nobody"))
    yield make_app(made, LOOPBACK_NAMES, None)
    made.close()


def alert_of(answer: Answer) -> str:
    (found,) = re.findall(r'role="alert">(.*?)</p>', answer.text, re.DOTALL)
    return unescape(found)


def can_log_in(broker: LocalBroker, name: str, password: str) -> bool:
    login = {**broker.client_settings, "sasl.username": name, "sasl.password": password}
    with closing(Client(login)) as client:
        try:
            client.connect_any()
        except NotAuthenticated:
            return False
    return True


def test_users_are_created_changed_and_deleted(app: ASGIApp, broker: LocalBroker) -> None:
    form = {"action": "create", "name": "ann", "password": "first, =odd", "iterations": "8192"}
    assert note_of(app, ask(app, "/access/users", form)) == "User ann is created."
    assert can_log_in(broker, "ann", "first, =odd")
    assert re.search(r"ann</th><td>.*SCRAM-SHA-256, 8\W192 iterations", ask(app, "/access").text)
    assert "exists" in alert_of(ask(app, "/access/users", form))
    changed = ask(app, "/access/users", {"action": "password", "name": "ann", "password": "second"})
    assert note_of(app, changed) == "User ann has a new password."
    assert can_log_in(broker, "ann", "second")
    assert not can_log_in(broker, "ann", "first, =odd")
    assert ask(app, "/access/users", {"action": "delete", "name": "ann"}).status == 400  # not confirmed
    deleted = ask(app, "/access/users", {"action": "delete", "name": "ann", "confirm": "ann"})
    assert note_of(app, deleted) == "User ann is deleted."
    assert not can_log_in(broker, "ann", "second")


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"name": "x"},
        {"name": "x", "action": "create"},
        {"name": "x", "action": "create", "password": "p", "mechanism": "PLAIN"},
        {"name": "x", "action": "create", "password": "p", "iterations": "5"},
        {"name": "missing", "action": "password", "password": "p"},
        {"name": "missing", "action": "delete", "confirm": "missing"},
    ],
)
def test_users_that_cannot_be(app: ASGIApp, form: dict[str, str]) -> None:
    assert alert_of(ask(app, "/access/users", form))


def test_acls_are_created_and_deleted(app: ASGIApp, broker: LocalBroker) -> None:
    acl = {
        "principal": "User:ben",
        "permission": "3",
        "operation": "3",
        "resource_type": "2",
        "pattern_type": "4",
        "resource_name": "orders-",
        "host": "",
    }
    assert note_of(app, ask(app, "/access", {**acl, "action": "create"})) == "The ACL is created."
    page = ask(app, "/access").text
    assert re.search(r"User:ben</th><td>.*?allow.*?<td>read</td><td>topic</td><td.*?>orders-", page)
    assert note_of(app, ask(app, "/access", {**acl, "action": "delete"})) == "The ACL is deleted."
    assert note_of(app, ask(app, "/access", {**acl, "action": "delete"})) == "The ACL was gone already."
    assert "User:ben" not in ask(app, "/access").text
    for wrong in ({"principal": ""}, {"operation": "99"}, {"action": "explode"}, {"principal": "ben"}):
        assert ask(app, "/access", {**acl, "action": "create", **wrong}).status in (400, 409), wrong


def test_quotas_are_set_and_removed(app: ASGIApp) -> None:
    form = {"action": "set", "user": "ann", "client-id": "<default>", "key": "producer_byte_rate", "value": "1.5M"}
    note = note_of(app, ask(app, "/access/quotas", form))
    assert note == "producer_byte_rate of user ann, default client-id is limited to 1572864."
    assert re.search(
        r"ann.*?&lt;default&gt;.*?producer_byte_rate</td><td class=\"num\">1572864<", ask(app, "/access").text
    )
    ask(app, "/access/quotas", {"action": "set", "ip": "10.0.0.1", "key": "connection_creation_rate", "value": "0.5"})
    assert "10.0.0.1" in ask(app, "/access").text
    removed = ask(app, "/access/quotas", {**form, "action": "remove"})
    assert (
        note_of(app, removed) == "producer_byte_rate of user ann, default client-id has no limit of its own any more."
    )
    assert "producer_byte_rate</td>" not in ask(app, "/access").text


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"action": "set", "user": "a", "key": "consumer_byte_rate", "value": "much"},
        {"action": "set", "user": "a", "key": "consumer_byte_rate", "value": "-1"},
        {"action": "set", "user": "a", "key": "speed", "value": "1"},
        {"action": "set", "user": "a", "ip": "1.2.3.4", "key": "consumer_byte_rate", "value": "1"},
        {"action": "set", "ip": "no address", "key": "connection_creation_rate", "value": "1"},
        {"action": "explode", "user": "a", "key": "consumer_byte_rate", "value": "1"},
    ],
)
def test_quotas_that_cannot_be(app: ASGIApp, form: dict[str, str]) -> None:
    assert alert_of(ask(app, "/access/quotas", form))


@pytest.mark.parametrize(
    ("path", "form", "reason"),
    [
        ("/topics", {"name": "x"}, "CLUSTER_AUTHORIZATION_FAILED|TOPIC_AUTHORIZATION_FAILED"),
        ("/access/users", {"name": "x", "action": "create", "password": "p"}, "CLUSTER_AUTHORIZATION_FAILED"),
        (
            "/access/quotas",
            {"user": "x", "action": "set", "key": "consumer_byte_rate", "value": "1"},
            "CLUSTER_AUTHORIZATION_FAILED",
        ),
        (
            "/access",
            {
                **{"action": "create", "principal": "User:x", "permission": "3", "operation": "3"},
                **{"resource_type": "2", "pattern_type": "3", "resource_name": "t"},
            },
            "CLUSTER_AUTHORIZATION_FAILED",
        ),
        ("/brokers/1", {"name": "num.io.threads", "value": "9"}, "CLUSTER_AUTHORIZATION_FAILED"),
        ("/transactions", {"action": "abort", "name": "x"}, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    ],
)
def test_what_is_denied_is_explained_in_one_line(nobody: ASGIApp, path: str, form: dict[str, str], reason: str) -> None:
    answer = ask(nobody, path, form)
    assert answer.status == 403
    assert re.search(reason, alert_of(answer))
    assert "\n" not in alert_of(answer)


def test_pages_of_somebody_without_rights_answer(nobody: ASGIApp, console: Console) -> None:
    # What may not be seen is left out or says why; no page fails. A topic that may not be seen does not exist.
    make_topic(console, "secret")
    for path in ("/", "/brokers/1", "/topics", "/groups", "/transactions", "/apps", "/connectors", "/access"):
        answer = ask(nobody, path)
        assert answer.status == 200, path
        assert "secret" not in answer.text
    for path in ("/topics/secret", "/topics/secret/records", "/topics/secret/settings"):
        assert ask(nobody, path).status == 404, path
    assert "CLUSTER_AUTHORIZATION_FAILED" in ask(nobody, "/").text
    assert ask(nobody, "/access").text.count("CLUSTER_AUTHORIZATION_FAILED") == 3


def test_amounts() -> None:
    assert [parse_amount(text) for text in ("1048576", "10M", "0.5", " 1KiB ")] == [1048576, 10485760, 0.5, 1024]
    assert [write_amount(value) for value in (1048576.0, 0.5, 1e18)] == ["1048576", "0.5", "1000000000000000000"]
    for text in ("", "-1", "x", "1e5", "9" * 400):
        with pytest.raises(ValueError, match="not a number"):
            parse_amount(text)
