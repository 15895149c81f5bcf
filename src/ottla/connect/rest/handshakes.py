"""TLS handshakes of encrypted listeners: how many there are at a time, and for how long each waits.

A connection counts for uvicorn, and for `BoundedConnection`, when its handshake is done. A client that opens
connections and says nothing would take all file descriptors of the worker before.
"""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final

HANDSHAKES_MAX: Final = 100
HANDSHAKE_S: Final = 10.0
NO_DESCRIPTOR_S: Final = 1.0
"""Until the next attempt to accept a connection, if the process may open no more files."""


class TlsListener:
    """Listens on one socket. uvicorn uses it like an `asyncio.Server`."""

    def __init__(
        self,
        bound: socket.socket,
        make_connection: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext,
        time_s: float = HANDSHAKE_S,
    ) -> None:
        self._socket = bound
        self._make_connection = make_connection
        self._context = context
        self._time_s = time_s
        self._loop = asyncio.get_running_loop()
        self._addresses: dict[asyncio.Task[None], str] = {}
        """Of each handshake, the oldest first."""
        self._retry: asyncio.TimerHandle | None = None
        bound.setblocking(False)
        self._resume()

    def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._socket)
        for task in self._addresses:
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._addresses, return_exceptions=True)

    def _resume(self) -> None:
        self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        try:
            accepted, peer = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError:
            self._loop.remove_reader(self._socket)
            self._retry = self._loop.call_later(NO_DESCRIPTOR_S, self._resume)
            return
        accepted.setblocking(False)
        if len(self._addresses) >= HANDSHAKES_MAX:
            self._give_up_oldest()
        task = self._loop.create_task(self._shake_hands(accepted))
        self._addresses[task] = str(peer[0])
        task.add_done_callback(lambda done: self._forget(done, accepted))

    def _forget(self, task: asyncio.Task[None], accepted: socket.socket) -> None:
        self._addresses.pop(task, None)
        if task.cancelled():  # before its first step: later steps end it in their own way
            accepted.close()

    def _give_up_oldest(self) -> None:
        """Of the address that has most of them, which is in its own way only."""
        ((crowded, _),) = Counter(self._addresses.values()).most_common(1)
        oldest = next(task for task, address in self._addresses.items() if address == crowded)
        del self._addresses[oldest]  # at once: many connections may come before the task ends
        oldest.cancel()

    async def _shake_hands(self, accepted: socket.socket) -> None:
        with suppress(OSError, asyncio.CancelledError):
            await self._loop.connect_accepted_socket(
                self._make_connection, accepted, ssl=self._context, ssl_handshake_timeout=self._time_s
            )
            return
        accepted.close()
