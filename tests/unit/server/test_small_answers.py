"""A small answer to a single frame bypasses the outbox: it is sent at once or at the end of the turn, in order."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any, cast

from ottla.broker.call import Client, Frame, Part
from ottla.server.connection import Connection
from ottla.server.traffic import ServerSettings, Traffic
from tests.unit.server.serving import run


class SocketTransport:
    """One end of a socket pair. The test passes the received bytes to the protocol itself."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self.ended = False

    def get_extra_info(self, name: str) -> Any:
        return {"socket": self._end, "peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}.get(name)

    def is_closing(self) -> bool:
        return False

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Peer:
    """A client and its connection, whose requests are answered with the same bytes."""

    def __init__(self, traffic: Traffic) -> None:
        near, self._far = socket.socketpair()
        near.setblocking(False)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self._far.setblocking(False)
        self.near = near
        self.transport = SocketTransport(near)
        self.connection = Connection(traffic, echo, nothing_to_offload, "PLAINTEXT")
        self.connection.connection_made(cast(asyncio.Transport, self.transport))

    def receives(self, data: bytes) -> None:
        self.connection.get_buffer(-1)[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def arrived(self) -> bytes:
        try:
            return self._far.recv(1 << 20)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        self.connection.connection_lost(None)
        self.near.close()
        self._far.close()


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def echo(client: Client, frame: Frame) -> list[Part]:
    return [bytes(frame)]


def nothing_to_offload(function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
    raise AssertionError("nothing here needs a thread")


def with_two(scenario: Callable[[Peer, Peer], Coroutine[Any, Any, None]]) -> None:
    """Run with two connections, of which the first has sent in this turn already. The clock stands still, as in a turn
    shorter than a millisecond: on a busy machine a turn may take longer."""

    async def main() -> None:
        traffic = Traffic(ServerSettings())
        traffic._turn_time = lambda: 1.0
        first, second = Peer(traffic), Peer(traffic)
        try:
            first.receives(framed(b"first"))
            assert first.arrived() == framed(b"first")
            await scenario(first, second)
        finally:
            first.close()
            second.close()

    run("uvloop", main())


def test_answers_of_one_turn_leave_at_its_end() -> None:
    async def scenario(first: Peer, second: Peer) -> None:
        second.receives(framed(b"second"))
        assert second.arrived() == b""
        await asyncio.sleep(0)
        assert second.arrived() == framed(b"second")

    with_two(scenario)


def test_a_second_frame_in_the_same_turn_does_not_overtake() -> None:
    async def scenario(first: Peer, second: Peer) -> None:
        second.receives(framed(b"one"))
        second.receives(framed(b"two") + framed(b"three"))
        await asyncio.sleep(0)
        assert second.arrived() == framed(b"one") + framed(b"two") + framed(b"three")

    with_two(scenario)


def test_bytes_that_the_socket_does_not_accept_follow_later() -> None:
    # The peer reads nothing, so its buffer fills up in the middle of an answer. Then it reads all of it.
    async def scenario(first: Peer, second: Peer) -> None:
        sent = b""
        while not second.connection._outbox.parts:
            answer = framed(b"%05d" % len(sent) * 1500)
            second.receives(answer)
            sent += answer
            await asyncio.sleep(0)
        assert second.connection._traffic.unsent_memory > 0
        arrived = b""
        while len(arrived) < len(sent):
            arrived += second.arrived()
            await asyncio.sleep(0)
        assert arrived == sent
        assert second.connection._traffic.unsent_memory == 0

    with_two(scenario)


def test_a_drained_connection_sends_its_answers_first() -> None:
    async def scenario(first: Peer, second: Peer) -> None:
        second.receives(framed(b"last"))
        second.connection.drain()
        assert not second.transport.ended
        await asyncio.sleep(0)
        assert second.arrived() == framed(b"last") and second.transport.ended

    with_two(scenario)


def test_a_connection_that_is_gone_sends_nothing() -> None:
    async def scenario(first: Peer, second: Peer) -> None:
        second.receives(framed(b"nobody"))
        second.connection.connection_lost(None)
        await asyncio.sleep(0)
        assert second.arrived() == b""

    with_two(scenario)
