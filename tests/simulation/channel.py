"""A client's connection to a broker: many requests in flight, answers in order.

When the connection is lost, each outstanding request gets None instead of an answer.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any, TypeVar, cast

from ottla.wire import fetch, frames, produce
from ottla.wire.fetch import FetchRequest, FetchResponse
from ottla.wire.message import Message
from ottla.wire.primitives import Bytes, reader
from ottla.wire.produce import ProduceRequest, ProduceResponse
from tests.simulation.world import PORT, Machine

Response = TypeVar("Response")

REQUEST_TIMEOUT_S = 15.0

_SIZE = Struct(">i")
_HEADER = Struct(">hhih")
_CORRELATION_ID = Struct(">i")


class Channel(asyncio.Protocol):
    def __init__(self, life: int) -> None:
        self.life = life
        """The life of the broker that this connection leads to."""
        self.lost = False
        self._transport: asyncio.Transport
        self._received = bytearray()
        self._waiting: deque[tuple[int, asyncio.Future[bytes | None]]] = deque()
        self._sent = 0

    @classmethod
    async def open(cls, source: str, machine: Machine) -> "Channel":
        """Connect. Raises OSError if no broker listens."""
        network = machine.world.network
        _, channel = await network.connect(source, machine.name, PORT, lambda: cls(machine.life))
        return channel

    def close(self) -> None:
        self._transport.abort()
        self.connection_lost(None)

    # Requests

    async def call(self, message: Message, version: int) -> Any:
        """Send any request except Produce and Fetch, and wait for its answer."""
        self._sent += 1
        self._write(frames.encode_request(message, version, self._sent, "simulated"))
        frame = await self.answer(self._expect())
        return frame and frames.decode_response(frames.find_api_of(message).response, version, frame)[1]

    def produce(self, request: ProduceRequest, version: int) -> asyncio.Future[bytes | None] | None:
        """Send a Produce request. Returns the future of its answer, for `read_produced`; None if acks=0 asks for no
        answer."""
        compact = version >= produce.COMPACT_FROM
        self._send(produce.write_request(version, request, self._header(0, version, compact)))
        return self._expect() if request.acks else None

    def read_produced(self, frame: bytes, version: int) -> ProduceResponse:
        return _read(produce.read_response, frame, version, version >= produce.COMPACT_FROM)

    async def fetch(self, request: FetchRequest, version: int) -> FetchResponse | None:
        compact = version >= fetch.COMPACT_FROM
        self._send(fetch.write_request(version, request, self._header(1, version, compact)))
        frame = await self.answer(self._expect())
        return None if frame is None else _read(fetch.read_response, frame, version, compact)

    async def answer(self, waiting: "asyncio.Future[bytes | None]") -> bytes | None:
        """Wait for the answer. After a time-out the connection is closed."""
        done, _ = await asyncio.wait([waiting], timeout=REQUEST_TIMEOUT_S)
        if not done:
            self.close()
        return waiting.result()

    def _header(self, api_key: int, version: int, compact: bool) -> bytes:
        self._sent += 1
        return _HEADER.pack(api_key, version, self._sent, -1) + (b"\0" if compact else b"")

    def _send(self, frame: bytearray) -> None:
        self._write(_SIZE.pack(len(frame)) + frame)

    def _write(self, data: bytes) -> None:
        if not self.lost:
            self._transport.write(data)

    def _expect(self) -> "asyncio.Future[bytes | None]":
        future: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        if self.lost:
            future.set_result(None)
        else:
            self._waiting.append((self._sent, future))
        return future

    # The network's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= _SIZE.size:
            end = _SIZE.size + _SIZE.unpack_from(received)[0]
            if len(received) < end:
                return
            frame = bytes(received[_SIZE.size : end])
            del received[:end]
            correlation_id, future = self._waiting.popleft()
            assert _CORRELATION_ID.unpack_from(frame) == (correlation_id,), "answers are out of order"
            if not future.done():
                future.set_result(frame)

    def eof_received(self) -> None:
        self.connection_lost(None)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)


def _read(read: Callable[[int, Bytes, int], Response], frame: bytes, version: int, compact: bool) -> Response:
    header = reader(memoryview(frame), _CORRELATION_ID.size, compact)
    header.skip_tags()
    return read(version, frame, header.position)
