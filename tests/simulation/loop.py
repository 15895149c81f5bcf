"""An event loop with virtual time: when nothing is ready it jumps to the next timer, and hours pass in an instant.

There are no sockets, no threads and no real clock, and the same program gives the same order of events. If nothing is
ready and no timer is left, all tasks wait for one another: that is a `Deadlock`, which names the tasks and where they
wait.
"""

import asyncio
import contextvars
from asyncio import base_events
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar

Result = TypeVar("Result")

OWNER: contextvars.ContextVar["Owner | None"] = contextvars.ContextVar("OWNER", default=None)
"""The process that the running callback or task belongs to. What it starts and schedules belongs to it too."""


class Owner:
    """A process in the loop that can be paused: its callbacks, timers and tasks are held back until it goes on."""

    def __init__(self) -> None:
        self.is_paused = False
        self.held: list[Callable[[], None]] = []

    def make_context(self) -> contextvars.Context:
        """A context for what this process begins."""
        context = contextvars.copy_context()
        context.run(OWNER.set, self)
        return context

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        """Go on: what became due meanwhile runs now, in the order in which it became due."""
        self.is_paused = False
        held, self.held = self.held, []
        for run in held:
            run()


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


class _Held:
    """A callback of a process that may be paused when the callback is due."""

    __slots__ = ("_args", "_callback", "_loop", "_owner", "handle")

    def __init__(self, loop: "SimulatedLoop", owner: Owner, callback: Any, args: tuple[Any, ...]) -> None:
        self._loop = loop
        self._owner = owner
        self._callback = callback
        self._args = args
        self.handle: asyncio.Handle

    def run(self) -> None:
        if self._owner.is_paused:
            self._owner.held.append(self._hold)
        else:
            self._callback(*self._args)

    def _hold(self) -> None:
        self._loop.run_again(self._run_late, self.handle)

    def _run_late(self) -> None:
        if not self.handle.cancelled():
            self.run()


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

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        owner = OWNER.get() if context is None else context.get(OWNER)
        if owner is None:
            return super().call_soon(callback, *args, context=context)
        held = _Held(self, owner, callback, args)
        held.handle = super().call_soon(held.run, context=context)
        return held.handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        owner = OWNER.get() if context is None else context.get(OWNER)
        if owner is None:
            return super().call_at(when, callback, *args, context=context)
        held = _Held(self, owner, callback, args)
        held.handle = handle = super().call_at(when, held.run, context=context)
        return handle

    def run_again(self, run: Callable[[], None], handle: asyncio.Handle) -> None:
        """Schedule a callback that was held back, in its own context."""
        super().call_soon(run, context=handle._context)  # type: ignore[attr-defined]

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
