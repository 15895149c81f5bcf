"""Clients that threads borrow: a `Client` belongs to one thread at a time, and a console answers in several."""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ottla.client.client import Client
from ottla.client.connection import Request, Unreachable

IDLE_MAX = 8
"""Idle clients that are kept with their connections; further ones are closed when they are returned."""

DEFAULTS = {"default.api.timeout.ms": "8000", "request.timeout.ms": "8000", "client.id": "ottla-console"}
"""A person waits for the answer."""


class ClientPool:
    def __init__(self, settings: Mapping[str, str]) -> None:
        """Raises ValueError if a setting is not valid. Does not connect."""
        self.settings = {**DEFAULTS, **settings}
        self._idle: deque[Client] = deque([Client(self.settings)])

    @contextmanager
    def borrow(self) -> Iterator[Client]:
        """A client for this thread until the end of the block."""
        try:
            client = self._idle.pop()
        except IndexError:
            client = Client(self.settings)
        try:
            yield client
        except Unreachable:
            client.close()
            raise
        finally:
            if len(self._idle) < IDLE_MAX:
                self._idle.append(client)
            else:
                client.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


def ask_node(client: Client, node: int, request: Request) -> Any:
    """The answer of one broker, asked once, and a second time if the connection was lost."""
    try:
        return client.connect(node).ask(request)
    except Unreachable:
        client.disconnect(node)
        client.list_brokers()  # this client may not have met the broker yet, or its address is another one by now
        return client.connect(node).ask(request)
