"""The virtual-time loop: time jumps, nothing real happens, and a standstill is an error."""

import asyncio

import pytest

from tests.simulation.loop import Deadlock, Owner, simulate


def test_days_pass_in_an_instant() -> None:
    # Waiting moves the loop's clock by exactly that time, and takes no real time.
    async def main() -> float:
        await asyncio.sleep(8 * 86_400)
        return asyncio.get_running_loop().time()

    assert simulate(main()) == pytest.approx(8 * 86_400)


def test_timers_fire_in_the_order_of_their_times() -> None:
    # The shorter wait ends first, whatever the order of starting.
    async def main() -> list[float]:
        seen: list[float] = []

        async def wait(seconds: float) -> None:
            await asyncio.sleep(seconds)
            seen.append(seconds)

        await asyncio.gather(*(wait(seconds) for seconds in (3.0, 1.0, 2.0, 0.5)))
        return seen

    assert simulate(main()) == [0.5, 1.0, 2.0, 3.0]


def test_a_standstill_is_an_error_that_names_who_waits() -> None:
    # A future that nobody resolves does not hang the test.
    async def wait_forever() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock, match="wait_forever"):
        simulate(wait_forever())


def test_threads_are_refused() -> None:
    # Anything that would leave virtual time fails at once.
    async def main() -> None:
        with pytest.raises(RuntimeError, match="no threads"):
            await asyncio.get_running_loop().run_in_executor(None, print)
        with pytest.raises(RuntimeError, match="no threads"):
            await asyncio.to_thread(print)

    simulate(main())


def test_timeouts_are_virtual() -> None:
    # asyncio.timeout works and fires at its virtual time.
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(300):
                await asyncio.get_running_loop().create_future()
        return asyncio.get_running_loop().time()

    assert simulate(main()) == pytest.approx(300)


def test_what_the_program_leaves_behind_is_cancelled() -> None:
    # No task outlives the simulation.
    cancelled: list[str] = []

    async def background() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append("background")
            raise

    async def main() -> asyncio.Task[None]:
        task = asyncio.create_task(background())
        await asyncio.sleep(0)
        return task

    assert simulate(main()).cancelled()
    assert cancelled == ["background"]


def test_a_paused_process_does_nothing_until_it_goes_on() -> None:
    # Its timers, tasks and what others wake in it are held back; time passes for everybody else.
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        owner, seen = Owner(), list[str]()
        woken = asyncio.Event()

        async def work() -> None:
            for number in range(3):
                await asyncio.sleep(1)
                seen.append(f"worked {number} at {loop.time():g}")
            await woken.wait()
            seen.append(f"woken at {loop.time():g}")

        def cancel_timer() -> None:
            timer.cancel()

        context = owner.make_context()
        task = loop.create_task(work(), context=context)
        context.copy().run(loop.call_later, 5, cancel_timer)
        timer = context.copy().run(loop.call_later, 6, seen.append, "a timer that was cancelled")
        await asyncio.sleep(1.5)
        owner.pause()
        woken.set()
        await asyncio.sleep(8.5)
        seen.append("goes on")
        owner.resume()
        await task
        return seen

    assert simulate(main()) == ["worked 0 at 1", "goes on", "worked 1 at 10", "worked 2 at 11", "woken at 11"]
