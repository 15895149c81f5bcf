"""The endpoint against clients of every kind, in memory and on virtual time; and once on real sockets of both loops."""

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Iterator
from random import Random
from typing import Any

import pytest

from ottla.observability.endpoint import (
    ANSWER_S,
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    HEAD_S,
    SERVICE_UNAVAILABLE,
    THROWN_AWAY_BYTES_MAX,
    Exchange,
    Page,
    PageServer,
    PortTaken,
)
from tests.simulation.loop import simulate
from tests.simulation.network import SimulatedNetwork
from tests.unit.server.serving import on_both_loops, run

GET = b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n"
TEXT = "one\ntwo\n"


def broken() -> Iterator[str]:
    yield "half of it"
    raise ValueError("the rest")


async def fail() -> None:
    await asyncio.sleep(1)
    raise ValueError("the rest")


def pages() -> dict[str, Callable[[], Page]]:
    return {
        "/page": lambda: Page(iter(["one\n", "", "two\n"])),
        "/large": lambda: Page(iter(["x" * 1_000_000] * 3)),
        "/away": lambda: Page(iter(["away\n"]), SERVICE_UNAVAILABLE),
        "/broken": lambda: Page(broken()),
        "/patient": lambda: Page(iter(["one\n", asyncio.sleep(2), "two\n"])),
        "/failing": lambda: Page(iter(["one\n", fail(), "two\n"])),
    }


