"""Listens, and answers in a thread for each group of listeners."""

import socket
from collections.abc import Sequence
from dataclasses import replace
from ssl import SSLContext
from threading import Thread
from typing import Any, Final

import uvicorn

from ottla.client.http_connections import CONNECTIONS_MAX, BoundedConnection
from ottla.connect.errors import BadConfig
from ottla.connect.plugins.installed import InstalledPlugins
from ottla.connect.rest.application import Application
from ottla.connect.rest.connector_plugins import PluginEndpoints
from ottla.connect.rest.connectors import ConnectorEndpoints
from ottla.connect.rest.handshakes import TlsListener
from ottla.connect.rest.listeners import Listener, RestOptions
from ottla.connect.rest.metrics import MetricsEndpoint
from ottla.connect.rest.routing import Resource
from ottla.connect.rest.worker_pages import WorkerEndpoints
from ottla.connect.worker.herder import Herder

_BACKLOG: Final = 128
_SHUTDOWN_S: Final = 2


class TlsServer(uvicorn.Server):
    """uvicorn behind listeners that limit TLS handshakes."""

    def __init__(self, config: uvicorn.Config, tls: SSLContext) -> None:
        super().__init__(config)
        self._tls = tls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        listeners: list[Any] = [TlsListener(each, self._make_connection, self._tls) for each in sockets or ()]
        self.servers += listeners

    def _make_connection(self) -> BoundedConnection:
        return BoundedConnection(self.config, self.server_state, self.lifespan.state)


class RestServer:
    """Takes its ports when it is made, so that the worker knows its own address; answers after `start`."""

    def __init__(self, options: RestOptions) -> None:
        """BadConfig if it cannot listen."""
        self._options = options
        self._sockets: list[socket.socket] = []
        self._threads: list[Thread] = []
        self._servers: list[uvicorn.Server] = []
        try:
            self._main = [self._listen(each) for each in options.listeners]
            self._admin = [self._listen(each) for each in options.admin_listeners or ()]
        except BadConfig:
            self._close_sockets()
            raise

    @property
    def ports(self) -> list[int]:
        """Of the listeners, in their order; 0 has become a free one."""
        return [each.getsockname()[1] for each in self._main]

    @property
    def url(self) -> str:
        """Of the first listener, as one reaches it from this machine."""
        listener = self._options.listeners[0]
        return str(replace(listener, host=listener.host or "127.0.0.1", port=self.ports[0]))

    @property
    def host(self) -> str:
        """Of the first listener; empty if it listens on every address."""
        return self._options.listeners[0].host if self._options.listeners else ""

    @property
    def admin_ports(self) -> list[int]:
        return [each.getsockname()[1] for each in self._admin]

    def start(self, herder: Herder, plugins: InstalledPlugins) -> None:
        options = self._options
        worker = WorkerEndpoints(herder)
        connectors = ConnectorEndpoints(
            herder, plugins, tracks_topics=options.tracks_topics, resets_topics=options.resets_topics
        )
        resources = [
            *worker.list_resources(),
            *MetricsEndpoint(herder).list_resources(),
            *connectors.list_resources(),
            *PluginEndpoints(plugins).list_resources(),
            *(worker.list_admin_resources() if options.admin_listeners is None else ()),
        ]
        self._serve(resources, options.listeners, self._main, plugins)
        if options.admin_listeners:
            self._serve(worker.list_admin_resources(), options.admin_listeners, self._admin, plugins)

    def stop(self) -> None:
        for server in self._servers:
            server.should_exit = True
        for thread in self._threads:
            thread.join()
        self._close_sockets()

    def _listen(self, listener: Listener) -> socket.socket:
        host = listener.host or "0.0.0.0"
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            made = socket.create_server((host, listener.port), family=family, backlog=_BACKLOG)
        except OSError as error:
            reason = error.strerror or str(error)
            raise BadConfig(f"listeners={listener}: cannot listen: {reason}") from None
        self._sockets.append(made)
        return made

    def _serve(
        self,
        resources: Sequence[Resource],
        listeners: tuple[Listener, ...],
        sockets: list[socket.socket],
        plugins: InstalledPlugins,
    ) -> None:
        """Encrypted listeners have a server of their own."""
        guard = self._options.make_guard(listeners, socket.gethostname())
        application = Application(resources, plugins.redactor, guard, self._options.headers)
        for is_encrypted in (False, True):
            mine = [one for one, each in zip(sockets, listeners, strict=True) if each.is_encrypted == is_encrypted]
            if mine:
                self._start_server(application, mine, self._options.tls if is_encrypted else None)

    def _start_server(self, application: Application, sockets: list[socket.socket], tls: SSLContext | None) -> None:
        config = uvicorn.Config(
            application,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            ws="none",
            http=BoundedConnection,
            limit_concurrency=CONNECTIONS_MAX,  # above it 503, so that a flood of requests takes bounded memory
            timeout_graceful_shutdown=_SHUTDOWN_S,
        )
        server = uvicorn.Server(config) if tls is None else TlsServer(config, tls)
        thread = Thread(target=lambda: server.run(sockets), name="rest", daemon=True)
        self._servers.append(server)
        self._threads.append(thread)
        thread.start()

    def _close_sockets(self) -> None:
        for each in self._sockets:
            each.close()
