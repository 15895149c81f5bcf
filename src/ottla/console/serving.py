"""Runs the console: the server, the clock and the randomness, which everything else gets from here."""

import secrets
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

import uvicorn

from ottla.client.http_connections import BoundedConnection
from ottla.console.app import make_app
from ottla.console.console import Console, Options
from ottla.console.guarding import LOOPBACK_NAMES, is_loopback
from ottla.console.login import Login

TOKEN_BYTES = 16
KEY_BYTES = 32
CONNECTIONS_MAX = 500
STOP_S = 1


class Listening(NamedTuple):
    host: str
    port: int
    token: str = ""
    """What a user must know; made here if the console can be reached from elsewhere and none is given."""
    allowed_hosts: Collection[str] = ()
    is_open: bool = False
    """Nobody is asked for a token, although others can reach the console: something in front of it asks."""


def needs_login(listening: Listening) -> bool:
    reachable = not is_loopback(listening.host) or any(
        name not in LOOPBACK_NAMES and not is_loopback(name) for name in listening.allowed_hosts
    )
    return bool(listening.token) or (reachable and not listening.is_open)


def serve(options: Options, listening: Listening, announce: Callable[[str, str], None]) -> None:
    """Serve until a signal. Calls `announce` with the address and the token (empty without one) once it listens.

    Raises ValueError for a setting that is not valid, OSError if it cannot listen.
    """
    token = listening.token or (secrets.token_urlsafe(TOKEN_BYTES) if needs_login(listening) else "")
    login = Login(token, secrets.token_bytes(KEY_BYTES), now_ms) if token else None
    console = Console(options, now_ms, time.monotonic)
    names = {*LOOPBACK_NAMES, listening.host.lower(), *listening.allowed_hosts}
    config = uvicorn.Config(
        make_app(console, names - {"0.0.0.0", "::", ""} if login is None else _names_with_login(names), login),
        host=listening.host,
        port=listening.port,
        log_level="warning",
        access_log=False,
        lifespan="on",
        server_header=False,
        proxy_headers=False,
        ws="none",
        http=BoundedConnection,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=STOP_S,
    )
    _AnnouncingServer(config, lambda host, port: announce(f"http://{host}:{port}{options.root_path}/", token)).run()


def _names_with_login(names: Collection[str]) -> Collection[str]:
    """A console on all addresses that asks for a token answers to every name, unless some are named."""
    own = {name for name in names if name not in (*LOOPBACK_NAMES, "0.0.0.0", "::", "")}
    return own.union(LOOPBACK_NAMES) if own else ("*",)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class _AnnouncingServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, listens: Callable[[str, int], None]) -> None:
        super().__init__(config)
        self._listens = listens

    async def startup(self, sockets: object = None) -> None:
        await super().startup(None)
        if self.started:
            host = self.config.host
            shown = "localhost" if is_loopback(host) or host in ("0.0.0.0", "::", "") else host
            port = self.servers[0].sockets[0].getsockname()[1]
            self._listens(shown, port)
