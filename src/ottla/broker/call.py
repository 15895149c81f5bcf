"""One request, as a handler sees it, and the answers a connection can send."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from ottla.storage.files import FileSlice

Body = TypeVar("Body")

Frame = bytearray | memoryview
"""A request without its size. Writable memory that belongs to it: an array of its own, or a view of one if large."""

Part = bytes | bytearray | memoryview | FileSlice
Answer = list[Part] | None
"""The response header and body in pieces; None where the request wants no answer (acks=0)."""

Result = Answer | Coroutine[Any, Any, Answer | asyncio.Future[Answer]] | asyncio.Future[Answer]
"""An answer; or a coroutine, and the connection waits for it; or a future, and further requests may start meanwhile.
A coroutine may end with a future in its turn: then the connection waits no longer, and the answer comes later."""


class CloseConnection(Exception):
    """The only fitting answer: bytes that are no request, or a failure that acks=0 leaves no other way to tell."""


class Client:
    """The other end of a connection."""

    __slots__ = ("_callbacks", "address", "closing", "id", "listener", "local_address", "port", "state")

    def __init__(self, id: int, listener: str, peer: tuple[str, int], local: tuple[str, int]) -> None:
        self.id = id
        self.listener = listener
        self.address, self.port = peer
        self.local_address = local  # what the client connected to
        self.state: Any = None  # free for whoever dispatches
        self.closing = False
        self._callbacks: list[Callable[[], None]] = []

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Call back when nobody waits for answers: the client has ended its side, or the connection is gone."""
        self._callbacks.append(callback)

    def closed(self) -> None:
        self.closing = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


Dispatch = Callable[[Client, Frame], Result]


class Call(Generic[Body]):
    __slots__ = ("api_key", "body", "client", "client_id", "correlation_id", "started_s", "version")

    def __init__(
        self,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        body: Body,
        client: Client,
        started_s: float = 0.0,
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body
        self.client = client
        self.started_s = started_s  # by the stopwatch


class Held:
    """A handler's coroutine, for the one who waits for it. If that task is cancelled before it has begun, as on a stop,
    nobody ever awaits the coroutine: then it is closed, or Python would complain."""

    __slots__ = ("coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.coroutine = coroutine

    def __del__(self) -> None:
        self.coroutine.close()
