"""`ottla stream list|describe|stop`: apps as their registrations and their own pages show them."""

import argparse
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ottla.cli.client import open_own_client
from ottla.cli.command_error import CommandError
from ottla.cli.output import JSON, show_json, show_rows, show_table
from ottla.cli.stream.pages import AppGone, ask_page
from ottla.cli.suggestions import suggest

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.streams.running.registration import Registration

_STOP_S = 120.0
_LOOK_S = 0.2


def run_list(options: argparse.Namespace) -> int:
    from ottla.streams.running.registration import TOPIC, read_registrations

    with open_own_client(options) as client:
        found = read_registrations(client) if client.has_topic(TOPIC) else {}
    rows = []
    for name, app in sorted(found.items()):
        started = datetime.fromtimestamp(app.started_ms / 1000, UTC).isoformat(timespec="seconds")
        rows.append((name, find_state(app), app.address, app.host, app.pid, started))
    show_rows(options.format, ("app", "state", "address", "host", "pid", "started"), rows)
    return 0


def run_describe(options: argparse.Namespace) -> int:
    app = _find(options)
    state = find_state(app)
    progress = ask_page(app.address, "/progress") if state == "running" else None
    if options.format == JSON:
        fields = {"app": app.app, "state": state, "address": app.address, "host": app.host, "pid": app.pid}
        topics = {"internal_topics": list(app.internal_topics), "groups": list(app.groups)}
        show_json({**fields, **topics, "message": app.message, "progress": progress, "topology": app.description})
        return 0
    print(f"{app.app}: {state}{f' at {app.address}' if state == 'running' else ''}")
    if app.message:
        print(app.message)
    print()
    print(app.description)
    if progress is not None:
        print()
        _show_progress(progress)
    return 0


def run_stop(options: argparse.Namespace) -> int:
    app = _find(options)
    if find_state(app) != "running":
        raise CommandError(f"app {app.app!r} is not running ({find_state(app)})")
    ask_page(app.address, "/stop", method="POST")
    deadline = time.monotonic() + _STOP_S
    while find_state(app) == "running":
        if time.monotonic() > deadline:
            raise CommandError(f"app {app.app!r} was told to stop and still runs after {_STOP_S:.0f} s")
        time.sleep(_LOOK_S)
    print(f"app {app.app!r} stopped")
    return 0


def find_app(client: "Client", name: str) -> "Registration":
    from ottla.streams.running.registration import TOPIC, read_registrations

    found = read_registrations(client) if client.has_topic(TOPIC) else {}
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        there = suggest(name, found) or f"; there are: {known}"
        raise CommandError(f"app {name!r} is not registered in this cluster{there}")
    return found[name]


def find_state(app: "Registration") -> str:
    """running, stopped or failed; gone for an app that says it runs and does not answer."""
    if app.state != "running":
        return app.state
    try:
        ask_page(app.address, "/health")
    except AppGone:
        return "gone"
    return "running"


def _find(options: argparse.Namespace) -> "Registration":
    with open_own_client(options) as client:
        return find_app(client, options.name)


def _show_progress(progress: dict[str, Any]) -> None:
    columns = ("subtopology", "state", "rows_per_second", "batch_ms", "rows_read", "rows_written", "lag")
    rows = [
        [unit[name] if name != "lag" else sum(unit["lag"].values()) for name in columns]
        for unit in progress["subtopologies"]
    ]
    show_table(columns, rows)
    for unit in progress["subtopologies"]:
        if unit["trouble"]:
            print(f"{unit['subtopology']} waits: {unit['trouble']}")
    if progress["stores"]:
        print()
        names = ("store", "partitions", "keys", "bytes", "restoring", "records_behind")
        show_table(names, [[store[name] for name in names] for store in progress["stores"]])
