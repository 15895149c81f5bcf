"""The only "wait until": who is woken, when, in what order, and who is told that nobody will come."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.replication.watermarks import Watermark


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


@in_loop
async def test_waiters_are_woken_when_their_number_is_reached_and_not_before() -> None:
    mark = Watermark(10)
    reached, next_one, far = mark.reach(10), mark.reach(11), mark.reach(20)
    assert reached.done() and not next_one.done()
    mark.advance(15)
    assert next_one.done() and not far.done()
    mark.advance(20)
    assert far.done()


@in_loop
async def test_it_never_goes_back() -> None:
    mark = Watermark(10)
    mark.advance(3)
    assert mark.value == 10


@in_loop
async def test_waiters_for_the_same_number_are_woken_in_the_order_they_came() -> None:
    mark = Watermark(0)
    woken: list[int] = []
    for number in range(5):
        mark.reach(7).add_done_callback(lambda _, number=number: woken.append(number))  # type: ignore[misc]
    mark.advance(7)
    await asyncio.sleep(0)
    assert woken == [0, 1, 2, 3, 4]


@in_loop
async def test_a_cancelled_waiter_does_not_hold_up_the_others() -> None:
    mark = Watermark(0)
    gone, waiting = mark.reach(1), mark.reach(1)
    gone.cancel()
    mark.advance(1)
    assert waiting.done() and not waiting.cancelled()


@in_loop
async def test_watchers_are_called_at_every_move_until_they_leave() -> None:
    mark = Watermark(0)
    seen: list[int] = []

    def watcher() -> None:
        seen.append(mark.value)
        if mark.value == 2:
            mark.unwatch(watcher)

    mark.watch(watcher)
    for value in (1, 1, 2, 3):
        mark.advance(value)
    assert seen == [1, 2]


@in_loop
async def test_failure_reaches_everyone_who_waits() -> None:
    mark = Watermark(0)
    calls: list[bool] = []
    mark.watch(lambda: calls.append(True))
    waiting = mark.reach(5)
    mark.fail(KeyError("gone"))
    with pytest.raises(KeyError):
        await waiting
    assert calls == [True]


@in_loop
async def test_a_truncation_takes_it_back_and_fails_those_who_wait() -> None:
    mark = Watermark(10)
    woken: list[int] = []
    mark.watch(lambda: woken.append(mark.value))
    waiting = mark.reach(12)
    mark.retreat(7, ValueError("truncated"))
    assert mark.value == 7 and woken == [7]
    with pytest.raises(ValueError, match="truncated"):
        await waiting
    mark.retreat(9, ValueError("truncated"))
    assert mark.value == 7
    mark.advance(8)
    assert mark.value == 8
