"""Helpers for the server's tests: both event loops, a server on a free port, a client for frames, a real file."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ottla.broker.call import Dispatch
from ottla.server import Server, ServerSettings
from tests.patience import PATIENCE_S
from tests.simulation.frame_client import FrameClient

on_both_loops = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


def run(loop: str, main: Coroutine[Any, Any, None]) -> None:
    async def patiently() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await main

    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.SelectorEventLoop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(patiently())


async def offload(function: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.to_thread(function, *arguments)


@asynccontextmanager
async def serving(dispatch: Dispatch, settings: ServerSettings | None = None) -> AsyncIterator[tuple[Server, int]]:
    """Run a server. Returns it with its port; afterwards it is stopped with all its connections."""
    server = Server(dispatch, settings or ServerSettings(), offload)
    port = await server.start("127.0.0.1", 0, "PLAINTEXT")
    try:
        yield server, port
    finally:
        await server.stop(0)
    assert not server.connections
    assert not server.traffic.queued
    assert not server.traffic.unsent_memory


async def connected(port: int) -> FrameClient:
    _, client = await asyncio.get_running_loop().create_connection(FrameClient, "127.0.0.1", port)
    return client


async def until(condition: Callable[[], object]) -> None:
    """Run the loop until the condition is true."""
    while not condition():
        await asyncio.sleep(0.001)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


class DescriptorFile:
    """A file of the operating system that counts its pins and really closes only when there are none."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.pins = 0
        self._closed = False
        self.descriptor = os.open(path, os.O_RDWR)

    @property
    def size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def append(self, data: bytes | bytearray | memoryview) -> None:
        os.pwrite(self.descriptor, data, self.size)

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        os.pwrite(self.descriptor, data, position)

    def read_at(self, position: int, length: int) -> bytes:
        return os.pread(self.descriptor, length, position)

    def truncate(self, size: int) -> None:
        os.ftruncate(self.descriptor, size)

    def fsync(self) -> None:
        os.fsync(self.descriptor)

    def pin(self) -> int | None:
        assert not self._closed, "pinned after it was closed"
        self.pins += 1
        return self.descriptor

    def unpin(self) -> None:
        self.pins -= 1
        assert self.pins >= 0
        self._close_if_free()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._close_if_free()

    def _close_if_free(self) -> None:
        if self._closed and not self.pins:
            os.close(self.descriptor)
            self.descriptor = -1  # another thread may open a file that gets the number


class MemoryFile(DescriptorFile):
    """A file without a descriptor, like those of the simulated disk."""

    def pin(self) -> int | None:
        super().pin()
        return None
