"""One broker and one console for all tests of a module. Each test uses its own topics."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from starlette.types import ASGIApp

from ottla.console.app import make_app
from ottla.console.console import Console, Options
from ottla.console.guarding import LOOPBACK_NAMES
from ottla.console.login import Login
from ottla.testing import LocalBroker
from tests.patience import PATIENCE_MS

Starter = Callable[..., ASGIApp]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    from ottla.testing import broker

    with broker() as local:
        yield local


@pytest.fixture(scope="module")
def console(broker: LocalBroker) -> Iterator[Console]:
    made = Console(Options(patient(broker.bootstrap)), now_ms, time.monotonic)
    yield made
    made.close()


@pytest.fixture(scope="module")
def app(console: Console) -> ASGIApp:
    return make_app(console, LOOPBACK_NAMES, None)


@pytest.fixture
def start() -> Iterator[Starter]:
    """A console with other options; its broker is not there unless the test names one."""
    made: list[Console] = []

    def make(token: str = "", settings: Mapping[str, str] | None = None, **options: Any) -> ASGIApp:
        console = Console(Options(settings or {"bootstrap.servers": "127.0.0.1:1"}, **options), now_ms, time.monotonic)
        made.append(console)
        return make_app(console, LOOPBACK_NAMES, Login(token, b"key", now_ms) if token else None)

    yield make
    for console in made:
        console.close()


def patient(bootstrap: str) -> dict[str, str]:
    """Settings of clients with which nothing fails because the machine is slow."""
    return {
        "bootstrap.servers": bootstrap,
        "default.api.timeout.ms": str(PATIENCE_MS),
        "request.timeout.ms": str(PATIENCE_MS),
    }
