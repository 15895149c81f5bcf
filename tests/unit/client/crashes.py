"""A client that dies in the middle of its work, at a request: before it leaves, or when only the answer is missing."""

from collections.abc import Callable
from typing import Any

from ottla.client.client import Client
from ottla.client.connection import Awaited, Connection


class Crash(BaseException):
    """No handler of errors catches it, as none catches a kill."""


class MortalClient(Client):
    """Dies at its request number `dies_at`, counted over all brokers; -1: never."""

    def __init__(self, settings: dict[str, str], dies_at: int = -1, *, sends_before: bool = False) -> None:
        super().__init__({"retry.backoff.ms": "5", "retry.backoff.max.ms": "20", **settings})
        self.requests = 0
        self._dies_at = dies_at
        self._sends_before = sends_before

    def connect(self, node: int) -> Connection:
        connection = super().connect(node)
        return Mortal(connection, self)  # type: ignore[return-value]

    def count(self) -> bool:
        """Whether this request is the last."""
        self.requests += 1
        return self.requests - 1 == self._dies_at

    @property
    def sends_before(self) -> bool:
        return self._sends_before


class Mortal:
    """A connection of it."""

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
            self._connection.receive(awaited)  # so that the broker has handled it
            raise Crash
        return awaited

    def ask(self, request: Any, version_max: int | None = None) -> Any:
        return self._connection.receive(self.send(request, version_max))


def dies(work: Callable[[Client], object], client: MortalClient) -> bool:
    """Whether it died at its work; its connections are closed with it."""
    try:
        work(client)
        return False
    except Crash:
        return True
    finally:
        client.close()