class Visitor(asyncio.Protocol):
    """A client that keeps what it receives, and closes when the other side has ended."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.received = bytearray()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def answer(self) -> tuple[int, str]:
        """The status and the body. The head must be complete, and its content length right."""
        head, _, body = bytes(self.received).partition(b"\r\n\r\n")
        status = re.match(rb"HTTP/1\.1 (\d{3}) [ -~]+\r\n", head)
        length = re.search(rb"\r\nContent-Length: (\d+)(?:\r\n|$)", head)
        assert status is not None and length is not None, head
        assert int(length[1]) == len(body)
        return int(status[1]), body.decode()


class House:
    def __init__(self, seed: int = 1) -> None:
        self.network = SimulatedNetwork(Random(seed))
        self.server = PageServer(pages())
        self.network.listen("broker", 1, lambda: Exchange(self.server))

    async def visitor(self) -> Visitor:
        _, visitor = await self.network.connect("client", "broker", 1, Visitor)
        assert isinstance(visitor, Visitor)
        return visitor

    async def ask(self, request: bytes) -> tuple[int, str]:
        visitor = await self.visitor()
        visitor.transport.write(request)
        await visitor.ended
        return visitor.answer()


def in_house(scenario: Callable[[House], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        house = House()
        await scenario(house)
        house.server.close()
        await asyncio.sleep(1)
        assert not house.server.exchanges

    simulate(main())


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        ("GET /page HTTP/1.1", 200, TEXT),
        ("GET /page HTTP/1.0", 200, TEXT),
        ("GET /page?name[]=x HTTP/1.1", 200, TEXT),
        ("GET /large HTTP/1.1", 200, "x" * 3_000_000),
        ("GET /away HTTP/1.1", 503, "away\n"),
        ("GET / HTTP/1.1", 404, "Not Found\n"),
        ("GET /page/ HTTP/1.1", 404, "Not Found\n"),
        ("GET /../etc/passwd HTTP/1.1", 404, "Not Found\n"),
        ("POST /page HTTP/1.1", 405, "Method Not Allowed\n"),
        ("DELETE /page HTTP/1.1", 405, "Method Not Allowed\n"),
        ("get /page HTTP/1.1", 400, "Bad Request\n"),
        ("GET page HTTP/1.1", 400, "Bad Request\n"),
        ("GET /page HTTP/2.0", 400, "Bad Request\n"),
        ("GET /page", 400, "Bad Request\n"),
        ("GET  /page HTTP/1.1", 400, "Bad Request\n"),
        ("GET /p\u00e4ge HTTP/1.1", 400, "Bad Request\n"),
        ("", 400, "Bad Request\n"),
    ],
)
def test_requests_are_answered(request_line: str, status: int, body: str) -> None:
    async def scenario(house: House) -> None:
        assert await house.ask(request_line.encode() + b"\r\nHost: x\r\n\r\n") == (status, body)

    in_house(scenario)


def test_a_head_request_is_refused_without_a_body() -> None:
    async def scenario(house: House) -> None:
        visitor = await house.visitor()
        visitor.transport.write(b"HEAD /page HTTP/1.1\r\n\r\n")
        await visitor.ended
        assert visitor.received.startswith(b"HTTP/1.1 405 ")
        assert b"\r\nAllow: GET\r\n" in visitor.received
        assert visitor.received.endswith(b"\r\n\r\n")

    in_house(scenario)


def test_a_page_that_fails_is_an_error_and_not_half_a_page(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(house: House) -> None:
        with caplog.at_level(logging.CRITICAL, "ottla.observability.endpoint"):
            assert await house.ask(b"GET /broken HTTP/1.1\r\n\r\n") == (500, "Internal Server Error\n")

    in_house(scenario)


def test_a_page_may_wait_for_something(caplog: pytest.LogCaptureFixture) -> None:
    # What it waits for may fail, and the reader may be gone before.
    async def scenario(house: House) -> None:
        assert await house.ask(b"GET /patient HTTP/1.1\r\n\r\n") == (200, TEXT)
        with caplog.at_level(logging.CRITICAL, "ottla.observability.endpoint"):
            assert await house.ask(b"GET /failing HTTP/1.1\r\n\r\n") == (500, "Internal Server Error\n")
        hasty = await house.visitor()
        hasty.transport.write(b"GET /patient HTTP/1.1\r\n\r\n")
        await asyncio.sleep(1)
        hasty.transport.abort()
        await asyncio.sleep(5)
        assert not hasty.received and not house.server.exchanges

    in_house(scenario)


def test_a_request_in_single_bytes_and_one_that_ends_its_side_are_answered() -> None:
    async def scenario(house: House) -> None:
        slow, brief = await house.visitor(), await house.visitor()
        brief.transport.write(GET)
        brief.transport.write_eof()
        for byte in GET:
            slow.transport.write(bytes([byte]))
            await asyncio.sleep(0.1)
        await slow.ended
        await brief.ended
        assert slow.answer() == brief.answer() == (200, TEXT)

    in_house(scenario)


def test_a_large_body_does_not_cost_the_client_its_answer() -> None:
    # The body is read and dropped. If it were left unread, the end of the connection would be a reset.
    async def scenario(house: House) -> None:
        request = b"POST /page HTTP/1.1\r\nContent-Length: 60000\r\n\r\n" + bytes(60_000)
        assert await house.ask(request) == (405, "Method Not Allowed\n")

    in_house(scenario)


def test_a_head_that_does_not_end_is_refused_and_a_flood_is_cut_off() -> None:
    async def scenario(house: House) -> None:
        assert await house.ask(b"GET /page HTTP/1.1\r\nx: " + b"y" * HEAD_BYTES_MAX) == (
            431,
            "Request Header Fields Too Large\n",
        )
        flood = await house.visitor()
        flood.transport.write(b"GET / HTTP/1.1\r\n\r\n" + bytes(2 * THROWN_AWAY_BYTES_MAX))
        await flood.ended
        assert asyncio.get_running_loop().time() < ANSWER_S

    in_house(scenario)


def test_silent_clients_and_clients_that_do_not_read_are_closed() -> None:
    async def scenario(house: House) -> None:
        loop = asyncio.get_running_loop()
        silent, deaf = await house.visitor(), await house.visitor()
        deaf.transport.pause_reading()
        deaf.transport.write(b"GET /large HTTP/1.1\r\n\r\n")
        await silent.ended
        assert HEAD_S <= loop.time() < HEAD_S + 1
        while house.server.exchanges:
            await asyncio.sleep(0.5)
        assert loop.time() < ANSWER_S + HEAD_S + 1

    in_house(scenario)


def test_connections_are_limited_and_one_that_ends_makes_room() -> None:
    async def scenario(house: House) -> None:
        held = [await house.visitor() for _ in range(CONNECTIONS_MAX)]
        refused = await house.visitor()
        await refused.ended
        assert not refused.received
        held[0].transport.close()
        await held[0].ended
        await asyncio.sleep(1)
        assert await house.ask(GET) == (200, TEXT)

    in_house(scenario)


def test_bytes_of_any_kind_get_an_answer_or_an_end_and_the_next_client_its_page(seed: int) -> None:
    # Pieces of requests are cut, repeated and mixed with noise. There is never an exception or a connection that stays.
    random = Random(seed)
    pieces = [GET, b"GET ", b"/page", b" HTTP/1.1", b"\r\n", b"\n", b"\r\n\r\n", b"\0", b"POST", b"?", b":", b"%00"]

    def noise() -> bytes:
        parts = [random.choice([*pieces, random.randbytes(random.randrange(40))]) for _ in range(random.randrange(12))]
        whole = b"".join(parts)
        return whole[: random.randrange(len(whole) + 1)] if random.random() < 0.5 else whole

    async def scenario(house: House) -> None:
        for _ in range(300):
            visitor = await house.visitor()
            visitor.transport.write(noise())
            if random.random() < 0.5:
                visitor.transport.write_eof()
            await visitor.ended
            if visitor.received:
                visitor.answer()
        assert await house.ask(GET) == (200, TEXT)

    in_house(scenario)


@on_both_loops
def test_real_sockets(loop: str) -> None:
    # The port is chosen, all addresses of the host have the same one, and a port that is taken is named.
    async def main() -> None:
        server, second = PageServer(pages()), PageServer(pages())
        port = await server.start("localhost", 0)
        with pytest.raises(PortTaken, match=f"metrics.port: cannot listen on localhost:{port}"):
            await second.start("localhost", port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /large HTTP/1.1\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n") and len(body) == 3_000_000
        writer.close()
        await writer.wait_closed()
        server.close()
        while server.exchanges:
            await asyncio.sleep(0.001)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)

    run(loop, main())
