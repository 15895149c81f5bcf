"""One connection: frames in, answers out, in order, whatever the client and the handlers do."""

import asyncio
import gc
import logging
import struct
from collections.abc import Callable, Coroutine
from random import Random
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

import pytest

from ottla.broker.call import Answer, Client, CloseConnection, Frame
from ottla.server import ServerSettings
from ottla.server.connection import Connection
from tests.unit.server.serving import connected, on_both_loops, run, serving, until

Pending = Coroutine[Any, Any, Answer] | asyncio.Future[Answer]


def echo(client: Client, frame: Frame) -> Answer:
    return [b"<", bytes(frame), b">"]


def later(answer: Answer, delay_s: float, before: Callable[[], None] = lambda: None) -> asyncio.Future[Answer]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Answer] = loop.create_future()

    def settle() -> None:
        before()
        if not future.done():
            future.set_result(answer)

    loop.call_later(delay_s, settle)
    return future


@on_both_loops
def test_frames_are_answered_however_their_bytes_arrive(loop: str) -> None:
    # One byte at a time, several frames at once, an empty frame and frames that need buffers of their own.
    frames = [b"", b"a", bytes(range(256)) * 2, Random(1).randbytes(300_000), b"z" * 65_536, b"last"]
    wire = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)

    async def main() -> None:
        async with serving(echo) as (server, port):
            whole, dripping = await connected(port), await connected(port)
            whole.write(wire)
            for position in range(300):
                dripping.write(wire[position : position + 1])
                await asyncio.sleep(0)
            dripping.write(wire[300:])
            for client in whole, dripping:
                assert [await client.read_frame() for _ in frames] == [b"<" + frame + b">" for frame in frames]
            assert server.traffic.requests == 2 * len(frames)
            assert server.traffic.bytes_in == 2 * len(wire)
            assert server.traffic.bytes_out == 2 * (len(wire) + 2 * len(frames))

    run(loop, main())


@on_both_loops
def test_ten_thousand_pipelined_requests_are_answered_in_order_from_a_bounded_queue(loop: str) -> None:
    # Immediate, awaited and overlapping answers mix; no more than the limit wait at any time.
    random = Random(2)
    waiting = most = 0

    def dispatch(client: Client, frame: Frame) -> Answer | Pending:
        nonlocal waiting, most
        kind = random.random()
        answer: Answer = [bytes(frame)]
        if kind < 0.5:
            return answer
        waiting += 1
        most = max(most, waiting)
        return in_a_while(answer) if kind < 0.6 else later(answer, random.random() * 0.002, one_less)

    def one_less() -> None:
        nonlocal waiting
        waiting -= 1

    async def in_a_while(answer: Answer) -> Answer:
        await asyncio.sleep(0)
        one_less()
        return answer

    async def main() -> None:
        async with serving(dispatch, ServerSettings(in_flight_requests_max=20)) as (_, port):
            client = await connected(port)
            numbers = [struct.pack(">i", number) for number in range(10_000)]
            client.write_frame(*numbers)
            assert [await client.read_frame() for _ in numbers] == numbers
            assert 5 < most <= 20

    run(loop, main())


@on_both_loops
def test_a_coroutine_holds_the_connection_and_no_other(loop: str) -> None:
    # The next frame of the same client is not handled before the coroutine is done; another client's is.
    gate = asyncio.Event()
    handled: list[bytes] = []

    async def slowly() -> Answer:
        await gate.wait()
        return [b"slow"]

    def dispatch(client: Client, frame: Frame) -> Answer | Pending:
        handled.append(bytes(frame))
        return slowly() if bytes(frame) == b"slow" else [bytes(frame)]

    async def main() -> None:
        async with serving(dispatch) as (_, port):
            one, other = await connected(port), await connected(port)
            one.write_frame(b"slow", b"next")
            await until(lambda: b"slow" in handled)
            other.write_frame(b"other")
            assert await other.read_frame() == b"other"
            assert handled == [b"slow", b"other"]
            gate.set()
            assert [await one.read_frame(), await one.read_frame()] == [b"slow", b"next"]

    run(loop, main())


