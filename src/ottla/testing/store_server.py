"""Serves a store in memory to brokers in child processes, at a socket in the file system.

Each connection is a session of the store. The session is heard of when its broker sends something: that of a broker
which was stopped with SIGSTOP expires after its time-out, and so does that of one which was killed. Faults of the store
(`MemoryStore.cut`, `stop`, ...) reach the brokers as they do in a thread.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Event, Thread
from typing import Any

from ottla.cluster.memory_store import HEARTBEATS_PER_TIMEOUT, MemorySession, MemoryStore
from ottla.cluster.store import SessionState, StoreError, StoreUnavailable
from ottla.testing.store_messages import (
    LINE_BYTES_MAX,
    Message,
    decode_operations,
    encode_bytes,
    encode_error,
    read_message,
    write_message,
)


class StoreServer:
    """Runs in a thread with an event loop of its own, from the constructor to `close`."""

    def __init__(self, store: MemoryStore, path: str) -> None:
        self.path = path
        self._store = store
        self._loop = asyncio.new_event_loop()
        self._connections: dict[asyncio.Task[None], None] = {}
        self._stopping: asyncio.Future[None] = self._loop.create_future()
        self._listening = Event()
        self._thread = Thread(target=self._run, name="ottla-testing-store", daemon=True)
        self._thread.start()
        self._listening.wait()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set_result, None)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_unix_server(self._accept, self.path, limit=LINE_BYTES_MAX)
        self._listening.set()
        await self._stopping
        server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = None
        try:
            await self._serve_session(reader, writer)
        except asyncio.CancelledError:
            pass  # the server ends; asyncio's streams would report it as an error
        finally:
            del self._connections[task]
            writer.close()

    async def _serve_session(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await read_message(reader)
        if first is None:
            return
        name = first["open"]
        if not self._store.is_reachable(name):
            write_message(writer, {"error": encode_error(StoreUnavailable(f"{name} cannot reach the store"))})
            return
        session = ServedSession(self._store, name, partial(_tell_state, writer))
        write_message(writer, {"result": [session.id, session.timeout_s]})
        running: dict[asyncio.Task[None], None] = {}
        while (message := await read_message(reader)) is not None:
            session.note_heard()
            if message["request"] != "heartbeat":
                # Tasks begin in the order of their creation, so requests keep their order.
                task = asyncio.create_task(_answer(session, message, writer))
                running[task] = None
                task.add_done_callback(lambda done: running.pop(done, None))
        session.abandon()  # a broker that ended without closing its session was killed


class ServedSession(MemorySession):
    """A session on behalf of a broker in another process, which shows by its messages that it lives."""

    def __init__(self, store: MemoryStore, name: str, on_state: Callable[[SessionState], None]) -> None:
        self._last_message_s = asyncio.get_running_loop().time()
        super().__init__(store, name, on_state)

    def note_heard(self) -> None:
        self._last_message_s = self._loop.time()

    def is_owner_heard(self) -> bool:
        return self._loop.time() - self._last_message_s < 2 * self.timeout_s / HEARTBEATS_PER_TIMEOUT


def _tell_state(writer: asyncio.StreamWriter, state: SessionState) -> None:
    if not writer.is_closing():
        write_message(writer, {"state": state.value})


async def _answer(session: MemorySession, message: Message, writer: asyncio.StreamWriter) -> None:
    try:
        answer = {"result": await _perform(session, message, writer)}
    except StoreError as error:
        answer = {"error": encode_error(error)}
    if not writer.is_closing():
        with suppress(OSError):
            write_message(writer, {"number": message["number"], **answer})


async def _perform(session: MemorySession, message: Message, writer: asyncio.StreamWriter) -> Any:
    watch = None
    if message.get("watch") is not None:
        watch = partial(_tell_watch, writer, message["watch"])
    match message["request"]:
        case "get":
            data, version, owner = await session.get(message["path"], watch)
            return [encode_bytes(data), version, owner]
        case "children":
            return await session.children(message["path"], watch)
        case "commit":
            return await session.commit(decode_operations(message["operations"]))
        case "sync":
            return await session.sync()
        case _:
            return await session.close()


def _tell_watch(writer: asyncio.StreamWriter, number: int) -> None:
    if not writer.is_closing():
        write_message(writer, {"watch": number})
