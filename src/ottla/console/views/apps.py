"""Streams apps with their topologies, and Spark queries that write exactly once."""

from starlette.responses import Response

from ottla.client.exactly_once.sinks import find_sinks
from ottla.console import copying
from ottla.console.calls import BadInput, Call, NotFound, explain
from ottla.console.facts.apps import (
    RUNNING,
    App,
    Store,
    StoreRows,
    ask_app,
    find_progress,
    find_token,
    list_apps,
    list_stores,
    query_store,
)
from ottla.console.facts.asking import NoAnswer
from ottla.console.facts.topologies import draw
from ottla.console.rendering import quote_segment
from ottla.console.snippets import Copies
from ottla.errors import KafkaError

ROWS_MAX = 50


def show(call: Call) -> Response:
    snapshot = call.console.metadata.get()
    with call.console.clients.borrow() as client:
        apps = list_apps(client, snapshot)
        try:
            sinks, refusal = find_sinks(client), ""
        except KafkaError as error:
            sinks, refusal = [], explain(error)
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
    stores, store, rows, refusal = _query(call, app) if state == RUNNING else ([], None, None, "")
    return call.page(
        "app.html",
        app=app,
        state=state,
        progress=progress,
        stores=stores,
        store=store,
        key=call.request.query_params.getlist("key"),
        rows=rows,
        refusal=refusal,
        drawing=draw(app.description),
        copies=_copy(call, app, state, store),
    )


def _copy(call: Call, app: App, state: str, store: Store | None) -> Copies:
    options, has_token = call.console.options, bool(find_token())
    if state != RUNNING:
        return copying.copy_registration(options, app.name)
    if store is None:
        return copying.copy_app(options, app.name, app.address, has_token=has_token)
    key = call.request.query_params.getlist("key")
    given = key if any(key) else []
    return copying.copy_store(options, app.name, app.address, store.name, given, ROWS_MAX, has_token=has_token)


def _query(call: Call, app: App) -> tuple[list[Store], Store | None, StoreRows | None, str]:
    """The stores of the app, the chosen one, and its rows or why there are none."""
    try:
        stores = list_stores(app)
    except NoAnswer as error:
        return [], None, None, str(error)
    wanted = call.text("store")
    store = next((each for each in stores if each.name == wanted), None)
    if store is None:
        return stores, None, None, f"there is no store {wanted!r}" if wanted else ""
    key = call.request.query_params.getlist("key")
    try:
        return stores, store, query_store(app, wanted, key if any(key) else [], call.text("after"), ROWS_MAX), ""
    except NoAnswer as error:
        return stores, store, None, str(error)


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
        raise NotFound(f"there is no Streams app {name!r}")
    return app
