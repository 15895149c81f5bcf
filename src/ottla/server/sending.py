"""Sends the outbox of a connection: each connection has one sender, and nothing else writes to its socket.

`SocketSender` writes to a plaintext socket itself (`writev`, `sendfile`), past the transport, which then never holds
output of its own. The header and the data of an answer are sent within one iteration of the event loop, and answers
that are ready together are sent in one call. The sender waits for room with `add_writer` on a duplicate of the
descriptor, because asyncio does not allow `add_writer` on the descriptor of a transport.

`TransportSender` goes through the transport and its flow control, for TLS and for the network of the simulator.
"""

import asyncio
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ottla.server.outbox import Outbox, Range, TruncatedFile
from ottla.storage.files import Bytes

Offload = Callable[..., Awaitable[Any]]

TURN_BYTES = 1024 * 1024  # that one connection sends before others get their turn: a usual fetch
TAIL_BYTES = 4096  # so few remaining bytes are sent in the same turn
COPIED_BYTES = 32 * 1024  # up to this size a file range is cheaper to copy than to send with sendfile
ROOM_RETRY_S = 0.01  # until the next attempt, if no descriptor is left for a duplicate to wait with


class SendObserver(Protocol):
    """What a sender reports to its connection."""

    def sent(self, count: int) -> None:
        """`count` bytes were sent. Called once per turn, after the outbox is updated."""

    def send_failed(self, error: Exception) -> None:
        """The connection is broken, so nothing more can be sent."""


class NoObserver:
    """The observer of a closed sender, which has nothing more to report."""

    def sent(self, count: int) -> None:
        return

    def send_failed(self, error: Exception) -> None:
        return


NO_OBSERVER = NoObserver()


class ClosedTransport(asyncio.Transport):
    """The transport of a connection that is closed."""

    def is_closing(self) -> bool:
        return True

    def abort(self) -> None:
        return

    def close(self) -> None:
        return


CLOSED = ClosedTransport()


class Sender(ABC):
    """Sends in turns, and reads ranges that are not cached in a thread. A subclass knows how bytes are sent."""

    __slots__ = (
        "_closed",
        "_loop",
        "_observer",
        "_offload",
        "_scheduled",
        "_transport",
        "_warming",
        "blocked",
        "outbox",
    )

    def __init__(
        self,
        outbox: Outbox,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        offload: Offload,
        observer: SendObserver,
    ) -> None:
        self.outbox = outbox
        self.blocked = False  # the socket or transport has no room
        self._transport = transport
        self._loop = loop
        self._offload = offload
        self._observer = observer
        self._scheduled = False
        self._warming: asyncio.Task[None] | None = None
        self._closed = False

    def flush(self) -> None:
        """Send what can be sent now. The rest follows without another call."""
        if not (self.blocked or self._scheduled or self._warming or self._closed) and self.outbox.parts:
            self._turn()

    @abstractmethod
    def send_small(self, data: Bytes) -> int:
        """Send a small answer past the empty outbox. Returns how many bytes were sent."""

    def close(self) -> None:
        """Drop unsent parts and unpin their files. The connection closes the transport itself.

        The sender drops its connection too. The two refer to each other, and without this a closed connection would
        stay in memory until a full garbage collection, of which a broker has one in 100,000 connections.
        """
        self._closed = True
        self._observer = NO_OBSERVER
        self._transport = CLOSED
        self.outbox.clear()

    def pause(self) -> None:
        """The transport's own buffer is full."""
        self.blocked = True

    def resume(self) -> None:
        self.blocked = False
        self.flush()

    def _turn(self) -> None:
        self._scheduled = False
        if self._closed or self._transport.is_closing():
            return
        outbox = self.outbox
        before = outbox.unsent
        full = False
        try:
            while outbox.parts and not full and (before - outbox.unsent < TURN_BYTES or outbox.unsent <= TAIL_BYTES):
                run = outbox.run()
                full = self._send_run(run) if run else self._send_range(outbox.parts[0])
        except BlockingIOError:
            full = True
        except (OSError, TruncatedFile) as error:
            self._observer.send_failed(error)
            return
        self._schedule_turn(full)
        if outbox.unsent != before:
            self._observer.sent(before - outbox.unsent)

    def _schedule_turn(self, full: bool) -> None:
        """Schedule the next turn, if there is something to send and room for it."""
        if self.outbox.parts and not full:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    async def _warm(self, part: Range) -> None:
        """Have a thread read the range into the page cache: waiting for the disk here would stop the whole broker."""
        try:
            await self._offload(part.warm)
        except (OSError, TruncatedFile) as error:
            if not self._closed:
                self._observer.send_failed(error)
        finally:
            part.file.unpin()
            self._warming = None
        self.flush()

    @abstractmethod
    def _send_run(self, run: list[Bytes]) -> bool:
        """Send parts that are in memory. Returns True if there is no room for more."""

    def _send_range(self, part: Bytes | Range) -> bool:
        """Send a file range. This one is not cached: it is read in a thread first. Returns True if there is no room."""
        assert isinstance(part, Range)
        part.file.pin()  # the connection may be closed before the thread is done
        self._warming = self._loop.create_task(self._warm(part))
        return True