@on_both_loops
def test_a_coroutine_that_promises_its_answer_lets_the_next_frame_in(loop: str) -> None:
    # The coroutine holds the connection until it ends. Then its promised answer overlaps with others, and order is
    # kept.
    gate = asyncio.Event()
    promises: list[asyncio.Future[Answer]] = []
    handled: list[bytes] = []

    async def slowly() -> asyncio.Future[Answer]:
        await gate.wait()
        promises.append(asyncio.get_running_loop().create_future())
        return promises[-1]

    def dispatch(client: Client, frame: Frame) -> Any:
        handled.append(bytes(frame))
        return slowly() if bytes(frame) == b"slow" else [bytes(frame)]

    async def main() -> None:
        async with serving(dispatch) as (server, port):
            client = await connected(port)
            client.write_frame(b"slow", b"next")
            await until(lambda: handled)
            assert handled == [b"slow"]
            gate.set()
            await until(lambda: len(handled) == 2)
            assert server.traffic.queued == 4 and server.traffic.bytes_out == 0
            promises[0].set_result([b"promised"])
            assert [await client.read_frame(), await client.read_frame()] == [b"promised", b"next"]

    run(loop, main())


@on_both_loops
def test_a_coroutine_that_ends_as_the_answer_before_it_comes_keeps_its_promise(loop: str) -> None:
    # Both callbacks run in one iteration of the loop, that of the first answer before that of the coroutine.
    first: list[asyncio.Future[Answer]] = []
    promises: list[asyncio.Future[Answer]] = []

    async def slowly() -> asyncio.Future[Answer]:
        await asyncio.sleep(0)
        promises.append(asyncio.get_running_loop().create_future())
        first[0].set_result([b"first"])
        return promises[0]

    def dispatch(client: Client, frame: Frame) -> Any:
        if bytes(frame) == b"slow":
            return slowly()
        first.append(asyncio.get_running_loop().create_future())
        return first[0]

    async def main() -> None:
        async with serving(dispatch) as (_, port):
            client = await connected(port)
            client.write_frame(b"now", b"slow")
            assert await client.read_frame() == b"first"
            promises[0].set_result([b"promised"])
            assert await client.read_frame() == b"promised"

    run(loop, main())


@on_both_loops
def test_overlapping_requests_are_handled_before_the_first_is_answered(loop: str) -> None:
    # Five requests are in flight, and the sixth waits because of the limit. The first answer is sent first, although it
    # is ready last.
    futures: list[asyncio.Future[Answer]] = []

    def dispatch(client: Client, frame: Frame) -> Answer | Pending:
        futures.append(asyncio.get_running_loop().create_future())
        return futures[-1]

    async def main() -> None:
        async with serving(dispatch, ServerSettings(in_flight_requests_max=5)) as (server, port):
            client = await connected(port)
            client.write_frame(*[b"x" * 10] * 6)
            await until(lambda: len(futures) == 5)
            assert server.traffic.queued == 50
            for number in (4, 3, 2, 1):
                futures[number].set_result([bytes([number])])
            await asyncio.sleep(0.01)
            assert server.traffic.bytes_out == 0 and len(futures) == 5
            futures[0].set_result(None)  # a request without an answer
            await until(lambda: len(futures) == 6)
            futures[5].set_result([b"\5"])
            assert [await client.read_frame() for _ in range(5)] == [b"\1", b"\2", b"\3", b"\4", b"\5"]

    run(loop, main())


