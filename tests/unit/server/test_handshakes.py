"""TLS handshakes: how many there are, when one begins, and whose turn it is."""

import asyncio
import socket
import ssl
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from ottla.server.handshakes import Handshakes
from ottla.server.hellos import HELLO_BYTES_MAX, Turns, is_whole, wait_for_hello
from ottla.server.traffic import ServerSettings, Traffic


def make_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="broker").do_handshake()
    return outgoing.read()


def test_a_hello_is_whole_when_its_last_byte_is_there() -> None:
    # In one record or in many, as a client may send it to make the broker begin early.
    hello = make_hello()
    content = hello[5:]
    pieces = [content[start : start + 50] for start in range(0, len(content), 50)]
    spread = b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece for piece in pieces)
    for whole in (hello, spread):
        assert [is_whole(whole[:size]) for size in range(len(whole))] == [False] * len(whole)
        assert is_whole(whole)
    assert is_whole(b"GET / HTTP/1.1")  # whoever does not speak TLS is refused at once
    assert is_whole(b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + bytes(HELLO_BYTES_MAX))


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_more_handshakes_than_the_limit_are_given_up_at_once() -> None:
    # Also if they all come within one turn of the loop, in which no task can end.
    async def main() -> None:
        handshakes = Handshakes(Traffic(ServerSettings()), limit=10)
        other = asyncio.create_task(asyncio.sleep(1000))
        handshakes.add("10.0.0.2", other)
        tasks = [asyncio.create_task(asyncio.sleep(1000)) for _ in range(64)]
        for task in tasks:
            handshakes.add("10.0.0.1", task)
            assert len(handshakes) <= 10
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [task.cancelled() for task in tasks] == [True] * 55 + [False] * 9
        assert not other.cancelled()
        for task in (*tasks, other):
            task.cancel()
        await asyncio.gather(*tasks, other, return_exceptions=True)
        assert len(handshakes) == 0

    run(main())


def test_a_handshake_waits_for_its_hello() -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        waiting = asyncio.create_task(wait_for_hello(asyncio.get_running_loop(), ours))
        hello = make_hello()
        for size in (0, 3, 100):
            theirs.sendall(hello[:size])
            hello = hello[size:]
            for _ in range(5):
                await asyncio.sleep(0)
            assert not waiting.done()
        theirs.sendall(hello)
        await waiting
        assert ours.recv(3) == b"\x16\x03\x01"  # it was only looked at
        gone = asyncio.create_task(wait_for_hello(asyncio.get_running_loop(), theirs))
        ours.close()
        with suppress(ConnectionError):
            await gone
            raise AssertionError("the client has left")
        theirs.close()

    run(main())


def test_addresses_take_turns_and_one_handshake_begins_at_a_time() -> None:
    # One that comes after a flood of another address has the next turn but one. Between two turns the loop goes on.
    async def main() -> None:
        turns, order, ours = Turns(Traffic(ServerSettings())), [], socket.socketpair()
        turn_of_loop = 0

        async def begin(address: str) -> None:
            await turns.wait(address, ours[0])
            order.append((address, turn_of_loop))

        tasks = [asyncio.create_task(begin("flood")) for _ in range(20)] + [asyncio.create_task(begin("other"))]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            turn_of_loop += 1
        assert [address for address, _ in order].index("other") <= 2
        assert len({turn for _, turn in order}) == len(order)
        for each in ours:
            each.close()

    run(main())


def test_who_has_left_takes_no_turn() -> None:
    async def main() -> None:
        turns = Turns(Traffic(ServerSettings()))
        (here, peer), (left, _) = socket.socketpair(), socket.socketpair()
        first = asyncio.create_task(turns.wait("a", here))
        waiting = [asyncio.create_task(turns.wait("a", each)) for each in (left, here)]
        await asyncio.sleep(0)
        left.close()
        found = await asyncio.gather(first, *waiting, return_exceptions=True)
        assert [type(each) for each in found] == [type(None), ConnectionResetError, type(None)]
        for each in (here, peer, _):
            each.close()

    run(main())
