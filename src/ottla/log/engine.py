"""A broker that listens on no port, in a thread of this process.

Everything that a broker does beside serving clients happens here too: recovery, retention, compaction, checkpoints.
Callers in other threads hand functions to the event loop of that thread and wait for their results.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Any, TypeVar

from ottla.broker.broker import Broker
from ottla.broker.node import Node
from ottla.config import BrokerConfig, Listener
from ottla.server import Server

T = TypeVar("T")

STOP_DEADLINE_S = 10.0


async def listen_nowhere(server: Server, listener: Listener) -> int:
    return listener.port


class LogClosed(Exception):
    """The log was closed, or failed, before or during a call."""


class Engine:
    """Runs from its construction until `close`."""

    def __init__(self, directory: str, settings: Mapping[str, str]) -> None:
        self._broker = Broker(BrokerConfig.of(settings), directory, listen=listen_nowhere)
        self._started: Future[Node] = Future()
        self._closing: asyncio.Future[None]
        self._lock = Lock()
        self._is_closed = False
        self._thread = Thread(target=asyncio.run, args=(self._serve(),), name="ottla-log", daemon=True)
        self._thread.start()
        try:
            self.node = self._started.result()
        except BaseException:
            self._thread.join()
            raise

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._closing = self._loop.create_future()
        try:
            await self._broker.start()
        except BaseException as error:
            self._started.set_exception(error)
            return
        self._started.set_result(self._broker.node)
        await asyncio.wait((self._closing, self._broker.failure), return_when=asyncio.FIRST_COMPLETED)
        await self._broker.stop(STOP_DEADLINE_S)
        with self._lock:  # what was submitted before is still called, or cancelled
            self._is_closed = True

    def call(self, function: Callable[[], T]) -> T:
        """The result of a function that the broker's thread calls."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(function())
            except Exception as error:
                done.set_exception(error)

        self._submit(run)
        return done.result()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that runs in the broker's thread."""
        done: Future[T] = Future()

        async def run() -> None:
            try:
                done.set_result(await coroutine)
            except asyncio.CancelledError:
                done.set_exception(LogClosed("the log was closed"))
            except BaseException as error:
                done.set_exception(error)

        try:
            self._submit(lambda: asyncio.ensure_future(run()))
        except LogClosed:
            coroutine.close()
            raise
        return done.result()

    def _submit(self, function: Callable[[], object]) -> None:
        with self._lock:  # or the loop could end between the question and the call
            if self._is_closed or not self._thread.is_alive():
                failure = self._broker.failure
                raise LogClosed(f"the log is closed: {failure.result()}" if failure.done() else "the log is closed")
            self._loop.call_soon_threadsafe(function)

    def close(self) -> None:
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
            if not was_closed and self._thread.is_alive():
                self._loop.call_soon_threadsafe(self._closing.set_result, None)
        self._thread.join()
