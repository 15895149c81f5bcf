"""A client that dies at one of its requests: before the request is sent, or after it was handled and before the
answer."""

from collections.abc import Callable
from typing import Any

from ottla.client.client import Client
from ottla.client.connection import Awaited, Connection


class Crash(BaseException):
    """The death of the client. Not an Exception, so that no handler catches it, as none catches a kill."""


class MortalClient(Client):
    """A client that dies at its request number `dies_at`, counted over all brokers; -1: never."""

    def __init__(self, settings: dict[str, str], dies_at: int = -1, *, sends_before: bool = False) -> None:
        super().__init__({"retry.backoff.ms": "5", "retry.backoff.max.ms": "20", **settings})
        self.requests = 0
        self._dies_at = dies_at
        self._sends_before = sends_before

    def connect(self, node: int) -> Connection:
        connection = super().connect(node)
        return Mortal(connection, self)  # type: ignore[return-value]

    def count(self) -> bool:
        """Count a request. Returns whether the client dies at it."""
        self.requests += 1
        return self.requests - 1 == self._dies_at

    @property
    def sends_before(self) -> bool:
        return self._sends_before


class Mortal:
    """A connection of such a client."""

    def __init__(self, connection: Connection, client: MortalClient) -> None:
        self._connection = connection
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def send(self, request: Any, version_max: int | None = None) -> Awaited:
        dies = self._client.count()
        if dies and not self._client.sends_before:
            raise Crash
        awaited = self._connection.send(request, version_max)
        if dies:
            self._connection.receive(awaited)  # the answer shows that the broker has handled the request
            raise Crash
        return awaited

    def ask(self, request: Any, version_max: int | None = None) -> Any:
        return self._connection.receive(self.send(request, version_max))


def dies(work: Callable[[Client], object], client: MortalClient) -> bool:
    """Run the work. Returns whether the client died; its connections are closed then."""
    try:
        work(client)
        return False
    except Crash:
        return True
    finally:
        client.close()
