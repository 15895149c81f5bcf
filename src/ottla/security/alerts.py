"""TLS contexts of a server that tell a client why its handshake failed.

OpenSSL has the alert ready when a handshake fails, but an event loop closes the connection without sending it, and the
client sees nothing but its end: not that its certificate has expired, or that it has to show one. So the TLS object of
a connection sends it itself. Whoever accepts a connection says how, in `sender`, before the handshake begins.
"""

import contextlib
import ssl
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

sender: ContextVar[Callable[[bytes], int] | None] = ContextVar("sender", default=None)
"""Writes bytes to the socket of the connection whose handshake begins, without waiting."""


class AlertingObject(ssl.SSLObject):
    _outgoing: ssl.MemoryBIO
    _send: Callable[[bytes], int] | None = None

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if self._send is not None:
                with contextlib.suppress(OSError):  # the client has left, or does not read
                    self._send(self._outgoing.read())
            raise
        self._send = None


class AlertingContext(ssl.SSLContext):
    sslobject_class = AlertingObject

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *rest: Any, **others: Any) -> AlertingObject:
        found = super().wrap_bio(incoming, outgoing, *rest, **others)
        assert isinstance(found, AlertingObject)
        found._outgoing, found._send = outgoing, sender.get()
        return found
