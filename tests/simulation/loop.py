"""An event loop with virtual time: when nothing is ready it jumps to the next timer, and hours pass in an instant.

There are no sockets, no threads and no real clock, and the same program gives the same order of events. If nothing is
ready and no timer is left, all tasks wait for one another: that is a `Deadlock`, which names the tasks and where they
wait.
"""

import asyncio
from asyncio import base_events
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar

Result = TypeVar("Result")


class Deadlock(AssertionError):
    """There is no event left, and a task still waits."""


class _VirtualSelector:
    """Replaces the selector of asyncio's base loop: instead of waiting it moves the clock."""

    def __init__(self, loop: "SimulatedLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise Deadlock(self._loop.describe_waiters())
        if timeout > 0:
            self._loop.advance(timeout)
        return []


class SimulatedLoop(base_events.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._clock_resolution = 1e-9
        self._selector = _VirtualSelector(self)

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    def describe_waiters(self) -> str:
        waiting = sorted(f"{task.get_name()} in {task.get_coro()}" for task in asyncio.all_tasks(self))
        return "nothing is ready and no timer is set; waiting: " + ("; ".join(waiting) or "nobody")

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("a simulation has no threads")

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("a simulation has no threads")

    def _process_events(self, event_list: list[object]) -> None:
        """Does nothing: nothing is polled."""

    def _write_to_self(self) -> None:
        """Does nothing: the loop never sleeps."""


def simulate(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a program to its end in virtual time. Tasks that it leaves behind are cancelled."""
    loop = SimulatedLoop()
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(main)
    finally:
        try:
            cancel_rest(loop)
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def cancel_rest(loop: SimulatedLoop) -> None:
    rest = sorted(asyncio.all_tasks(loop), key=asyncio.Task.get_name)
    for task in rest:
        task.cancel()
    if rest:
        loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
