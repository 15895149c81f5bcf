"""The first message of a TLS handshake, the ClientHello, and the turns in which the broker answers it.

The answer costs half a millisecond, in a thread (`handshakes.py`), and as much for everything around it, on the event
loop. So a handshake begins when its ClientHello has arrived as a whole, and one at a time: while its answer is
made, the loop is there for everybody else. Addresses take turns: one that floods waits for itself.

A client uses its handshake when it authenticates, or sends a request to a listener at which nobody has to. An address
whose clients do not use their handshakes has few turns, whoever else waits: a handshake takes more of the broker's time
than twenty small requests.

    record       type (22), version (2 bytes), size (2 bytes), content
    ClientHello  type (1), size (3 bytes), ...; it may be spread over several records
"""

import asyncio
import select
import socket
from collections import deque

RECORD_HEADER, MESSAGE_HEADER = 5, 4
HANDSHAKE = 22
HELLO_BYTES_MAX = 16_384
"""A ClientHello that is longer is answered before it has arrived as a whole."""
LOOK_AGAIN_S = 0.02
_LEFT = getattr(select, "POLLRDHUP", select.POLLHUP)
"""What poll tells of a client that has left, besides errors. On Linux it is enough that the client sends no more."""

UNUSED_MAX = 50
"""Handshakes of one address that have been answered and that their clients have not used. Others of it wait."""
FORGIVEN_PER_S = 10
"""Unused handshakes of an address that no longer count, per second."""


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


async def wait_for_hello(loop: asyncio.AbstractEventLoop, accepted: socket.socket, pace: Pace) -> None:
    """Return when a client has sent its ClientHello. ConnectionError if it has left."""
    while True:
        try:
            data = accepted.recv(HELLO_BYTES_MAX, socket.MSG_PEEK)
        except BlockingIOError:
            await wait_until_readable(loop, accepted, pace)
            continue
        if is_whole(data):
            return
        if not data:
            raise ConnectionResetError("the client has left")
        await asyncio.sleep(LOOK_AGAIN_S)


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
    if accepted.fileno() < 0:
        return False
    poll = select.poll()
    poll.register(accepted, _LEFT)
    return not poll.poll(0)


class Unused:
    """How many handshakes of each address have been answered and not used, less what has been forgiven."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[float, float]] = {}
        """Address -> count, and when it was that many. The latest is the last."""

    def __len__(self) -> int:
        return len(self._counts)

    def find(self, address: str, now: float) -> float:
        count, at = self._counts.get(address, (0.0, now))
        return max(count - (now - at) * FORGIVEN_PER_S, 0.0)

    def change(self, address: str, change: int, now: float) -> None:
        count = self.find(address, now) + change
        self._counts.pop(address, None)
        if count > 0:
            self._counts[address] = count, now
        while self._counts:
            oldest = next(iter(self._counts))
            if self.find(oldest, now) > 0:
                break
            del self._counts[oldest]


class Turns:
    """Who may begin a handshake next."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.unused = Unused()
        self._loop = loop
        self._waiting: dict[str, deque[tuple[asyncio.Future[None], socket.socket]]] = {}
        """Address -> those of it that wait, the oldest first. The first address has the next turn."""
        self._is_busy = False
        self._later: asyncio.TimerHandle | None = None
        """When all addresses that wait have too many unused handshakes."""

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
        """Give a turn to one client, or let one go that has left. All that left at once would take the loop's time."""
        address = self._choose()
        self._is_busy = address is not None
        if address is None:
            return
        now, turns = self._loop.time(), self._waiting.pop(address)
        is_near_limit = self.unused.find(address, now) > UNUSED_MAX / 2
        turn, accepted = turns.pop() if is_near_limit else turns.popleft()  # the oldest are about to be given up
        if turns:
            self._waiting[address] = turns  # behind the others
        if is_there(accepted):
            self.unused.change(address, 1, now)
            turn.set_result(None)
        else:
            turn.set_exception(ConnectionResetError("the client has left"))
            self.end()

    def _choose(self) -> str | None:
        """The address whose turn it is. If none may have one yet, there is another choice a moment later."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        now = self._loop.time()
        for address, turns in list(self._waiting.items()):
            while turns and turns[0][0].done():  # given up meanwhile
                turns.popleft()
            while turns and turns[-1][0].done():
                turns.pop()
            if not turns:
                del self._waiting[address]
            elif self.unused.find(address, now) < UNUSED_MAX:
                return address
        if self._waiting:
            self._later = self._loop.call_later(1 / FORGIVEN_PER_S, self._next)
        return None

    def end(self) -> None:
        """The handshake whose turn it is has answered its client, or has failed."""
        self._loop.call_soon(self._next)

    def note_use(self, address: str) -> None:
        """A client has used the handshake for which it had a turn."""
        self.unused.change(address, -1, self._loop.time())
        if self._later is not None:
            self._next()
