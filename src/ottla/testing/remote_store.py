"""The store of a broker in a child process: that of the test's process, reached through a socket (store_server.py)."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ottla.cluster.memory_store import HEARTBEATS_PER_TIMEOUT
from ottla.cluster.store import (
    ConnectionLost,
    Disconnected,
    NodeData,
    Operation,
    SessionExpired,
    SessionState,
    StoreError,
    StoreSession,
    StoreUnavailable,
    Watch,
)
from ottla.testing.store_messages import (
    LINE_BYTES_MAX,
    Message,
    decode_bytes,
    decode_error,
    encode_operations,
    read_message,
    write_message,
)


class RemoteStore:
    """A `Store`."""

    name = "the store of the test"

    def __init__(self, path: str, name: str) -> None:
        self._path = path
        self._name = name

    async def open(self, on_state: Callable[[SessionState], None]) -> StoreSession:
        try:
            reader, writer = await asyncio.open_unix_connection(self._path, limit=LINE_BYTES_MAX)
        except OSError as error:
            raise StoreUnavailable(f"the store of the test cannot be reached: {error}") from None
        write_message(writer, {"open": self._name})
        answer = await read_message(reader)
        if answer is None or "error" in answer:
            writer.close()
            raise (
                StoreUnavailable("the store of the test has ended") if answer is None else decode_error(answer["error"])
            )
        return RemoteSession(reader, writer, answer["result"], on_state)


class RemoteSession:
    """A `StoreSession`."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        opened: Sequence[Any],
        on_state: Callable[[SessionState], None],
    ) -> None:
        self.id: int
        self.timeout_s: float
        self.id, self.timeout_s = opened
        self._reader = reader
        self._writer = writer
        self._on_state = on_state
        self._state = SessionState.CONNECTED
        self._number = 0
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._watches: dict[int, Watch] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._listening = self._loop.create_task(self._listen(), name="messages of the store")
        self._beat()

    @property
    def state(self) -> SessionState:
        return self._state

    async def get(self, path: str, watch: Watch | None = None) -> NodeData:
        data, version, owner = await self._request("get", watch, path=path)
        return NodeData(decode_bytes(data), version, owner)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        names: list[str] = await self._request("children", watch, path=path)
        return names

    async def commit(self, operations: Sequence[Operation]) -> None:
        await self._request("commit", operations=encode_operations(operations))

    async def claim(self) -> None:
        """See `MemorySession.claim`."""

    async def sync(self) -> None:
        await self._request("sync")

    async def close(self) -> None:
        if self._state is SessionState.CONNECTED:
            with suppress(StoreError):  # the end of the session may be told before the answer
                await self._request("close")
        self.abandon()
        with suppress(OSError):
            await self._writer.wait_closed()

    def abandon(self) -> None:
        self._change(SessionState.CLOSED)
        self._end()

    async def _request(self, request: str, watch: Watch | None = None, **arguments: Any) -> Any:
        if self._state in (SessionState.EXPIRED, SessionState.CLOSED):
            raise SessionExpired("the session is over")
        if self._state is SessionState.SUSPENDED:
            raise Disconnected("there is no connection to the store")
        self._number += 1
        number = self._number
        answer = self._pending[number] = self._loop.create_future()
        message = {"number": number, "request": request, **arguments}
        if watch is not None:
            self._watches[number] = watch
            message["watch"] = number
        write_message(self._writer, message)
        try:
            return await answer
        except BaseException:
            self._watches.pop(number, None)  # no watch is left if the request failed
            raise
        finally:
            self._pending.pop(number, None)

    def _beat(self) -> None:
        write_message(self._writer, {"request": "heartbeat"})
        self._timer = self._loop.call_later(self.timeout_s / HEARTBEATS_PER_TIMEOUT, self._beat)

    async def _listen(self) -> None:
        while (message := await read_message(self._reader)) is not None:
            self._apply(message)
        self._change(SessionState.EXPIRED)
        self._end()

    def _apply(self, message: Message) -> None:
        if "state" in message:
            self._change(SessionState(message["state"]))
        elif "number" in message:
            answer = self._pending.get(message["number"])
            if answer is not None and not answer.done():
                if "error" in message:
                    answer.set_exception(decode_error(message["error"]))
                else:
                    answer.set_result(message["result"])
        elif (watch := self._watches.pop(message["watch"], None)) is not None:
            watch()

    def _change(self, state: SessionState) -> None:
        if self._state in (state, SessionState.EXPIRED, SessionState.CLOSED):
            return
        self._state = state
        if state is SessionState.CONNECTED:
            self._on_state(state)
            return
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(ConnectionLost("the connection broke"))
        self._on_state(state)
        watches, self._watches = self._watches, {}
        for watch in dict.fromkeys(watches.values()):
            self._loop.call_soon(watch)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._writer.close()
        if asyncio.current_task() is not self._listening:
            self._listening.cancel()
