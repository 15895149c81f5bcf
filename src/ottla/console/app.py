"""The console as an ASGI application: its pages, its static files, and the guard around them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from ottla.client.connection import Unreachable
from ottla.console.assets import STATIC
from ottla.console.calls import Page, PageEndpoint
from ottla.console.console import Console
from ottla.console.guarding import Guard
from ottla.console.history import INTERVAL_S
from ottla.console.login import Login
from ottla.console.rendering import make_environment
from ottla.console.sampling import take_sample
from ottla.console.views import (
    access,
    apps,
    cluster,
    connectors,
    groups,
    quotas,
    records,
    sessions,
    topic,
    topics,
    transactions,
    users,
)
from ottla.errors import KafkaError

logger = logging.getLogger("ottla.console")


def make_app(console: Console, hosts: Collection[str], login: Login | None) -> ASGIApp:
    """`hosts` are the names that the console answers to. Without a `login` everybody who reaches it may use it."""
    application = Starlette(
        routes=make_routes(),
        lifespan=_sample_while_running,
        exception_handlers={404: _answer_not_found, 500: _answer_failure},
    )
    application.state.console = console
    application.state.templates = make_environment()
    application.state.login = login
    application.state.has_login = login is not None
    options = console.options
    return Guard(application, hosts, login, is_read_only=options.is_read_only, root_path=options.root_path)


def make_routes() -> list[Route | Mount]:
    return [
        _show("/", cluster.show),
        _show("/brokers/{broker:int}", cluster.show_broker),
        _change("/brokers/{broker:int}", cluster.change_broker),
        _show("/topics", topics.show),
        _change("/topics", topics.create),
        _show("/topics/{name}", topic.show),
        _change("/topics/{name}", topic.change),
        _show("/topics/{name}/settings", topic.show_settings),
        _show("/topics/{name}/groups", topic.show_groups),
        _show("/topics/{name}/records", records.show),
        _show("/topics/{name}/records/export", records.export),
        Route("/topics/{name}/records/live", records.follow),
        _show("/topics/{name}/produce", records.show_form),
        _change("/topics/{name}/produce", records.send),
        _change("/topics/{name}/redrive", records.redrive_records),
        _show("/groups", groups.show),
        Route("/live/groups/{name:path}", groups.follow),
        _show("/groups/{name:path}", groups.show_group),
        _change("/groups/{name:path}", groups.change),
        _show("/transactions", transactions.show),
        _change("/transactions", transactions.change),
        _show("/access", access.show),
        _change("/access", access.change),
        _change("/access/users", users.change),
        _change("/access/quotas", quotas.change),
        _show("/apps", apps.show),
        _show("/apps/{name}", apps.show_app),
        _change("/apps/{name}", apps.change),
        _show("/connectors", connectors.show),
        _change("/connectors", connectors.create),
        _show("/connectors/{name:path}", connectors.show_connector),
        _change("/connectors/{name:path}", connectors.change),
        _show("/login", sessions.show),
        _change("/login", sessions.log_in),
        _change("/logout", sessions.log_out),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]


def _show(path: str, page: Page) -> Route:
    return Route(path, PageEndpoint(page), methods=["GET"])


def _change(path: str, page: Page) -> Route:
    return Route(path, PageEndpoint(page), methods=["POST"])


@asynccontextmanager
async def _sample_while_running(application: Starlette) -> AsyncIterator[None]:
    sampling = asyncio.create_task(_keep_sampling(application.state.console))
    try:
        yield
    finally:
        sampling.cancel()
        with suppress(asyncio.CancelledError):
            await sampling
        application.state.console.close()


async def _keep_sampling(console: Console) -> None:
    while True:
        try:
            await run_in_threadpool(take_sample, console)
        except (Unreachable, KafkaError) as error:
            logger.debug("no sample: %s", error)
        except Exception:
            logger.exception("sampling failed")
        await asyncio.sleep(INTERVAL_S)


def _answer_not_found(request: Request, error: Exception) -> Response:
    return _answer(request, 404, "There is no such page", request.scope["path"])


def _answer_failure(request: Request, error: Exception) -> Response:
    return _answer(request, 500, "The console has failed", f"{type(error).__name__}: {error}")


def _answer(request: Request, status: int, title: str, message: str) -> Response:
    from ottla.console.calls import Call

    state = request.app.state
    call = Call(state.console, state.templates, request, {})
    page = call.page("error.html", status, title=title, message=message, hint="")
    return HTMLResponse(bytes(page.body), status)
