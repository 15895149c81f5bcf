"""When a loop counts as idle: not before all possible work is done, and also if clients never pause."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ottla.testing.clock import POSTPONED_MAX, MovableClock, MovableLoop, WatchedThreads
from tests.patience import PATIENCE_S

HOUR_MS = 3_600_000


@contextmanager
def moving_loop() -> Iterator[tuple[MovableLoop, MovableClock, WatchedThreads]]:
    clock, threads = MovableClock(), WatchedThreads()
    loop = MovableLoop(clock, threads)
    try:
        yield loop, clock, threads
    finally:
        threads.close()
        loop.close()


@contextmanager
def reader(loop: MovableLoop, callback: Callable[[socket.socket], None]) -> Iterator[socket.socket]:
    """The other end of a socket that the loop reads."""
    here, there = socket.socketpair()
    with here, there:
        loop.add_reader(here, callback, here)
        yield there
        loop.remove_reader(here)


def test_timers_that_a_jump_makes_due_run_before_the_next_rest() -> None:
    # They run in the order of their times, each with the wall clock at its time. Later ones still wait.
    with moving_loop() as (loop, clock, _):
        events: list[str] = []

        def jump() -> None:
            clock.offset_ms += HOUR_MS
            loop.call_when_idle(loop.stop)

        loop.call_later(3500, events.append, "second")
        loop.call_later(1800, events.append, "first")
        loop.call_later(7200, events.append, "too early")
        before = clock.now_ms()
        loop.call_when_idle(jump)
        loop.run_forever()
        assert events == ["first", "second"]
        assert clock.now_ms() - before >= HOUR_MS


def test_a_rest_comes_after_what_tasks_do_when_they_are_woken() -> None:
    with moving_loop() as (loop, clock, _):
        events: list[int] = []

        async def work() -> None:
            await asyncio.sleep(3600)
            for turn in range(5):
                events.append(turn)
                await asyncio.sleep(0)

        def jump() -> None:
            clock.offset_ms += 2 * HOUR_MS
            loop.call_when_idle(loop.stop)

        task = loop.create_task(work())
        loop.call_when_idle(jump)
        loop.run_forever()
        assert events == [0, 1, 2, 3, 4]
        assert task.done()


def test_a_rest_waits_for_threads_even_if_nobody_waits_for_them() -> None:
    with moving_loop() as (loop, _, threads):
        go_on = threading.Event()
        events: list[str] = []

        def work() -> None:
            assert go_on.wait(PATIENCE_S)
            events.append("worked")

        async def start() -> None:
            threads(work).cancel()

        loop.run_until_complete(start())
        assert threads.is_busy
        loop.call_when_idle(lambda: events.append("rested"))
        loop.call_later(0.01, go_on.set)
        loop.call_later(0.02, lambda: loop.call_when_idle(loop.stop))
        loop.run_forever()
        assert events == ["worked", "rested"]


def test_a_rest_comes_after_what_has_arrived_is_read() -> None:
    with moving_loop() as (loop, _, _):
        events: list[bytes] = []
        with reader(loop, lambda here: events.append(here.recv(1))) as there:

            def rest() -> None:
                events.append(b"rested")
                loop.stop()

            def arrive() -> None:
                there.send(b"x")

            loop.call_when_idle(rest)
            loop.call_soon(loop.call_soon, loop.call_soon, arrive)
            loop.run_forever()
        assert events == [b"x", b"rested"]


def test_a_client_that_never_pauses_does_not_put_off_the_rest_for_ever() -> None:
    with moving_loop() as (loop, _, _):
        calls: list[socket.socket] = []
        with reader(loop, calls.append) as there:
            there.send(b"never read")
            loop.call_when_idle(loop.stop)
            loop.run_forever()
        assert POSTPONED_MAX <= len(calls) < 2 * POSTPONED_MAX
