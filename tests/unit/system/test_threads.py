"""Work in threads, and loading of libraries while a broker serves requests."""

import asyncio
import gc
import sys
import threading
from collections.abc import Iterator

import pytest

from ottla.system.threads import LOADING_SWITCH_S, Threads, load_library, wait_out
from tests.patience import PATIENCE_S


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_loading_does_not_block_other_threads() -> None:
    # Meanwhile the garbage collector is off and threads switch often. Afterwards everything is as before.
    before = sys.getswitchinterval()

    def load() -> tuple[bool, float]:
        return gc.isenabled(), sys.getswitchinterval()

    collecting, interval = load_library(load)
    assert not collecting and interval == pytest.approx(LOADING_SWITCH_S)
    assert gc.isenabled() and sys.getswitchinterval() == before


def test_loaded_objects_are_excluded_from_garbage_collection() -> None:
    gc.unfreeze()
    kept: list[list[int]] = load_library(lambda: [[] for _ in range(1000)])
    assert gc.get_freeze_count() > len(kept)


def test_a_library_that_cannot_be_loaded_leaves_nothing_changed() -> None:
    before = sys.getswitchinterval()
    with pytest.raises(ZeroDivisionError):
        load_library(lambda: 1 // 0)
    assert gc.isenabled() and sys.getswitchinterval() == before


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        load_library(int)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_work_runs_in_a_few_threads_and_its_outcome_comes_back() -> None:
    async def main() -> None:
        threads, together = Threads(workers=3), threading.Barrier(3)
        outcomes = await asyncio.gather(*(threads(together.wait, PATIENCE_S) for _ in range(3)))
        assert sorted(outcomes) == [0, 1, 2]  # three at a time
        with pytest.raises(ZeroDivisionError):
            await threads(lambda: 1 // 0)
        names = {await threads(lambda: threading.current_thread().name) for _ in range(20)}
        assert len(names) <= 3
        threads.close()
        with pytest.raises(RuntimeError, match="closed"):
            threads(int)

    asyncio.run(main())


def test_closing_waits_for_what_has_begun_and_drops_the_rest() -> None:
    async def main() -> None:
        threads, begun, go_on, done = Threads(workers=1), threading.Event(), threading.Event(), []

        def work() -> None:
            begun.set()
            assert go_on.wait(PATIENCE_S)
            done.append("first")

        first, cancelled, never = threads(work), threads(done.append, "cancelled"), threads(done.append, "never")
        assert begun.wait(PATIENCE_S)
        cancelled.cancel()
        threading.Timer(0.01, go_on.set).start()
        threads.close()
        assert done == ["first"]
        await first
        assert never.cancelled()

    asyncio.run(main())


def test_who_is_cancelled_waits_until_the_work_is_over() -> None:
    # Also if it fails then, which asyncio would log with a traceback, as an exception that nobody has retrieved.
    async def main() -> None:
        told: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context["message"]))
        work: asyncio.Future[None] = loop.create_future()
        waiting = loop.create_task(wait_out(work, lambda: told.append("interrupted")))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(0)
        assert told == ["interrupted"] and not waiting.done()
        work.set_exception(OSError("the disk fails"))
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        del work, waiting
        gc.collect()
        assert told == ["interrupted"]

    asyncio.run(main())
