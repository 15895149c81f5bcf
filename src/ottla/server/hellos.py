"""The first message of a TLS handshake, the ClientHello, and the turns in which the broker answers it.

The answer costs half a millisecond, in a thread (`handshakes.py`), and half as much for everything around it, on the
event loop. So a handshake begins when its ClientHello has arrived as a whole, and one at a time: while its answer is
made, the loop is there for everybody else. Addresses take turns: one that floods waits for itself.

    record       type (22), version (2 bytes), size (2 bytes), content
    ClientHello  type (1), size (3 bytes), ...; it may be spread over several records
"""

import asyncio
import socket
from collections import deque

from ottla.security.tls_objects import HELLO_BYTES_MAX

RECORD_HEADER, MESSAGE_HEADER = 5, 4
HANDSHAKE = 22
LOOK_AGAIN_S = 0.02


def find_end(data: bytes) -> int | None:
    """Where a ClientHello ends. None if it has not arrived as a whole; the end of these bytes if they are none."""
    position, content, needed = 0, bytearray(), MESSAGE_HEADER
    while len(content) < needed and len(data) < HELLO_BYTES_MAX:
        record = data[position : position + RECORD_HEADER]
        if record and record[0] != HANDSHAKE:
            return len(data)
        end = position + RECORD_HEADER + int.from_bytes(record[3:], "big")
        if len(record) < RECORD_HEADER or end > len(data):
            return None
        content += data[position + RECORD_HEADER : end]
        position = end
        if len(content) >= MESSAGE_HEADER:
            needed = MESSAGE_HEADER + int.from_bytes(content[1:MESSAGE_HEADER], "big")
    return position if len(content) >= needed else len(data)


class Pace:
    """Spreads work over iterations of the loop, one piece each: a crowd that comes or leaves at once delays nobody."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[asyncio.Future[None]] = deque()

    def finish(self, future: "asyncio.Future[None]") -> None:
        """Let whoever waits for this go on in one of the next turns."""
        self._waiting.append(future)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        future = self._waiting.popleft()
        if not future.done():
            future.set_result(None)
        if self._waiting:
            self._loop.call_soon(self._next)


async def wait_for_hello(loop: asyncio.AbstractEventLoop, accepted: socket.socket, pace: Pace) -> int:
    """Return the size of a ClientHello, when it has arrived. ConnectionError if the client has left."""
    while True:
        try:
            data = accepted.recv(HELLO_BYTES_MAX, socket.MSG_PEEK)
        except BlockingIOError:
            await wait_until_readable(loop, accepted, pace)
            continue
        if (size := find_end(data)) is not None:
            return size
        if not data:
            raise ConnectionResetError("the client has left")
        await asyncio.sleep(LOOK_AGAIN_S)


async def wait_for_more(loop: asyncio.AbstractEventLoop, accepted: socket.socket, pace: Pace) -> None:
    """Return when a client has sent something. ConnectionError if it has left."""
    await wait_until_readable(loop, accepted, pace)
    if not accepted.recv(1, socket.MSG_PEEK):
        raise ConnectionResetError("the client has left")


async def wait_until_readable(loop: asyncio.AbstractEventLoop, accepted: socket.socket, pace: Pace) -> None:
    readable, descriptor = loop.create_future(), accepted.fileno()

    def notice() -> None:
        loop.remove_reader(descriptor)
        pace.finish(readable)

    loop.add_reader(descriptor, notice)
    try:
        await readable
    finally:
        loop.remove_reader(descriptor)


def is_there(accepted: socket.socket) -> bool:
    """Whether a client has not left. What it has sent before it left could still be read."""
    return accepted.fileno() >= 0 and accepted.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0


class Turns:
    """Who may begin a handshake next."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[str, deque[tuple[asyncio.Future[None], socket.socket]]] = {}
        """Address -> those of it that wait. The first address has the next turn."""
        self._is_busy = False

    async def wait(self, address: str, accepted: socket.socket) -> None:
        """Return when it is the turn of a handshake of this address. ConnectionError if the client leaves before."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.setdefault(address, deque()).append((turn, accepted))
        if not self._is_busy:
            self._next()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled() and turn.exception() is None:  # it has been given up just when it got its turn
                self.end()
            raise

    def _next(self) -> None:
        turn = self._choose()
        self._is_busy = turn is not None
        if turn is not None:
            turn.set_result(None)

    def _choose(self) -> "asyncio.Future[None] | None":
        while self._waiting:
            address = next(iter(self._waiting))
            turns = self._waiting.pop(address)
            turn, accepted = turns.popleft()
            if turns:
                self._waiting[address] = turns  # behind the others
            if turn.done():
                continue
            if is_there(accepted):
                return turn
            turn.set_exception(ConnectionResetError("the client has left"))
        return None

    def end(self) -> None:
        """The handshake whose turn it is has answered its client, or has failed."""
        self._loop.call_soon(self._next)
