"""Connectors in the console, through the REST API of a worker: state, actions, new ones and changed ones."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from starlette.types import ASGIApp

from ottla.connect.worker.herder import ConnectorOffset, ConnectorStatus, NotFound
from ottla.console.facts.connectors import HIDDEN, hide, parse_config, write_config
from tests.unit.connect.rest.conftest import RestClient, serve
from tests.unit.connect.rest.herders import SINK, SOURCE
from tests.unit.connect.rest.test_security import make_users
from tests.unit.console.asgi import Answer, ask
from tests.unit.console.conftest import Starter
from tests.unit.console.test_changes import note_of

OFFERED = {"RUNNING": ["pause", "restart", "stop"], "PAUSED": ["restart", "resume", "stop"], "STOPPED": ["resume"]}
LINES = f"name=lines\nconnector.class={SOURCE}\ntopic=t\n"


@pytest.fixture(scope="module")
def worker() -> Iterator[RestClient]:
    with serve({}) as client:
        yield client


@pytest.fixture
def app(worker: RestClient, start: Starter) -> ASGIApp:
    worker.herder.clear()
    return start(connect_url=f"http://127.0.0.1:{worker.port}/")


def errors_of(answer: Answer) -> dict[str, str]:
    """What the page says is wrong, by setting."""
    table = answer.text.partition('aria-label="What is wrong"')[2].partition("</table>")[0]
    return {
        unescape(name): unescape(text)
        for name, text in re.findall(r'<th scope="row">(.*?)</th><td.*?>(.*?)</td>', table)
    }


def find_no_status(name: str) -> ConnectorStatus:
    raise NotFound(f"No status found for connector {name}")


def test_a_new_connector_is_checked_then_created(
    app: ASGIApp, worker: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = unescape(ask(app, f"/connectors?plugin={SOURCE}").text)
    assert f"connector.class={SOURCE}\ntasks.max=1\ntopic=\n" in offered  # what the plug-in needs
    wrong = ask(app, "/connectors", {"action": "create", "config": f"{LINES}batch.size=many\n"})
    assert wrong.status == 400
    assert "batch.size" in errors_of(wrong)
    assert "batch.size=many" in unescape(wrong.text)  # nothing that was typed is lost
    checked = ask(app, "/connectors", {"action": "check", "config": LINES})
    assert "The worker accepts this configuration." in checked.text
    assert worker.herder.configs == {}
    created = ask(app, "/connectors", {"action": "create", "config": LINES})
    assert note_of(app, created) == "Connector lines is created."
    assert worker.herder.configs["lines"]["topic"] == "t"
    monkeypatch.setattr(worker.herder, "get_status", find_no_status)
    fresh = ask(app, "/connectors/lines")
    assert (fresh.status, "No tasks." in fresh.text) == (200, True)  # the page renews itself until there are some
    twice = ask(app, "/connectors", {"action": "create", "config": LINES})
    assert (twice.status, "Connector lines already exists" in twice.text) == (400, True)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ("", "a connector needs name and connector.class"),
        ("name=a", "a connector needs name and connector.class"),
        ("nonsense", "'nonsense' is not key=value"),
        ("{", "the configuration is no JSON"),
        ('{"a": {"b": 1}}', "a setting is text, a number, true, false or null"),
        ("name=a\nconnector.class=Missing", "Failed to find any class that implements Connector"),
    ],
)
def test_a_configuration_that_cannot_be(app: ASGIApp, config: str, reason: str) -> None:
    answer = ask(app, "/connectors", {"action": "create", "config": config})
    assert answer.status == 400
    assert reason in unescape(answer.text)


def test_states_and_tasks(app: ASGIApp, worker: RestClient) -> None:
    worker.create("a b")
    path = "/connectors/a%20b"
    for action, done, state in (
        ("pause", "is paused", "PAUSED"),
        ("resume", "is resumed", "RUNNING"),
        ("restart", "is restarted", "RUNNING"),
        ("stop", "is stopped", "STOPPED"),
        ("resume", "is resumed", "RUNNING"),
    ):
        assert note_of(app, ask(app, path, {"action": action})) == f"Connector a b {done}."
        page = ask(app, path).text
        assert re.search(rf'<h1>a b <span id="state" data-renew><span class="badge \w*">{state}</span>', page), action
        offered = re.findall(r'name="action" value="(pause|resume|restart|stop)"', page)
        assert sorted(offered) == OFFERED[state]
    restarted = ask(app, path, {"action": "restart-task", "task": "0"})
    assert note_of(app, restarted) == "Connector a b has restarted task 0."
    assert ask(app, path, {"action": "restart-task", "task": "7"}).status == 400
    assert ask(app, path, {"action": "explode"}).status == 400
    assert ask(app, path, {"action": "delete", "confirm": "a"}).status == 400
    assert note_of(app, ask(app, path, {"action": "delete", "confirm": "a b"})) == "Connector a b is deleted."
    assert worker.herder.configs == {}


def test_a_configuration_is_changed_and_its_secrets_stay(app: ASGIApp, worker: RestClient) -> None:
    worker.create("c", secret="geheim", **{"batch.size": "5"})
    page = unescape(ask(app, "/connectors/c").text)
    assert "geheim" not in page
    shown = page.partition('spellcheck="false" required>')[2].partition("</textarea>")[0]
    assert f"secret={HIDDEN}" in shown.splitlines()
    wrong = ask(app, "/connectors/c", {"action": "save", "config": shown.replace("=5", "=five")})
    assert "batch.size" in errors_of(wrong)
    assert worker.herder.configs["c"]["batch.size"] == "5"
    saved = ask(app, "/connectors/c", {"action": "save", "config": shown.replace("=5", "=6")})
    assert note_of(app, saved) == "The configuration of c is changed."
    assert worker.herder.configs["c"]["batch.size"] == "6"
    assert worker.herder.configs["c"]["secret"] == "geheim"


def test_traces_and_offsets_are_shown_escaped(app: ASGIApp, worker: RestClient) -> None:
    worker.create("c")
    worker.herder.traces["c"] = "<b>the file is away</b>\nat line 1"
    worker.herder.task_traces["c"] = "<b>the task is lost</b>\nat line 2"
    worker.herder.offsets["c"] = [ConnectorOffset({"filename": "<i>"}, {"position": 9_007_199_254_740_993})]
    page = ask(app, "/connectors/c").text
    assert "<b>the" not in page
    assert "<i>" not in page
    assert "the file is away" in page
    assert "<summary>Task 0: &lt;b&gt;the task is lost&lt;/b&gt;</summary>" in page
    assert "9007199254740993" in page


def test_the_list_counts_tasks_by_their_state(app: ASGIApp, worker: RestClient) -> None:
    # A count: the number of a task beside its state, "0 running", reads as if none was running.
    worker.create("c")
    assert re.search(r'<span class="badge good">1 running</span>', ask(app, "/connectors").text)
    worker.herder.task_traces["c"] = "the file is away"
    assert re.search(r'<span class="badge bad">1 failed</span>', ask(app, "/connectors").text)


def test_topics_group_and_offsets(app: ASGIApp, worker: RestClient) -> None:
    worker.create("c")
    worker.herder.offsets["c"] = [ConnectorOffset({"filename": "f"}, {"position": 5})]
    assert 'href="/topics/t"' in ask(app, "/connectors/c").text
    assert 'value="forget"' not in ask(app, "/connectors/c").text  # only of one that is stopped
    ask(app, "/connectors/c", {"action": "stop"})
    assert 'value="forget"' in ask(app, "/connectors/c").text
    assert ask(app, "/connectors/c", {"action": "forget"}).status == 400  # without the name
    note = note_of(app, ask(app, "/connectors/c", {"action": "forget", "confirm": "c"}))
    assert note == "Connector c has no offsets any more."
    assert worker.herder.offsets == {}
    worker.create("s", **{"connector.class": SINK, "topics": "t"})
    assert 'href="/groups/connect-s"' in ask(app, "/connectors/s").text
    worker.create("o", **{"connector.class": SINK, "topics": "t", "consumer.override.group.id": "mine"})
    assert 'href="/groups/mine"' in ask(app, "/connectors/o").text


def test_the_password_of_a_worker_is_used_and_never_shown(start: Starter, tmp_path: Path) -> None:
    with serve(make_users(tmp_path)) as worker:
        place = f"127.0.0.1:{worker.port}"
        page = ask(start(connect_url=f"http://ottla:hush%3Ahush@{place}"), "/connectors")
        assert "There are no connectors." in page.text
        assert "hush" not in page.text
        assert f'--url "http://$OTTLA_CONNECT_LOGIN@{place}"' in unescape(page.text)
        refused = ask(start(connect_url=f"http://ottla:wrong@{place}"), "/connectors")
        assert "There are no connectors." not in refused.text
        assert "wrong" not in refused.text
    assert "hush" not in ask(start(connect_url="http://ottla:hush@127.0.0.1:1"), "/connectors").text


def test_a_worker_that_is_not_there_is_explained(start: Starter) -> None:
    app = start(connect_url="http://127.0.0.1:1")
    listing = ask(app, "/connectors")
    assert listing.status == 200
    assert "does not answer" in listing.text
    assert ask(app, "/connectors/c").status == 400
    assert ask(app, "/connectors/c", {"action": "pause"}).status == 400
    assert ask(start(), "/connectors", {"action": "create", "config": LINES}).status == 400  # without --connect


def test_configurations_as_text() -> None:
    config = {"name": "a", "x": "1=2", "empty": ""}
    assert parse_config(f"# remark\n\n{write_config(config)}") == config
    lines = {"name": "a", "text": "two\nlines", "none": None}
    assert parse_config(write_config(lines)) == lines
    assert parse_config('{"name": "a", "config": {"tasks.max": 2}}') == {"name": "a", "tasks.max": "2"}
    secrets = {"db.password": "x", "aws.secret.access.key": "y", "topic": "t", "sasl.jaas.config": "${file:a:b}"}
    assert hide(secrets) == {**secrets, "db.password": HIDDEN, "aws.secret.access.key": HIDDEN}
