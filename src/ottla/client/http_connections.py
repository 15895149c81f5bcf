"""Connections to the HTTP servers of Connect, Streams and the console: how many there are, and for how long each waits.

uvicorn keeps a connection that never sends a whole request for ever, and answers 503 to everybody else when there are
too many. So somebody without a password could keep all others out, and use up the file descriptors of the process. Here
a request has to arrive within a time, and a new connection takes the place of the one that has waited for longest.
"""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS_MAX: Final = 200
"""The value for `limit_concurrency` of uvicorn. When three quarters of so many connections are open, each new one
closes the one that has waited longest for a request."""


class BoundedConnection(H11Protocol):
    arrival_s = 30.0
    """How long a request may take to arrive as a whole, and how long a new connection may wait before its first one."""

    _timer: asyncio.TimerHandle | None = None
    _waits_since = 0.0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._reconsider()
        waiting = [each for each in self.connections if isinstance(each, BoundedConnection) and each.is_waiting]
        if len(self.connections) > (self.limit_concurrency or CONNECTIONS_MAX) * 3 // 4 and waiting:
            min(waiting, key=lambda each: each._waits_since).transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._reconsider()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._waits_since = self.loop.time()  # uvicorn closes a connection that is not used again

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    @property
    def is_waiting(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _reconsider(self) -> None:
        if not self.is_waiting:
            self._stop_timer()
        elif self._timer is None:
            self._waits_since = self.loop.time()
            self._timer = self.loop.call_later(self.arrival_s, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
