"""New logs of a cluster's broker become durable without a record: a missing log counts as lost."""

import asyncio
import errno
from types import SimpleNamespace
from typing import Any, cast

from ottla.replication.upkeep import NEW_LOGS_PER_FLUSH, Upkeep
from tests.simulation.loop import simulate
from tests.unit.replication.led_partition import FakeProposer, keep, lead


def test_an_empty_log_is_durable_after_its_first_flush() -> None:
    async def scenario() -> None:
        count = NEW_LOGS_PER_FLUSH + 1
        partitions = [lead(FakeProposer(), index=index) for index in range(count)]
        unused = cast(Any, SimpleNamespace(now_ms=lambda: 0))
        upkeep = Upkeep(keep(*partitions), unused, unused, unused, unused)
        for flushed in (NEW_LOGS_PER_FLUSH, count):
            await upkeep.flush_new_logs()
            await asyncio.sleep(0)
            assert sum(partition.log.files.is_directory_durable for partition in partitions) == flushed
        disk = partitions[0].log.files.disk
        disk.crash(lose_unsynced=True)  # type: ignore[attr-defined]
        assert disk.exists(f"{partitions[0].log.directory}/partition.metadata")

    simulate(scenario())


def test_a_full_disk_is_tried_again_once_a_second_however_often_flushes_are_asked_for() -> None:
    async def scenario() -> None:
        partition = lead(FakeProposer())
        attempts = 0

        def refuse(*_: Any) -> asyncio.Future[Any]:
            nonlocal attempts
            attempts += 1
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            future.set_exception(OSError(errno.ENOSPC, "full"))
            return future

        partition.flushing._offload = cast(Any, refuse)
        for _ in range(10):
            partition.flushing.request()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert attempts == 10 and partition.flushing.is_put_off
        await asyncio.sleep(5.5)
        assert attempts == 15

    simulate(scenario())
