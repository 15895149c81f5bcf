"""Checkpoints of the data directories: files that several tasks write, and nobody at the same time."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.loop import simulate
from tests.unit.replication.test_moves import started
from tests.unit.replication.three_directories import TOPIC, create
from tests.unit.storage.logs import new_disk


@pytest.mark.parametrize("kind", ["high_watermarks", "recovery_points", "clean_ends"])
def test_a_checkpoint_is_written_by_one_task_at_a_time(kind: str) -> None:
    # Moves that end together, and the periodic job. Two that replaced a file at once took the directory offline.
    async def main() -> None:
        broker = await started(new_disk())
        await create(broker, TOPIC, 3)
        checkpoints = broker.node.replication.checkpoints
        offload = checkpoints._offload
        running: list[object] = []
        written = 0

        def watch(function: Callable[..., Any], *arguments: object) -> "asyncio.Future[Any]":
            nonlocal written
            assert function not in running
            running.append(function)
            written += 1
            future = offload(function, *arguments)
            future.add_done_callback(lambda _: running.remove(function))
            return future

        checkpoints._offload = watch
        await asyncio.gather(*(getattr(checkpoints, f"write_{kind}")() for _ in range(3)))
        assert written == 3 * 3  # tasks, directories
        await broker.stop(1.0)

    simulate(main())
