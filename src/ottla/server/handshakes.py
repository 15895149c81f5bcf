"""TLS handshakes: accepts connections of a listener with TLS, and lets them in when their handshake is done.

The number of handshakes at a time is limited, and so is the time of each. Above the limit the oldest handshake of the
address that has most of them is given up for a new one: a client that opens connections and says nothing is in its own
way only. What costs much of a handshake, above all the signature, is done in a thread.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from typing import Any, cast

from ottla.observability.metrics import LoginMeter
from ottla.security import tls_objects
from ottla.security.listener import ListenerSecurity
from ottla.server.hellos import Pace, Turns, wait_for_hello
from ottla.server.sending import Offload
from ottla.server.traffic import Traffic

HANDSHAKE_S = 10.0
TLS_SHUTDOWN_S = 1.0  # for a client to answer the end of TLS, which few do
HANDSHAKES_MAX = 500
NO_DESCRIPTOR_S = 1.0  # until the next attempt to accept a connection, if the process may open no more files

NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Handshakes:
    """The handshakes of all listeners of a server."""

    def __init__(
        self, traffic: Traffic, offload: Offload, limit: int = HANDSHAKES_MAX, time_s: float = HANDSHAKE_S
    ) -> None:
        self.traffic = traffic
        self.offload = offload
        self.turns = Turns(traffic.loop)
        self.pace = Pace(traffic.loop)
        self.tls_protocol = find_tls_protocol(traffic.loop)
        self.time_s = time_s
        self.failed = 0
        self._limit = limit
        self._count = 0
        self._running: dict[str, dict[asyncio.Task[None], None]] = {}
        """Address -> its handshakes, the oldest first."""

    def __len__(self) -> int:
        return self._count

    def add(self, address: str, task: asyncio.Task[None]) -> None:
        if self._count >= self._limit:
            crowded = max(self._running, key=lambda each: len(self._running[each]))
            oldest = next(iter(self._running[crowded]))
            self._remove(crowded, oldest)  # at once: many connections may come before the task ends
            oldest.cancel()
        self._running.setdefault(address, {})[task] = None
        self._count += 1
        task.add_done_callback(lambda done: self._remove(address, done))

    def _remove(self, address: str, task: asyncio.Task[None]) -> None:
        running = self._running.get(address, {})
        if task not in running:
            return
        self._count -= 1
        del running[task]
        if not running:
            del self._running[address]


class Handshake(asyncio.BaseProtocol):
    """The handshake of one connection. Its costly steps are done in a thread, meanwhile nothing is read."""

    def __init__(self, accepted: socket.socket, handshakes: Handshakes) -> None:
        self._socket = accepted
        self._handshakes = handshakes
        self._loop = handshakes.traffic.loop
        self._transport: Any = None
        self._tls: Any = None
        self._has_turn = True
        self._is_stepping = False
        self._is_given_up = False

    async def finish(self, protocol: asyncio.BaseProtocol, context: ssl.SSLContext) -> None:
        """Let the client in. OSError if it does not come through."""
        done = self._loop.create_future()
        tls_objects.handshake.set(self)  # in the context of this task only
        self._tls = self._handshakes.tls_protocol(
            self._loop,
            protocol,
            context,
            done,
            server_side=True,
            ssl_handshake_timeout=2 * self._handshakes.time_s,  # the listener gives up before
            ssl_shutdown_timeout=TLS_SHUTDOWN_S,
        )
        await self._loop.connect_accepted_socket(lambda: self, self._socket)
        try:
            await done
        finally:
            del done  # it may have a failure, whose traceback has this frame: a cycle for the garbage collector
        self._transport = self._tls = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand the connection over to TLS, before anything is read."""
        self._transport = transport
        self._transport.set_protocol(self._tls)
        self._tls.connection_made(transport)

    def abort(self) -> None:
        """Close the connection, after a step that runs: the thread uses the buffers of OpenSSL."""
        if self._is_stepping:
            self._is_given_up = True
            return
        transport, self._transport, self._tls = self._transport, None, None
        if transport is None:
            self._socket.close()
        else:
            transport.abort()

    def end_turn(self) -> None:
        """Let the next handshake begin, if none has begun since this one."""
        if self._has_turn:
            self._has_turn = False
            self._handshakes.turns.end()

    # What the TLS object asks for

    def send(self, data: bytes) -> None:
        self._socket.send(data)

    def run(self, step: Callable[[], None]) -> None:
        self._transport.pause_reading()
        self._loop.call_soon(self._begin, step)  # when the loop has taken what there is to send

    def _begin(self, step: Callable[[], None]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._is_stepping = True
            asyncio.ensure_future(self._handshakes.offload(step)).add_done_callback(self._go_on)

    def _go_on(self, done: "asyncio.Future[None]") -> None:
        self._is_stepping = False
        self.end_turn()
        if self._is_given_up:
            self.abort()
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._tls.buffer_updated(0)  # nothing new has arrived, but there is an answer


def find_tls_protocol(loop: asyncio.AbstractEventLoop) -> Callable[..., Any]:
    """The protocol between a connection and its transport that speaks TLS, as the loop itself would use it."""
    if type(loop).__module__.partition(".")[0] == "uvloop":
        from uvloop import loop as uvloop_loop

        return cast(Callable[..., Any], uvloop_loop.SSLProtocol)  # type: ignore[attr-defined]
    from asyncio.sslproto import SSLProtocol

    return SSLProtocol


class TlsListener:
    """Listens on one socket. It is used like an `asyncio.Server`."""

    def __init__(
        self,
        bound: socket.socket,
        factory: Callable[[], asyncio.BaseProtocol],
        security: ListenerSecurity,
        handshakes: Handshakes,
        backlog: int,
        logins: LoginMeter | None = None,
    ) -> None:
        """`logins`: what counts handshakes that fail."""
        self._socket = bound
        self._factory = factory
        self._security = security
        self._handshakes = handshakes
        self._backlog = backlog
        self._logins = logins or LoginMeter()
        self._loop = handshakes.traffic.loop
        self._tasks: dict[asyncio.Task[None], asyncio.TimerHandle] = {}
        """Handshakes, and when each is given up."""
        self._retry: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def start_serving(self) -> None:
        self._socket.listen(self._backlog)
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        for task in list(self._tasks):
            task.cancel()

    def _accept(self) -> None:
        """Accept one connection: each takes 50 us, and the event loop serves other work before the next one."""
        self._retry = None
        try:
            accepted, peer = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno in NO_DESCRIPTOR and not self._is_closed:
                self._handshakes.traffic.warn("cannot accept a connection: the process may open no more files")
                self._loop.remove_reader(self._socket.fileno())
                self._retry = self._loop.call_later(NO_DESCRIPTOR_S, self._resume)
            return
        self._begin(accepted, str(peer[0]))

    def _resume(self) -> None:
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def _begin(self, accepted: socket.socket, address: str) -> None:
        traffic = self._handshakes.traffic
        open_or_coming = len(traffic.flows) + len(self._handshakes)
        refusal = traffic.admission.find_refusal(address, open_or_coming, self._loop.time(), traffic.settings)
        if refusal is None:
            refusal = traffic.admission.count_arrival(address)
        if refusal is not None:
            traffic.refused += 1
            traffic.warn(f"refused a connection from {address}: {refusal}")
            accepted.close()
            return
        accepted.setblocking(False)
        task = self._loop.create_task(self._shake_hands(accepted, address))
        self._tasks[task] = self._loop.call_later(self._handshakes.time_s, task.cancel)
        task.add_done_callback(lambda done: self._forget(done, accepted))
        self._handshakes.add(address, task)

    def _forget(self, task: asyncio.Task[None], accepted: socket.socket) -> None:
        self._tasks.pop(task).cancel()
        if task.cancelled():  # before its first step: later steps end it in their own way
            accepted.close()

    async def _shake_hands(self, accepted: socket.socket, address: str) -> None:
        handshake: Handshake | None = None
        try:
            await wait_for_hello(self._loop, accepted, self._handshakes.pace)
            await self._handshakes.turns.wait(address, accepted)
            handshake = Handshake(accepted, self._handshakes)
            assert self._security.context is not None
            await handshake.finish(self._factory(), self._security.context)
        except asyncio.CancelledError:
            self._note_failure(address, "it took too long")
        except OSError as error:
            self._note_failure(address, getattr(error, "reason", None) or error.strerror or str(error) or "time-out")
        else:
            return
        finally:
            if handshake is not None:
                handshake.end_turn()
        if handshake is None:
            accepted.close()
        else:
            handshake.abort()

    def _note_failure(self, address: str, reason: str) -> None:
        self._handshakes.failed += 1
        self._logins.failed += 1
        if not self._is_closed:
            traffic = self._handshakes.traffic
            traffic.warn(f"the TLS handshake of {address} at {self._security.listener.name} failed: {reason}")
