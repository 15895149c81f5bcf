"""The virtual-time loop: time jumps, nothing real happens, and a standstill is an error."""

import asyncio

import pytest

from tests.simulation.loop import Deadlock, simulate


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
