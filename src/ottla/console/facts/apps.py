"""Streams apps, as they have registered themselves, and the pages of those that run.

An app's registration is the newest record of its key in a compacted topic (`ottla.streams.running.registration`).
"""

import json
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from ottla.client.client import EARLIEST, LATEST, READ_COMMITTED, Client
from ottla.console.facts.asking import NoAnswer, ask_json
from ottla.console.facts.metadata import Snapshot
from ottla.console.facts.offsets import list_offsets
from ottla.console.facts.records import read_range
from ottla.pipeline import json_text
from ottla.topic_partition import TopicPartition

TOPIC = "__ottla_streams_apps"
TOKEN_VARIABLE = "OTTLA_STREAM_TOKEN"
RUNNING = "running"


class App(NamedTuple):
    name: str
    state: str
    address: str
    host: str
    pid: int
    started_ms: int
    internal_topics: list[str]
    groups: list[str]
    description: str
    message: str


def list_apps(client: Client, snapshot: Snapshot) -> list[App]:
    if TOPIC not in snapshot.topics:
        return []
    where = TopicPartition(TOPIC, 0)
    first = list_offsets(client, snapshot, [where], EARLIEST).get(where, 0)
    end = list_offsets(client, snapshot, [where], LATEST, READ_COMMITTED).get(where, 0)
    found: dict[str, App] = {}
    for record in read_range(client, where, first, end, READ_COMMITTED):
        name = (record.key or b"").decode(errors="replace")
        found.pop(name, None)
        app = None if record.value is None else _parse(name, record.value)
        if app is not None:
            found[name] = app
    return sorted(found.values())


def _parse(name: str, value: bytes) -> App | None:
    """None for what is no registration: anybody may write to the topic."""
    try:
        document = json.loads(value)
        return App(
            name,
            str(document["state"]),
            str(document["address"]),
            str(document["host"]),
            int(document["pid"]),
            int(document["started_ms"]),
            [str(each) for each in document.get("internal_topics", ())],
            [str(each) for each in document.get("groups", ())],
            str(document.get("description", "")),
            str(document.get("message", "")),
        )
    except (ValueError, KeyError, TypeError):
        return None


def ask_app(app: App, path: str, method: str = "GET", parse: Callable[[str], Any] = json.loads) -> Any:
    """A page of a running app. Raises NoAnswer."""
    token = find_token()
    headers = {"Authorization": f"Bearer {token}"} if token else None
    return ask_json(app.address + path, method, headers=headers, parse=parse)


def find_token() -> str:
    """The token of apps; empty if they need none."""
    return os.environ.get(TOKEN_VARIABLE, "")


class Store(NamedTuple):
    name: str
    kind: str
    key_columns: list[str]
    partitions: int


class StoreRows(NamedTuple):
    columns: list[str]
    rows: list[list[str]]
    following: str
    """The parameter of the next page; empty at the end."""


def list_stores(app: App) -> list[Store]:
    """The stores of a running app that can be queried. Raises NoAnswer."""
    found = (ask_app(app, "/stores") or {}).get("stores", ())
    return [Store(str(each["name"]), str(each["kind"]), list(each["key"]), int(each["partitions"])) for each in found]


def query_store(app: App, store: str, key: Sequence[str], after: str, limit: int) -> StoreRows:
    """The row or the windows of a key, or rows of the store page by page. Raises NoAnswer, also without the key."""
    path = f"/stores/{quote(store, safe='')}"
    if key:
        whole = "/".join((path, *(quote(part, safe="") for part in key)))
        found = ask_app(app, whole, parse=json_text.parse)
        page: dict[str, Any] = found if "rows" in found and "next" in found else {"rows": [found], "next": None}
    else:
        query = urlencode({"limit": limit, **({"after": after} if after else {})})
        page = ask_app(app, f"{path}?{query}", parse=json_text.parse)
    rows = page["rows"]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    texts = [[_write_cell(row.get(name)) for name in columns] for row in rows]
    return StoreRows(columns, texts, page["next"] or "")


def _write_cell(value: Any) -> str:
    return str(value) if isinstance(value, str) else json_text.write(value, indented=False)


def find_progress(app: App) -> tuple[str, dict[str, Any] | None]:
    """The state of an app, "gone" if it says that it runs and does not answer, and its progress if it runs."""
    if app.state != RUNNING:
        return app.state, None
    try:
        progress = ask_app(app, "/progress")
    except NoAnswer:
        return "gone", None
    return RUNNING, progress if isinstance(progress, dict) else None
