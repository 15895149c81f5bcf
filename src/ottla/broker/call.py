"""One request as a handler sees it, and the kinds of answers that a connection can send."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ottla.security.principal import ANONYMOUS, Principal
from ottla.storage.files import FileSlice

if TYPE_CHECKING:
    from ottla.security.sasl import SaslSession

Body = TypeVar("Body")

Frame = bytearray | memoryview
"""A request without its size, in writable memory of its own: a bytearray, or a view of one if it is large."""

Part = bytes | bytearray | memoryview | FileSlice
Answer = list[Part] | None
"""The response header and body in parts; None if the request has no answer (Produce with acks=0)."""

Result = Answer | Coroutine[Any, Any, Answer | asyncio.Future[Answer]] | asyncio.Future[Answer]
"""An answer; or a coroutine, for which the connection waits; or a future, while which further requests are handled.
A coroutine may return a future: then the connection stops waiting, and the answer is sent when the future is done."""


class CloseConnection(Exception):
    """Close the connection instead of an answer: the bytes are no request, or a Produce with acks=0 failed."""


def _mute_nothing(throttle_ms: int) -> None:
    """The `mute` of a client without a connection, or whose connection is closed."""


class Client:
    """The other end of a connection."""

    __slots__ = (
        "address",
        "allowed",
        "id",
        "listener",
        "local_address",
        "mute",
        "port",
        "principal",
        "sasl",
        "software",
    )

    def __init__(self, id: int, listener: str, peer: tuple[str, int], local: tuple[str, int]) -> None:
        self.id = id
        self.listener = listener
        self.address, self.port = peer
        self.local_address = local  # the address that the client connected to
        self.principal: Principal = ANONYMOUS
        self.sasl: SaslSession | None = None  # of a client of a listener with SASL
        self.software = ("", "")
        """Name and version of the client's library, as it says itself in ApiVersions."""
        self.allowed: dict[tuple[object, str], object] = {}
        """What the client may do -> the ACLs by which that was decided (`handlers.authorization`)."""
        self.mute: Callable[[int], None] = _mute_nothing
        """Handle no further request of the connection for so many milliseconds. Answers are still sent."""

    def forget_connection(self) -> None:
        """The connection is closed. Without this it and its client would keep each other in memory."""
        self.mute = _mute_nothing


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
        self.started_s = started_s  # of `ottla.system.clock.stopwatch`


class OwnedCoroutine:
    """A handler's coroutine that is closed if nobody awaits it.

    A task that is cancelled before it begins, as at a stop, never awaits its coroutine; Python would warn about that.
    """

    __slots__ = ("coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.coroutine = coroutine

    def __del__(self) -> None:
        self.coroutine.close()
