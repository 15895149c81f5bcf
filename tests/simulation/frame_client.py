"""A client for tests, on any network. It writes and reads frames: a 4-byte size and the bytes after it."""

import asyncio
from struct import Struct
from typing import cast

_SIZE = Struct(">i")


class FrameClient(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.closed = False
        self.error: Exception | None = None
        self._received = bytearray()
        self._changed: asyncio.Future[None] | None = None

    def write_frame(self, *frames: bytes) -> None:
        self.transport.write(b"".join(_SIZE.pack(len(frame)) + frame for frame in frames))

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    async def read_frame(self) -> bytes:
        """Wait for the next answer. Raises EOFError if the other side closed before it was complete."""
        (size,) = _SIZE.unpack(await self._read_exactly(_SIZE.size))
        return await self._read_exactly(size)

    async def wait_closed(self) -> None:
        """Wait until the other side has ended or reset the connection."""
        while not self.closed:
            await self._change()

    def close(self) -> None:
        self.transport.close()

    async def _read_exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            if self.closed:
                raise EOFError(f"closed with {len(self._received)} of {size} bytes there: {self.error!r}")
            await self._change()
        data = bytes(self._received[:size])
        del self._received[:size]
        return data

    async def _change(self) -> None:
        self._changed = asyncio.get_running_loop().create_future()
        await self._changed

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._wake()

    def eof_received(self) -> None:
        self.closed = True
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self.error = error
        self._wake()