class TransportSender(Sender):
    __slots__ = ()

    def send_small(self, data: Bytes) -> int:
        if self.blocked or self._closed or self._transport.is_closing():
            return 0
        self._transport.write(data)
        return len(data)

    def _send_run(self, run: list[Bytes]) -> bool:
        data = run[0] if len(run) == 1 else b"".join(run)
        self.outbox.sent(len(data))
        self._transport.write(data)  # calls `pause` when it has enough
        return self.blocked


class SocketSender(Sender):
    __slots__ = ("_descriptor", "_socket")

    def __init__(
        self,
        outbox: Outbox,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        offload: Offload,
        observer: SendObserver,
    ) -> None:
        super().__init__(outbox, transport, loop, offload, observer)
        self._descriptor: int = transport.get_extra_info("socket").fileno()
        self._socket: socket.socket | None = None  # the duplicate, made when it is first needed

    def send_small(self, data: Bytes) -> int:
        if self._closed or self._transport.is_closing():
            return 0
        try:
            return os.write(self._descriptor, data)
        except OSError:  # no room, or the peer is gone: the next turn finds out
            return 0

    def close(self) -> None:
        super().close()
        self._stop_watching()
        if self._socket is not None:
            self._socket.close()  # while the duplicate is open, the peer does not see that the transport is closed
            self._socket = None

    def _send_run(self, run: list[Bytes]) -> bool:
        outbox = self.outbox
        size = sum(map(len, run))
        if outbox.is_file_next(run) and (duplicate := self._duplicate_socket()) is not None:
            sent = duplicate.sendmsg(run, (), socket.MSG_MORE | socket.MSG_DONTWAIT)  # one packet with the file's bytes
        else:
            sent = os.writev(self._descriptor, run)
        outbox.sent(sent)
        return sent < size

    def _send_range(self, part: Bytes | Range) -> bool:
        assert isinstance(part, Range) and part.descriptor is not None
        wanted = min(part.length, TURN_BYTES)
        if not part.is_cached(wanted):
            return super()._send_range(part)
        sent = os.sendfile(self._descriptor, part.descriptor, part.position, wanted)
        if sent == 0:
            raise TruncatedFile(part.file.path)
        self.outbox.sent_range(part, sent)
        return sent < wanted

    def _schedule_turn(self, full: bool) -> None:
        if not self.outbox.parts or self._warming:
            self._stop_watching()
        elif full and not self.blocked:
            self._watch()
        elif not self.blocked:  # else the event loop calls `_turn` when there is room
            super()._schedule_turn(full)

    def _watch(self) -> None:
        duplicate = self._duplicate_socket()
        if duplicate is None:
            self._scheduled = True
            self._loop.call_later(ROOM_RETRY_S, self._turn)
        else:
            self.blocked = True
            self._loop.add_writer(duplicate.fileno(), self._turn)

    def _stop_watching(self) -> None:
        if self.blocked and self._socket is not None:
            self._loop.remove_writer(self._socket.fileno())
        self.blocked = False

    def _duplicate_socket(self) -> socket.socket | None:
        """The socket under a second descriptor; None if the process has no descriptor left."""
        if self._socket is None:
            try:
                self._socket = socket.socket(fileno=os.dup(self._descriptor))
            except OSError:
                return None
        return self._socket
