"""A broker's copy of the shared metadata: complete, checked against the store, and enough to write a lost one again."""

import asyncio
from random import Random

import pytest

from ottla.cluster.image import Image
from ottla.cluster.local_copy import DIRECTORY, LocalCopy, read_copy
from ottla.cluster.memory_store import MemoryStore
from ottla.cluster.metadata_files import DamagedMetadata
from ottla.cluster.metadata_log import LogBehind, check_not_behind
from ottla.cluster.registration import become_controller
from tests.simulation.disk import SimulatedDisk
from tests.simulation.loop import simulate
from tests.unit.cluster.cluster_members import Member, count_up, offload
from tests.unit.cluster.test_embedded import StoppedClock


def fresh() -> SimulatedDisk:
    disk = SimulatedDisk(Random(1))
    disk.make_directory("data")
    return disk


def open_copy(disk: SimulatedDisk, member: Member, snapshot_bytes: int = 1 << 30) -> LocalCopy:
    copy = LocalCopy(disk, "data", offload, StoppedClock(), lambda: member.image, snapshot_bytes)
    member.metadata.on_entry(copy.add)
    return copy


@pytest.mark.parametrize("snapshot_bytes", [1 << 30, 500])
def test_the_copy_has_what_the_broker_has_applied(snapshot_bytes: int) -> None:
    """Also after a power cut and a restart, with snapshots on the way."""

    async def main() -> None:
        store, disk = MemoryStore(), fresh()
        other = Member(store.client("other"), 2)
        await other.join()
        image = Image()
        for life in range(3):
            member = Member(store.client(f"life {life}"), 1, seed=life)
            copy = open_copy(disk, member, snapshot_bytes)
            assert copy.head == image.version
            await member.join()
            check_not_behind("the store", member.image.version, copy.head)
            for _ in range(10):
                await member.metadata.change(count_up("n"))
                await other.metadata.change(count_up("m"))
            await member.metadata.refresh()
            await copy.close()
            image = member.image
            disk.crash(lose_unsynced=True)
            assert read_copy(disk, "data") == image
            await member.leave()
            await other.metadata.change(count_up("m"))  # what is appended meanwhile comes with the next start
            await other.metadata.change(count_up("m"))

    simulate(main())


@pytest.mark.parametrize("times", [1, 3, None])
def test_a_shortage_at_any_operation_leaves_no_gap(times: int | None) -> None:
    """The copy is begun anew when there is room again, and has everything then. It does not wait for a restart."""

    async def main() -> None:
        after, is_over = 0, False
        while not is_over:
            store, disk = MemoryStore(), fresh()
            member = Member(store.client("one"), 1)
            copy = open_copy(disk, member, 500)
            await member.join()
            before = disk.attempts
            disk.run_short(after, times=times)
            for _ in range(10):
                await member.metadata.change(count_up("n"))
            await asyncio.sleep(10)
            is_over = disk.attempts - before <= after
            disk.heal()
            await member.metadata.change(count_up("n"))
            await asyncio.sleep(10)
            disk.crash(lose_unsynced=True)  # it is not closed
            assert read_copy(disk, "data") == member.image, after
            copy.abandon()
            await member.leave()
            after += 1
        assert after > 30

    simulate(main())


def test_a_jump_to_a_snapshot_leaves_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that was away while its next entries were deleted goes on from the snapshot, and so does its copy."""
    monkeypatch.setattr("ottla.cluster.shared_snapshots.SNAPSHOT_ENTRIES", 5)

    async def main() -> None:
        store, disk = MemoryStore(), fresh()
        other = Member(store.client("other"), 2)
        await other.join()
        member = Member(store.client("first life"), 1)
        copy = open_copy(disk, member)
        await member.join()
        await copy.close()
        await member.leave()
        await other.metadata.change(lambda image: become_controller(image, 2, other.epoch))
        for _ in range(40):
            await other.metadata.change(count_up("m"))
        again = Member(store.client("second life"), 1)
        copy = open_copy(disk, again)
        await again.join()
        await again.metadata.change(count_up("n"))
        await copy.close()
        assert read_copy(disk, "data") == again.image

    simulate(main())


def test_a_store_that_is_behind_is_refused() -> None:
    """An emptied store; and one that was restored and went on without this broker."""

    async def main() -> None:
        store, disk = MemoryStore(), fresh()
        member = Member(store.client("a"), 1)
        copy = open_copy(disk, member)
        await member.join()
        for _ in range(5):
            await member.metadata.change(count_up("n"))
        await copy.close()
        version = member.image.version
        copy = LocalCopy(disk, "data", offload, StoppedClock(), lambda: member.image)
        with pytest.raises(LogBehind, match=rf"ends at version 0, but this broker has applied version {version}"):
            check_not_behind("the store", 0, copy.head)
        check_not_behind("the store", version, copy.head)
        reasons: list[str] = []
        elsewhere = Member(MemoryStore().client("b"), 2, seed=2)
        await elsewhere.join()
        for _ in range(10):
            await elsewhere.metadata.change(count_up("n"))
        elsewhere.stop_following()
        elsewhere.metadata._on_failure = reasons.append
        elsewhere.metadata.image = Image()
        elsewhere.metadata.on_entry(copy.add)
        with pytest.raises(LogBehind, match="is not the one that this broker has applied"):
            await elsewhere.metadata.refresh()
        assert len(reasons) == 1
        assert reasons[0].startswith("entry 1 of the metadata in the store is not the one")

    simulate(main())


def test_a_damaged_copy_is_begun_again() -> None:
    """The store has everything. A person who wants to restore from it is told what is wrong."""

    async def main() -> None:
        store, disk = MemoryStore(), fresh()
        member = Member(store.client("a"), 1)
        copy = open_copy(disk, member)
        await member.join()
        await member.metadata.change(count_up("n"))
        await copy.close()
        with pytest.raises(DamagedMetadata, match="no copy"):
            read_copy(disk, "elsewhere")
        name = f"data/{DIRECTORY}/00000000000000000001.log"
        damaged = bytearray(disk.read(name))
        damaged[30] ^= 1
        disk.replace(name, bytes(damaged))
        with pytest.raises(DamagedMetadata):
            read_copy(disk, "data")
        assert LocalCopy(disk, "data", offload, StoppedClock(), lambda: member.image).head == 0

    simulate(main())
