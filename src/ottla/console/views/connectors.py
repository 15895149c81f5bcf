"""Connectors of Kafka Connect: status and actions, through the REST API of a worker."""

from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from ottla.console import copying
from ottla.console.calls import BadInput, Call
from ottla.console.facts.asking import NoAnswer, ask_json
from ottla.console.rendering import quote_segment

ACTIONS = {
    "pause": ("PUT", "/pause", "is paused"),
    "resume": ("PUT", "/resume", "is resumed"),
    "stop": ("PUT", "/stop", "is stopped"),
    "restart": ("POST", "/restart?includeTasks=true", "is restarted"),
    "delete": ("DELETE", "", "is deleted"),
}


def show(call: Call) -> Response:
    url = call.console.options.connect_url
    connectors: dict[str, Any] = {}
    trouble = ""
    if url:
        try:
            connectors = _ask(call, "?expand=status&expand=info") or {}
        except NoAnswer as error:
            trouble = str(error)
    return call.page(
        "connectors.html",
        url=url,
        connectors=sorted(connectors.items()),
        trouble=trouble,
        copies=copying.copy_connectors(url) if url else [],
    )


def show_connector(call: Call) -> Response:
    name = call.path("name")
    try:
        status = _ask(call, f"/{_quote(name)}/status")
        config = _ask(call, f"/{_quote(name)}/config")
    except NoAnswer as error:
        raise BadInput(str(error)) from None
    return call.page(
        "connector.html",
        name=name,
        status=status,
        config=sorted((config or {}).items()),
        copies=copying.copy_connectors(call.console.options.connect_url, name),
    )


def change(call: Call) -> Response:
    name, action = call.path("name"), call.field("action")
    if action not in ACTIONS:
        raise BadInput(f"there is no action {action!r}")
    if action == "delete" and call.field("confirm").strip() != name:
        raise BadInput(f"type the connector's name, {name}, to confirm")
    method, path, done = ACTIONS[action]
    try:
        _ask(call, f"/{_quote(name)}{path}", method)
    except NoAnswer as error:
        raise BadInput(str(error)) from None
    target = "/connectors" if action == "delete" else f"/connectors/{quote_segment(name)}"
    return call.redirect(target, f"Connector {name} {done}.")


def _ask(call: Call, path: str, method: str = "GET") -> Any:
    url = call.console.options.connect_url
    if not url:
        raise BadInput("start the console with --connect URL to see connectors")
    return ask_json(f"{url.rstrip('/')}/connectors{path}", method)


def _quote(name: str) -> str:
    return quote(name, safe="")
