"""Streams apps with their topologies, and Spark queries that write exactly once."""

from starlette.responses import Response

from ottla.client.exactly_once.sinks import find_sinks
from ottla.console import copying
from ottla.console.calls import BadInput, Call
from ottla.console.facts.apps import RUNNING, App, ask_app, find_progress, list_apps
from ottla.console.facts.asking import NoAnswer
from ottla.console.facts.topologies import draw
from ottla.console.rendering import quote_segment
from ottla.errors import KafkaError


def show(call: Call) -> Response:
    snapshot = call.console.metadata.get()
    with call.console.clients.borrow() as client:
        apps = list_apps(client, snapshot)
        try:
            sinks, refusal = find_sinks(client), ""
        except KafkaError as error:
            sinks, refusal = [], error.message or error.code.name
    return call.page(
        "apps.html",
        apps=[(app, find_progress(app)[0]) for app in apps],
        sinks=sinks,
        refusal=refusal,
        copies=copying.copy_apps(call.console.options),
    )


def show_app(call: Call) -> Response:
    app = _find(call)
    state, progress = find_progress(app)
    return call.page(
        "app.html",
        app=app,
        state=state,
        progress=progress,
        drawing=draw(app.description),
        copies=copying.copy_app(call.console.options, app.name),
    )


def change(call: Call) -> Response:
    app = _find(call)
    if call.field("action") != "stop" or call.field("confirm").strip() != app.name:
        raise BadInput(f"type the app's name, {app.name}, to confirm")
    if app.state != RUNNING:
        raise BadInput(f"app {app.name!r} is not running")
    try:
        ask_app(app, "/stop", "POST")
    except NoAnswer as error:
        raise BadInput(str(error)) from None
    return call.redirect(f"/apps/{quote_segment(app.name)}", f"App {app.name} was told to stop.")


def _find(call: Call) -> App:
    name = call.path("name")
    with call.console.clients.borrow() as client:
        app = next((each for each in list_apps(client, call.console.metadata.get()) if each.name == name), None)
    if app is None:
        raise BadInput(f"there is no Streams app {name!r}")
    return app
