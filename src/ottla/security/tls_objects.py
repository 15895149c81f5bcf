"""TLS of a server's connections: contexts whose connections can be told how to go through their handshake.

An event loop would do two things badly. It would do the costly steps of a handshake itself, such as the signature of
the first answer, and keep everybody waiting meanwhile. And if a handshake fails, it would close the connection without
sending the alert that OpenSSL has ready, so that the client does not learn that its certificate has expired, or that it
has to show one. So whoever accepts a connection sets `handshake` before it begins.
"""

import contextlib
import ssl
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Protocol

CHEAP_BYTES = 150
"""What a client sends after its first message is cheap to answer if it is not longer. More than that is a certificate
or a second first message, which cost as much as the first."""


class Handshake(Protocol):
    """How a connection goes through its handshake."""

    def send(self, data: bytes) -> None:
        """Write bytes to the socket, without waiting, because the connection is about to be closed."""

    def run(self, step: Callable[[], None]) -> None:
        """Run a step in a thread, then call `do_handshake` again. Until then no byte may be given to the connection or
        taken from it."""


handshake: ContextVar[Handshake | None] = ContextVar("handshake", default=None)
"""The handshake of the connection that is being accepted."""


class ServerObject(ssl.SSLObject):
    _handshake: Handshake | None = None  # until the handshake is done
    _incoming: ssl.MemoryBIO
    _outgoing: ssl.MemoryBIO
    _cheap_bytes_left = 0
    """How much more may arrive before a step is costly."""
    _outcome: Exception | None = None
    """What a step in a thread has raised."""
    _has_stepped = False

    def do_handshake(self) -> None:
        if self._handshake is None:
            super().do_handshake()
            return
        if not self._has_stepped and self._is_costly():
            self._cheap_bytes_left = CHEAP_BYTES
            self._handshake.run(self._step)
            raise ssl.SSLWantReadError
        if not self._has_stepped:
            self._step()
        self._has_stepped = False
        if self._outcome is None:
            self._handshake = None
            return
        if not isinstance(self._outcome, ssl.SSLWantReadError | ssl.SSLWantWriteError):
            with contextlib.suppress(OSError):  # the client has left, or does not read
                self._handshake.send(self._outgoing.read())
            self._handshake = None
        try:
            raise self._outcome
        finally:
            self._outcome = None  # its traceback holds this object and the connection

    def _is_costly(self) -> bool:
        arrived = self._incoming.pending
        self._cheap_bytes_left -= arrived
        return arrived > 0 and self._cheap_bytes_left < 0

    def _step(self) -> None:
        try:
            super().do_handshake()
        except Exception as error:
            self._outcome = error.with_traceback(None)
        self._has_stepped = True


class ServerContext(ssl.SSLContext):
    sslobject_class = ServerObject

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *rest: Any, **others: Any) -> ServerObject:
        found = super().wrap_bio(incoming, outgoing, *rest, **others)
        assert isinstance(found, ServerObject)
        found._incoming, found._outgoing, found._handshake = incoming, outgoing, handshake.get()
        return found
