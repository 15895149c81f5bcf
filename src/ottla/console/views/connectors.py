"""Connectors of Kafka Connect: status and actions, new ones and changed ones, through the REST API of a worker."""

from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from ottla.console import copying
from ottla.console.calls import BadInput, Call, parse_number
from ottla.console.facts.asking import NoAnswer, NotThere
from ottla.console.facts.connectors import (
    CLASS,
    NAME,
    CheckedSetting,
    Config,
    Connect,
    hide,
    parse_config,
    write_config,
)
from ottla.console.rendering import quote_segment

TASK_MAX = (1 << 31) - 1
ACTIONS = {
    "pause": ("PUT", "/pause", "is paused"),
    "resume": ("PUT", "/resume", "is resumed"),
    "stop": ("PUT", "/stop", "is stopped"),
    "restart": ("POST", "/restart?includeTasks=true", "is restarted"),
    "forget": ("DELETE", "/offsets", "has no offsets any more"),
    "delete": ("DELETE", "", "is deleted"),
}
CONFIRMED = ("delete", "forget")
OFFERED = {
    "RUNNING": ("pause", "restart", "stop"),
    "PAUSED": ("resume", "restart", "stop"),
    "STOPPED": ("resume",),
    "FAILED": ("restart", "pause", "stop"),
}
"""The actions of each state; all of them in any other."""
SIMPLE = ("resume", "pause", "restart", "stop")


def show(call: Call) -> Response:
    return _show_list(call, call.text("plugin"))


def _show_list(
    call: Call, plugin: str, text: str | None = None, wrong: list[CheckedSetting] | None = None, refusal: str = ""
) -> Response:
    """The list with the form for a new connector: empty, or with what was sent and what is wrong with it."""
    url = call.console.options.connect_url
    connectors: dict[str, Any] = {}
    plugins: list[str] = []
    trouble = ""
    if url:
        connect = Connect(url)
        try:
            connectors, plugins = connect.list_connectors(), connect.list_plugins()
            if text is None:
                text = write_config(connect.suggest_config(plugin)) if plugin else ""
        except NoAnswer as error:
            trouble = str(error)
    return call.page(
        "connectors.html",
        400 if refusal or wrong else 200,
        url=url,
        connectors=sorted(connectors.items()),
        plugins=plugins,
        plugin=plugin,
        text=text or "",
        wrong=wrong,
        refusal=refusal,
        trouble=trouble,
        copies=copying.copy_connectors(url) if url else [],
    )


def create(call: Call) -> Response:
    """Check the configuration, or create a connector with it."""
    connect = _connect(call)
    text = call.field("config")
    try:
        config = parse_config(text)
    except ValueError as error:
        return _show_list(call, "", text, refusal=str(error))
    name, plugin = (config.get(NAME) or "").strip(), config.get(CLASS) or ""
    if not name or not plugin:
        return _show_list(call, plugin, text, refusal=f"a connector needs {NAME} and {CLASS}")
    action = _read_action(call, ("check", "create"))
    try:
        wrong = connect.check(config)
        if wrong or action == "check":
            return _show_list(call, plugin, text, wrong)
        connect.ask("/connectors", "POST", {"name": name, "config": config})
    except NoAnswer as error:
        return _show_list(call, plugin, text, refusal=str(error))
    return call.redirect(f"/connectors/{quote_segment(name)}", f"Connector {name} is created.")


def show_connector(call: Call) -> Response:
    return _show_connector(call, call.path("name"))


def _read_status(connect: Connect, name: str) -> dict[str, Any]:
    """Nothing for a connector that was created a moment ago: no worker has said yet how it is."""
    try:
        found: dict[str, Any] = connect.ask(f"/connectors/{_quote(name)}/status")
    except NotThere:
        return {}
    return found


def _show_connector(
    call: Call, name: str, text: str | None = None, wrong: list[CheckedSetting] | None = None, refusal: str = ""
) -> Response:
    connect = _connect(call)
    try:
        config: Config = connect.ask(f"/connectors/{_quote(name)}/config") or {}
        status = _read_status(connect, name)
    except NoAnswer as error:
        raise BadInput(str(error)) from None
    shown = dict(sorted(hide(config).items()))
    state = status.get("connector", {}).get("state", "")
    return call.page(
        "connector.html",
        400 if refusal or wrong else 200,
        name=name,
        status=status,
        state=state,
        actions=OFFERED.get(state, SIMPLE),
        config=shown,
        offsets=_find_offsets(connect, name),
        topics=_find_topics(connect, name),
        group=_find_group(name, config) if status.get("type") == "sink" else "",
        text=write_config(shown) if text is None else text,
        wrong=wrong,
        refusal=refusal,
        copies=copying.copy_connectors(call.console.options.connect_url, name),
    )


def _find_offsets(connect: Connect, name: str) -> list[dict[str, Any]]:
    """What the connector has read; a worker from before Kafka 3.5 does not tell."""
    try:
        return list(connect.ask(f"/connectors/{_quote(name)}/offsets")["offsets"])
    except (NoAnswer, KeyError, TypeError):
        return []


def _find_topics(connect: Connect, name: str) -> list[str]:
    """A worker may be told not to remember them (topic.tracking.enable)."""
    try:
        return connect.list_topics(name)
    except (NoAnswer, AttributeError, TypeError):
        return []


def _find_group(name: str, config: Config) -> str:
    """The consumer group of a sink."""
    return config.get("consumer.override.group.id") or f"connect-{name}"


def change(call: Call) -> Response:
    name, action = call.path("name"), call.field("action")
    if action in ("check", "save"):
        return _change_config(call, name)
    connect = _connect(call)
    if action == "restart-task":
        task = parse_number(call.field("task"), "task", 0, TASK_MAX)
        method, path, done = "POST", f"/tasks/{task}/restart", f"has restarted task {task}"
    elif action in ACTIONS:
        method, path, done = ACTIONS[action]
    else:
        raise BadInput(f"there is no action {action!r}")
    if action in CONFIRMED and call.field("confirm").strip() != name:
        raise BadInput(f"type the connector's name, {name}, to confirm")
    try:
        connect.ask(f"/connectors/{_quote(name)}{path}", method)
    except NoAnswer as error:
        raise BadInput(str(error)) from None
    target = "/connectors" if action == "delete" else f"/connectors/{quote_segment(name)}"
    return call.redirect(target, f"Connector {name} {done}.")


def _change_config(call: Call, name: str) -> Response:
    connect = _connect(call)
    text = call.field("config")
    try:
        config = connect.restore(name, parse_config(text))
        wrong = connect.check(config)
        if wrong or call.field("action") == "check":
            return _show_connector(call, name, text, wrong)
        connect.ask(f"/connectors/{_quote(name)}/config", "PUT", config)
    except (ValueError, NoAnswer) as error:
        return _show_connector(call, name, text, refusal=str(error))
    return call.redirect(f"/connectors/{quote_segment(name)}", f"The configuration of {name} is changed.")


def _read_action(call: Call, among: tuple[str, ...]) -> str:
    action = call.field("action")
    if action not in among:
        raise BadInput(f"there is no action {action!r}")
    return action


def _connect(call: Call) -> Connect:
    url = call.console.options.connect_url
    if not url:
        raise BadInput("start the console with --connect URL to see connectors")
    return Connect(url)


def _quote(name: str) -> str:
    return quote(name, safe="")