@on_both_loops
@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 1001])
def test_an_impossible_size_closes_the_connection_after_the_answers_before_it(
    loop: str, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    # Negative and too large sizes cost one warning and this connection only.
    async def main() -> None:
        async with serving(echo, ServerSettings(socket_request_max_bytes=1000)) as (_, port):
            bad, good = await connected(port), await connected(port)
            bad.write(struct.pack(">i", 1) + b"a" + struct.pack(">i", size) + b"anything")
            assert await bad.read_frame() == b"<a>"
            await bad.wait_closed()
            good.write_frame(b"b" * 1000)
            assert await good.read_frame() == b"<" + b"b" * 1000 + b">"

    run(loop, main())
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"{size} bytes" in caplog.text


@on_both_loops
def test_an_announced_size_costs_no_memory_until_the_bytes_come(loop: str) -> None:
    # 100 MB are announced. The memory grows with what has arrived, to at most twice as much.
    async def main() -> None:
        async with serving(echo) as (server, port):
            client = await connected(port)
            client.write(struct.pack(">i", 104_857_600) + b"a")
            await until(lambda: server.traffic.queued)
            assert server.traffic.queued <= 65_536
            client.write(bytes(1_000_000))
            await until(lambda: server.traffic.bytes_in == 1_000_005)
            assert 1_000_000 <= server.traffic.queued <= 2_097_152

    run(loop, main())


@on_both_loops
@pytest.mark.parametrize("way", ["raised", "coroutine", "future", "cancelled"])
def test_close_connection_leaves_the_answers_before_it_and_none_after(
    loop: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    # The handler may say so in several ways. Later frames are not handled, and nothing is logged above debug.
    handled: list[bytes] = []

    async def refuse() -> Answer:
        raise CloseConnection("no more")

    def dispatch(client: Client, frame: Frame) -> Answer | Pending:
        handled.append(bytes(frame))
        if bytes(frame) != b"bad":
            return later([bytes(frame)], 0.01)
        if way == "raised":
            raise CloseConnection("no more")
        if way == "coroutine":
            return refuse()
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if way == "cancelled":
            future.cancel()
        else:
            future.set_exception(CloseConnection("no more"))
        return future

    async def main() -> None:
        async with serving(dispatch) as (server, port):
            client = await connected(port)
            client.write_frame(b"one", b"two", b"bad", b"three")
            assert [await client.read_frame(), await client.read_frame()] == [b"one", b"two"]
            with pytest.raises(EOFError, match="0 of 4 bytes"):
                await client.read_frame()
            assert client.error is None  # the connection ended normally, although a frame was not handled
            if way in ("raised", "coroutine"):
                assert handled == [b"one", b"two", b"bad"]
            await until(lambda: not server.traffic.queued)

    run(loop, main())
    assert not [record for record in caplog.records if record.levelno > logging.DEBUG]


@on_both_loops
@pytest.mark.parametrize("way", ["raised", "coroutine", "future"])
def test_a_broken_handler_costs_its_connection_only(loop: str, way: str, caplog: pytest.LogCaptureFixture) -> None:
    # The error is logged with its traceback; the server goes on.
    async def fail() -> Answer:
        raise ZeroDivisionError("oops")

    def dispatch(client: Client, frame: Frame) -> Answer | Pending:
        if bytes(frame) != b"bad":
            return [bytes(frame)]
        if way == "raised":
            raise ZeroDivisionError("oops")
        return fail() if way == "coroutine" else asyncio.ensure_future(fail())

    async def main() -> None:
        async with serving(dispatch) as (_, port):
            bad, good = await connected(port), await connected(port)
            bad.write_frame(b"before", b"bad")
            assert await bad.read_frame() == b"before"
            await bad.wait_closed()
            good.write_frame(b"fine")
            assert await good.read_frame() == b"fine"

    run(loop, main())
    assert caplog.text.count("ZeroDivisionError: oops") == 1


@on_both_loops
def test_a_client_that_ends_its_side_still_gets_its_answers(loop: str) -> None:
    # The client half-closes its connection. Every request is answered, then the connection ends.
    async def slowly(frame: bytes) -> Answer:
        await asyncio.sleep(0.001)
        return [frame]

    async def main() -> None:
        async with serving(lambda client, frame: slowly(bytes(frame))) as (server, port):
            client = await connected(port)
            client.write_frame(b"1", b"2", b"3")
            client.transport.write_eof()
            assert [await client.read_frame() for _ in range(3)] == [b"1", b"2", b"3"]
            await client.wait_closed()
            await until(lambda: not server.connections)

    run(loop, main())


@on_both_loops
def test_a_client_that_leaves_during_a_request_is_noticed_and_the_request_finishes(loop: str) -> None:
    # The connection notices it at once, although the handler is still busy. The answer is dropped.
    gate = asyncio.Event()
    events: list[str] = []

    async def slowly() -> Answer:
        await gate.wait()
        events.append("finished")
        return [b"too late"]

    def dispatch(client: Client, frame: Frame) -> Answer | Pending:
        return slowly()

    async def main() -> None:
        async with serving(dispatch) as (server, port):
            client = await connected(port)
            client.write_frame(b"question")
            await until(lambda: server.traffic.requests)
            client.transport.abort()
            await until(lambda: all(connection._ended_by_peer for connection in server._open_connections()))
            assert not events
            gate.set()
            await until(lambda: events == ["finished"])
            await until(lambda: not server.traffic.queued)

    run(loop, main())


@on_both_loops
def test_handlers_know_the_client_and_the_listener(loop: str) -> None:
    # Addresses of both ends, the listener, and an id of the connection.
    seen: list[Client] = []

    def dispatch(client: Client, frame: Frame) -> Answer:
        seen.append(client)
        return [frame]

    async def main() -> None:
        async with serving(dispatch) as (_, port):
            clients = [await connected(port), await connected(port)]
            for client in clients:
                client.write_frame(b"who")
                await client.read_frame()
            sockname = clients[0].transport.get_extra_info("sockname")
            assert (seen[0].address, seen[0].port) == sockname
            assert seen[0].local_address == ("127.0.0.1", port)
            assert seen[0].listener == "PLAINTEXT"
            assert seen[0].id != seen[1].id

    run(loop, main())


@on_both_loops
def test_a_frame_stays_unchanged_and_writable_while_its_request_holds_it(loop: str) -> None:
    # Large buffers are reused, but never while a handler uses them.
    held: list[Frame] = []
    random = Random(3)
    frames = [random.randbytes(random.choice([100, 70_000, 200_000])) for _ in range(60)]

    def dispatch(client: Client, frame: Frame) -> Answer:
        frame[:1] = b"!"
        if len(held) < 20:
            held.append(frame)
        return [frame[1:]]

    async def main() -> None:
        async with serving(dispatch) as (_, port):
            client = await connected(port)
            for frame in frames:
                client.write_frame(frame)
                assert await client.read_frame() == frame[1:]
            assert [bytes(view) for view in held] == [b"!" + frame[1:] for frame in frames[:20]]

    run(loop, main())


@on_both_loops
def test_a_closed_connection_leaves_memory_without_a_garbage_collection(loop: str) -> None:
    # Clients that close, that reset the connection, and that leave while their request is pending. The garbage
    # collector is off: a broker with few other objects runs it once in 100,000 connections.
    count = 100
    pending: list[asyncio.Future[Answer]] = []

    def dispatch(client: Client, frame: Frame) -> Answer | Pending:
        if bytes(frame) == b"wait":
            pending.append(asyncio.get_running_loop().create_future())
            return pending[-1]
        return wait_a_turn() if bytes(frame) == b"task" else echo(client, frame)

    async def wait_a_turn() -> Answer:
        await asyncio.sleep(0)
        return [b"answer"]

    def connections() -> int:
        return sum(type(each) is Connection for each in gc.get_objects())

    async def main() -> None:
        async with serving(dispatch) as (server, port):
            gc.collect()
            before = connections()
            gc.disable()
            for number in range(count):
                client = await connected(port)
                for frame in (b"plain", b"task"):
                    client.write_frame(frame)
                    await client.read_frame()
                if number % 2:
                    client.write_frame(b"wait")
                    await until(lambda: pending)
                if number % 3 == 0:
                    linger_s = struct.pack("ii", 1, 0)  # none: closing resets the connection
                    client.transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, linger_s)
                client.close()
                if pending:
                    pending.pop().set_result([b"answer"])
                await until(lambda: not server.connections)
            await asyncio.sleep(0)
            assert connections() - before <= 1

    try:
        run(loop, main())
    finally:
        gc.enable()
