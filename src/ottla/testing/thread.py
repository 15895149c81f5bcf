"""Runs a broker in a thread of this process, with its own event loop."""

import asyncio
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from threading import Event, Thread
from typing import Any, TypeVar

from ottla.broker.broker import Broker
from ottla.broker.faults import Fault, Faults
from ottla.cluster.store import Store
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode
from ottla.system.network import Connect
from ottla.testing.clock import MovableClock, MovableLoop, WatchedThreads
from ottla.testing.launch import PATIENCE_S, FaultOrder, Launch
from ottla.testing.questions import QUESTIONS

T = TypeVar("T")

STOP_DEADLINE_S = 5.0

SETTLING_TURNS = 5
"""Turns of the event loop after the end of a broker, in which transports of closed connections finish."""


class BrokerThread:
    """A running broker. The constructor starts it and returns when it accepts connections."""

    def __init__(self, launch: Launch, *, store: Store | None = None, connect: Connect | None = None) -> None:
        """`store` and `connect`: how a broker of a cluster reaches the metadata and the other brokers."""
        self._store = store
        self._connect = connect
        self._broker: Broker | None = None
        self._resumed = Event()
        self._resumed.set()
        self._directory = launch.directory
        self._config = BrokerConfig.of(launch.settings)
        self._faults = Faults()
        for order in launch.faults:
            self.add_fault(order)
        self._clock = MovableClock(launch.offset_ms)
        self._threads = WatchedThreads()
        self._loop = MovableLoop(self._clock, self._threads)
        self._started: Future[Mapping[str, int]] = Future()
        self._ended: Future[None] = Future()
        self._asked_to_end: asyncio.Future[bool] = self._loop.create_future()
        """Its result says whether the broker stops cleanly (True) or is killed."""
        self._thread = Thread(target=self._run, name="ottla-testing", daemon=True)
        self._thread.start()
        try:
            self.ports: Mapping[str, int] = self._started.result()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        self._end(clean=True)

    def kill(self) -> None:
        self._end(clean=False)

    def pause(self) -> None:
        """Holds the event loop until `resume`."""
        self._resumed.clear()
        self._loop.call_soon_threadsafe(self._resumed.wait)

    def resume(self) -> None:
        self._resumed.set()

    def call(self, function: Callable[[Broker], T]) -> T:
        """Calls a function with the broker, on the broker's own thread. Returns the result."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                assert self._broker is not None
                done.set_result(function(self._broker))
            except Exception as error:
                done.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return done.result(PATIENCE_S)

    def ask(self, question: str, *arguments: Any) -> Any:
        return self.call(lambda broker: QUESTIONS[question](broker, *arguments))

    def add_fault(self, order: FaultOrder) -> None:
        error = None if order.error is None else ErrorCode(order.error)
        self._faults.add(order.api, Fault(error, order.delay_s, order.drop, order.answer_only, order.times))

    def clear_faults(self) -> None:
        self._faults.clear()

    def advance(self, ms: int) -> None:
        def jump() -> None:
            self._clock.offset_ms += ms

        self._call_when_idle(jump)
        self._call_when_idle(lambda: None)  # the loop is idle again when the work that became due is done

    def copy_data(self, target: str) -> None:
        # When the loop is idle, no file is half written and all acknowledged data is in the files: the copy is what
        # kill -9 would leave.
        self._call_when_idle(lambda: shutil.copytree(self._directory, target))

    def _call_when_idle(self, function: Callable[[], T]) -> T:
        """Calls `function` on the broker's thread when its loop is idle. Returns the result."""
        done: Future[T] = Future()

        def call() -> None:
            try:
                done.set_result(function())
            except Exception as error:
                done.set_exception(error)

        self._loop.call_when_idle(call)
        return done.result(PATIENCE_S)

    def _end(self, *, clean: bool) -> None:
        def ask() -> None:
            if not self._asked_to_end.done():
                self._asked_to_end.set_result(clean)

        self._resumed.set()
        with suppress(RuntimeError):  # the loop has already ended
            self._loop.call_soon_threadsafe(ask)
        self._ended.result(PATIENCE_S)
        self._thread.join()

    def _run(self) -> None:
        try:
            try:
                with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                    runner.run(self._serve())
            finally:
                self._threads.close()
        except BaseException as error:
            outcome = self._ended if self._started.done() else self._started
            outcome.set_exception(error)
        if not self._ended.done():
            self._ended.set_result(None)

    async def _serve(self) -> None:
        broker = self._broker = Broker(
            self._config,
            self._directory,
            clock=self._clock,
            offload=self._threads,
            faults=self._faults,
            store=self._store,
            connect=self._connect,
        )
        try:
            await broker.start()
            self._started.set_result(dict(broker.ports))
            if await self._asked_to_end:
                await broker.stop(STOP_DEADLINE_S)
        finally:
            broker.abort()
            for _ in range(SETTLING_TURNS):
                await asyncio.sleep(0)
