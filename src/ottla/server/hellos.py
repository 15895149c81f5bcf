"""The first message of a TLS handshake, the ClientHello, and the turns in which the broker answers it.

The answer costs a signature: about a millisecond in which the event loop does nothing else. So a handshake begins when
its ClientHello has arrived as a whole, and one at a time. If requests were handled meanwhile, the next one begins after
a pause as long as this one took: handshakes take half of the time of clients that are at work, however many there are.
Addresses take turns: one that floods waits for itself.

    record       type (22), version (2 bytes), size (2 bytes), content
    ClientHello  type (1), size (3 bytes), ...; it may be spread over several records
"""

import asyncio
import socket
from collections import deque

from ottla.server.traffic import Traffic
from ottla.system.clock import stopwatch

RECORD_HEADER, MESSAGE_HEADER = 5, 4
HANDSHAKE = 22
HELLO_BYTES_MAX = 16_384
"""A hello that is longer is answered before it has arrived as a whole."""

LOOK_AGAIN_S = 0.02
PAUSE_S_MAX = 0.05


def is_whole(data: bytes) -> bool:
    """Whether a ClientHello has arrived as a whole, or these bytes are none."""
    position, content, needed = 0, bytearray(), MESSAGE_HEADER
    while len(content) < needed and len(data) < HELLO_BYTES_MAX:
        record = data[position : position + RECORD_HEADER]
        if record and record[0] != HANDSHAKE:
            return True
        end = position + RECORD_HEADER + int.from_bytes(record[3:], "big")
        if len(record) < RECORD_HEADER or end > len(data):
            return False
        content += data[position + RECORD_HEADER : end]
        position = end
        if len(content) >= MESSAGE_HEADER:
            needed = MESSAGE_HEADER + int.from_bytes(content[1:MESSAGE_HEADER], "big")
    return True


async def wait_for_hello(loop: asyncio.AbstractEventLoop, accepted: socket.socket) -> None:
    """Return when a client has sent its ClientHello. ConnectionError if it has left, or sends nothing more."""
    readable = asyncio.Event()
    loop.add_reader(accepted.fileno(), readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(accepted.fileno())
    while not is_whole(data := accepted.recv(HELLO_BYTES_MAX, socket.MSG_PEEK)):
        if not data:
            raise ConnectionResetError("the client has left")
        await asyncio.sleep(LOOK_AGAIN_S)


def is_there(accepted: socket.socket) -> bool:
    """Whether a client has not left. What it has sent before it left could still be read."""
    return accepted.fileno() >= 0 and accepted.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0


class Turns:
    """Who may begin a handshake next."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._waiting: dict[str, deque[tuple[asyncio.Future[None], socket.socket]]] = {}
        """Address -> those of it that wait. The first address has the next turn."""
        self._is_busy = False
        self._requests = 0
        self._began_s = 0.0

    async def wait(self, address: str, accepted: socket.socket) -> None:
        """Return when it is the turn of a handshake of this address. ConnectionError if the client leaves before."""
        turn: asyncio.Future[None] = self._traffic.loop.create_future()
        self._waiting.setdefault(address, deque()).append((turn, accepted))
        if not self._is_busy:
            self._next()
        await turn

    def _next(self) -> None:
        turn = self._choose()
        self._is_busy = turn is not None
        if turn is not None:
            turn.set_result(None)
            self._requests, self._began_s = self._traffic.requests, stopwatch()
            self._count_turns(3)

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

    def _count_turns(self, left: int) -> None:
        """The handshake begins in the next turn of the loop, and what arrived of it is read in the one after."""
        if left:
            self._traffic.loop.call_soon(self._count_turns, left - 1)
            return
        pause_s = 0.0
        if self._traffic.requests != self._requests:  # somebody else is at work
            pause_s = min(stopwatch() - self._began_s, PAUSE_S_MAX)
        self._traffic.loop.call_later(pause_s, self._next)
