"""TCP links between the brokers of a cluster, and between brokers and ZooKeeper, that a test can cut in one direction.

Each broker and each ZooKeeper server has an entrance: a port that forwards to its real one. An entrance knows who
connects, because each source has an entrance of its own (ZooKeeper), or by the client id in the first request, which
is `broker-N` between brokers. A direction that is cut delivers nothing and closes nothing, as a network does that loses
packets. What was sent meanwhile arrives when the direction is healed, if the connection still exists.
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

HOST = "127.0.0.1"
CHUNK = 1 << 16
HEADER = struct.Struct(">ihhih")
"""The beginning of a request: size, API key, version, correlation id and the length of the client id."""
STRANGER = "stranger"
CALL_SECONDS = 30.0

Result = TypeVar("Result")
Direction = tuple[str, str]
"""Who sends, and who receives."""


class Entrance:
    """A port that forwards to `target_port`. While it is closed, connections are refused."""

    def __init__(self, links: "Links", destination: str, target_port: int, source: str | None) -> None:
        self._links = links
        self._destination = destination
        self._target_port = target_port
        self._source = source
        # Bound and never listening, so that nobody else gets the port while the entrance is closed.
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind((HOST, 0))
        self.port: int = self._reserved.getsockname()[1]
        self._listener: socket.socket | None = None

    def open(self) -> None:
        self._links.call(self._open())

    def close(self) -> None:
        """Refuse new connections. Those that exist end when the process behind the entrance does."""
        self._links.call(self._close())

    def release(self) -> None:
        self._reserved.close()

    async def _open(self) -> None:
        if self._listener is None:
            self._listener = listener = socket.create_server((HOST, self.port))
            listener.setblocking(False)
            # Not an asyncio.Server: closed just after it has accepted a connection, that one loses its socket unclosed.
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    async def _close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
            connection, _ = listener.accept()
            task = asyncio.get_running_loop().create_task(self._serve(connection))
            self._links.tasks.add(task)
            task.add_done_callback(self._links.tasks.discard)

    async def _serve(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)
        upstream: asyncio.StreamWriter | None = None
        try:
            beginning = b""
            source = self._source
            if source is None:
                source, beginning = await read_client_id(reader)
            await self._links.gate((source, self._destination)).wait()
            answers, upstream = await asyncio.open_connection(HOST, self._target_port)
            upstream.write(beginning)
            pumps = (
                self._pump(reader, upstream, (source, self._destination)),
                self._pump(answers, writer, (self._destination, source)),
            )
            done, left = await asyncio.wait(
                [asyncio.ensure_future(pump) for pump in pumps], return_when=asyncio.FIRST_COMPLETED
            )
            for pump in left:
                pump.cancel()
            await asyncio.wait([*done, *left])
        except (OSError, EOFError):
            pass
        finally:
            for end in (writer, upstream):
                if end is not None:
                    end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._links.gate(direction).wait()
                writer.write(data)
                await writer.drain()


async def read_client_id(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """The client id of the first request on a connection, and the bytes that were read to find it."""
    header = await reader.readexactly(HEADER.size)
    length = HEADER.unpack(header)[4]
    if length <= 0:
        return STRANGER, header
    name = await reader.readexactly(length)
    return name.decode(errors="replace"), header + name


class Links:
    """All links of a cluster, forwarded by one thread."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()
        self._gates: dict[Direction, asyncio.Event] = {}
        self._entrances: list[Entrance] = []

    def add(self, destination: str, target_port: int, source: str | None = None) -> Entrance:
        """A new entrance, closed. Without `source`, it takes the client id of each connection for its source."""
        entrance = Entrance(self, destination, target_port, source)
        self._entrances.append(entrance)
        return entrance

    def cut(self, source: str, destination: str) -> None:
        """Let nothing through from `source` to `destination` until it is healed."""
        self._loop.call_soon_threadsafe(self._set, (source, destination), False)

    def heal(self, source: str, destination: str) -> None:
        self._loop.call_soon_threadsafe(self._set, (source, destination), True)

    def gate(self, direction: Direction) -> asyncio.Event:
        """Set while the direction is open. Only for the links' own thread."""
        if direction not in self._gates:
            self._gates[direction] = asyncio.Event()
            self._gates[direction].set()
        return self._gates[direction]

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS)

    def close(self) -> None:
        for entrance in self._entrances:
            entrance.close()
        self.call(self._end_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS)
        self._loop.close()
        for entrance in self._entrances:
            entrance.release()

    def _set(self, direction: Direction, is_open: bool) -> None:
        gate = self.gate(direction)
        if is_open:
            gate.set()
        else:
            gate.clear()

    async def _end_tasks(self) -> None:
        await asyncio.sleep(0)  # every task has begun, so that it closes its connection when it is cancelled
        ending = list(self.tasks)
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending)
