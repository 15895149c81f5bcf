"""The embedded metadata log: what was acknowledged is there after any end, what was not may be gone."""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.cluster import embedded
from ottla.cluster.changes import Change, SetClusterId, SetFeature
from ottla.cluster.decision import Decision
from ottla.cluster.embedded import DIRECTORY, EmbeddedLog
from ottla.cluster.image import EMPTY, Image
from ottla.cluster.metadata import Metadata
from ottla.cluster.metadata_files import DamagedMetadata, remove_covered
from ottla.cluster.metadata_log import Conflict
from ottla.errors import ErrorCode, KafkaError
from ottla.storage.files import Disk
from tests.simulation.disk import Crashed, SimulatedDisk
from tests.unit.cluster.histories import History, histories, replayed

T = TypeVar("T")
FIRST = f"data/{DIRECTORY}/00000000000000000001.log"


class StoppedClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000


def offload(function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
    """A thread that takes no time: the work is done at once, the answer comes in the next iteration of the loop."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    try:
        future.set_result(function(*args))
    except Exception as error:
        future.set_exception(error)
    return future


def opened(disk: Disk, snapshot_bytes: int = 1 << 30) -> EmbeddedLog:
    return EmbeddedLog(disk, "data", offload, StoppedClock(), snapshot_bytes)


def run(main: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(main)


def fresh(seed: int = 1) -> SimulatedDisk:
    disk = SimulatedDisk(Random(seed))
    disk.make_directory("data")
    return disk


def feature(number: int) -> SetFeature:
    return SetFeature(f"feature-{number}", number + 1)


async def append(log: EmbeddedLog, *changes: Change) -> int:
    return await log.append(log.head, b"i" * 16, changes)


async def loaded(log: EmbeddedLog) -> Image:
    return await Metadata(log, Random(1)).load()


@given(histories(15), st.integers(0, 2**32), st.integers(200, 2000))
@settings(max_examples=40, deadline=None)
def test_a_reopened_log_has_the_same_image(history: History, seed: int, snapshot_bytes: int) -> None:
    """With a power cut after every entry, and snapshots on the way: every acknowledged change is there."""

    async def main() -> None:
        disk = fresh(seed)
        for number, changes in enumerate(history):
            metadata = Metadata(opened(disk, snapshot_bytes), Random(seed))
            assert await metadata.load() == replayed(history[:number])
            await metadata.change(lambda image, changes=changes: Decision(changes, None))  # type: ignore[misc]
            disk.crash(lose_unsynced=True)
        assert await loaded(opened(disk)) == replayed(history)

    run(main())


def test_a_log_torn_at_any_byte_keeps_every_whole_entry() -> None:
    """A write cut anywhere, or with a bad byte anywhere in the last entry, costs only that entry; the next one fits."""

    async def main() -> None:
        disk = fresh()
        log = opened(disk)
        ends = [0]
        for number in range(3):
            await append(log, feature(number))
            ends.append(disk.size(FIRST))
        whole = disk.read(FIRST)
        for cut in range(ends[0], ends[3]):
            torn = fresh()
            torn.make_directory(f"data/{DIRECTORY}")
            torn.replace(FIRST, whole[:cut])
            log = opened(torn)
            kept = sum(end <= cut for end in ends) - 1
            assert log.head == kept
            assert len((await loaded(log)).features) == kept
            assert await append(log, feature(9)) == kept + 1
            assert (await loaded(opened(torn))).features["feature-9"] == 10
        for position in range(ends[2], ends[3]):
            broken = fresh()
            broken.make_directory(f"data/{DIRECTORY}")
            damaged = bytearray(whole)
            damaged[position] ^= 0x55
            broken.replace(FIRST, bytes(damaged))
            # the leader epoch, bytes 12 to 15 of a batch, is not under the checksum and means nothing here
            assert opened(broken).head == (3 if 12 <= position - ends[2] < 16 else 2)

    run(main())


def test_damage_before_the_last_entry_is_refused() -> None:
    """Acknowledged entries are never cut off in silence: the broker refuses to start, in one line."""

    async def main() -> None:
        disk = fresh()
        log = opened(disk)
        for number in range(3):
            await append(log, feature(number))
        data = bytearray(disk.read(FIRST))
        data[30] ^= 1
        disk.replace(FIRST, bytes(data))
        with pytest.raises(DamagedMetadata, match=r"00001.log: metadata entry 1 at byte 0 is damaged"):
            opened(disk)

    run(main())


@pytest.mark.parametrize("lose_unsynced", [True, False])
def test_a_crash_at_any_operation_loses_nothing_acknowledged(lose_unsynced: bool) -> None:
    """Power cut and kill -9 at every single disk operation of a life with appends and snapshots."""

    async def life(disk: SimulatedDisk, acknowledged: list[int]) -> None:
        metadata = Metadata(opened(disk, snapshot_bytes=300), Random(1))
        await metadata.load()
        for number in range(8):
            await metadata.change(lambda image, number=number: Decision([feature(number)], None))  # type: ignore[misc]
            acknowledged.append(number)

    rehearsal = fresh()
    start = rehearsal.operations
    run(life(rehearsal, []))
    assert rehearsal.operations - start > 30
    for operation in range(start + 1, rehearsal.operations + 1):
        disk = fresh(operation)
        acknowledged: list[int] = []
        disk.crash_at(operation)
        with pytest.raises(Crashed):
            run(life(disk, acknowledged))
        disk.crash(lose_unsynced)
        features = run(loaded(opened(disk))).features
        assert sorted(features.values()) in (
            [number + 1 for number in acknowledged],
            [number + 1 for number in range(len(acknowledged) + 1)],
        )
        disk.crash(lose_unsynced=True)  # what a start has found and acted on must outlive a power cut after it
        assert run(loaded(opened(disk))).features == features


def test_snapshots_replace_the_log_and_two_are_kept() -> None:
    """The directory stays small; a damaged newest snapshot is made good by the older one and the entries since."""

    async def main() -> None:
        disk = fresh()
        metadata = Metadata(opened(disk, snapshot_bytes=1000), Random(1))
        for number in range(100):
            await metadata.change(lambda image, number=number: Decision([SetFeature("same", number + 1)], None))  # type: ignore[misc]
        names = disk.list(f"data/{DIRECTORY}")
        snapshots = [name for name in names if name.endswith(".checkpoint")]
        assert len(snapshots) == 2
        assert len(names) <= 5
        disk.replace(f"data/{DIRECTORY}/{snapshots[-1]}", b"damaged")
        assert await loaded(opened(disk)) == metadata.image
        disk.replace(f"data/{DIRECTORY}/{snapshots[-2]}", b"damaged")
        with pytest.raises(DamagedMetadata, match=r"metadata entries 1 to [0-9]+ are missing"):
            opened(disk)

    run(main())


def test_only_what_two_snapshots_cover_is_forgotten() -> None:
    """Segments that hold anything after the older snapshot stay."""
    disk = fresh()
    disk.make_directory(f"data/{DIRECTORY}")
    for name in ("1.log", "8.log", "11.log", "15.log", "4.checkpoint", "10.checkpoint", "20.checkpoint"):
        number, _, suffix = name.partition(".")
        disk.replace(f"data/{DIRECTORY}/{int(number):020d}.{suffix}", b"")
    remove_covered(disk, f"data/{DIRECTORY}")
    left = [name.lstrip("0") for name in disk.list(f"data/{DIRECTORY}")]
    assert left == ["10.checkpoint", "11.log", "15.log", "20.checkpoint"]


def test_a_stale_expectation_is_a_conflict() -> None:
    """Nothing is written when somebody else was first."""

    async def main() -> None:
        log = opened(fresh())
        await append(log, feature(0))
        for expected in (0, 2):
            with pytest.raises(Conflict):
                await log.append(expected, b"x" * 16, [feature(1)])
        assert log.head == 1
        assert [entry.version for entry in await log.read(0)] == [1]

    run(main())


def test_a_full_disk_refuses_the_change_and_nothing_else() -> None:
    """A failed write leaves no trace; when there is room again the next change fits."""

    async def main() -> None:
        disk = fresh()
        log = opened(disk)
        for number in range(2):  # the first write creates the file, the second finds it there
            disk.fail("append", errno.ENOSPC)
            with pytest.raises(KafkaError) as refusal:
                await append(log, SetClusterId("x"))
            assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert await append(log, feature(number)) == number + 1
        assert len((await loaded(opened(disk))).features) == 2

    run(main())


@pytest.mark.parametrize("times", [1, 2, 5])
def test_a_shortage_at_any_operation_passes(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No room or no descriptor, also for what takes a failed write back: nothing waits for a restart."""
    monkeypatch.setattr(embedded, "RETRY_S", 0.0)

    async def main() -> None:
        refusals, after, is_over = 0, 0, False
        while not is_over:
            disk = fresh()
            log = opened(disk, snapshot_bytes=200)
            before = disk.attempts
            disk.run_short(after, times=times)
            for number in range(8):
                for _ in range(times + 1):
                    try:
                        assert await append(log, feature(number)) == number + 1
                        break
                    except KafkaError as error:
                        assert error.code is ErrorCode.KAFKA_STORAGE_ERROR and "restart" not in error.message
                        refusals += 1
                if log.wants_snapshot():
                    await log.save_snapshot(EMPTY.replay(log.head, [feature(each) for each in range(number + 1)]))
            is_over = disk.attempts - before <= after
            disk.heal()
            disk.crash(lose_unsynced=True)
            assert len((await loaded(opened(disk))).features) == 8, after
            after += 1
        assert refusals > 10 and after > 40

    run(main())


@pytest.mark.parametrize("cut", ["at once", "at the stop"])
def test_a_clean_stop_leaves_no_half_written_entry(cut: str) -> None:
    # After a clean stop half an entry counts as damage, and the broker would not start.
    async def main() -> None:
        for seed in range(20):
            disk = fresh(seed)
            log = opened(disk)
            await append(log, feature(0))
            disk.fail("append", errno.ENOSPC, FIRST)
            if cut == "at the stop":
                disk.fail("truncate", errno.EMFILE, FIRST)
            with pytest.raises(KafkaError):
                await append(log, feature(1))
            log.close()
            disk.crash(lose_unsynced=True)
            assert EmbeddedLog(disk, "data", offload, StoppedClock(), clean=True).head == 1, seed

    run(main())


def test_a_half_written_entry_that_stays_is_reported_at_the_stop() -> None:
    # The broker writes no mark of a clean stop then.
    async def main() -> None:
        disk = fresh()
        reported: list[str] = []
        log = EmbeddedLog(disk, "data", offload, StoppedClock(), on_failure=reported.append)
        await append(log, feature(0))
        disk.fail("append", errno.ENOSPC, FIRST)
        disk.fail("truncate", errno.EMFILE, FIRST, times=None)
        with pytest.raises(KafkaError):
            await append(log, feature(1))
        assert not reported
        log.close()
        assert len(reported) == 1

    run(main())


def test_a_failed_fsync_is_final() -> None:
    """What is on the platter is unknown then: nothing more is taken, nothing is retried, reads fail too."""

    async def main() -> None:
        disk = fresh()
        log = opened(disk)
        await append(log, feature(0))
        disk.fail("fsync", errno.EIO)
        for _ in range(2):
            with pytest.raises(KafkaError, match="restart the broker"):
                await append(log, feature(1))
        assert log.head == 1
        with pytest.raises(KafkaError, match="restart the broker"):
            await log.read(0)

    run(main())


def test_an_entry_whose_writer_went_away_still_counts() -> None:
    """The caller was cancelled in the middle of the fsync; a follower of the log replays the entry."""

    async def main() -> None:
        syncing: list[asyncio.Future[Any]] = []

        def slow(function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
            future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            function(*args)
            syncing.append(future)
            return future

        log = EmbeddedLog(fresh(), "data", slow, StoppedClock())
        metadata = Metadata(log, Random(1))
        following = asyncio.create_task(metadata.follow())
        changing = asyncio.create_task(metadata.change(lambda image: Decision([feature(0)], None)))
        while not syncing:
            await asyncio.sleep(0)
        changing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await changing
        assert metadata.image == EMPTY
        syncing[0].set_result(None)
        await metadata.wait_for_version(1)
        assert metadata.image.features["feature-0"] == 1
        following.cancel()

    run(main())
