"""A store that was lost is written again. Another cluster, a newer state and running brokers are left alone."""

from random import Random

import pytest

from ottla.cluster import znodes
from ottla.cluster.image import Image
from ottla.cluster.memory_store import MemoryStore
from ottla.cluster.registration import become_controller
from ottla.cluster.restore import check_restore, restore_store
from ottla.cluster.store import Delete, StoreUnavailable
from tests.simulation.loop import simulate
from tests.unit.cluster.cluster_members import Member, count_up, offload


async def live(store: MemoryStore, changes: int, cluster_id: str = "ours") -> Image:
    """One life of a broker that makes some changes. Returns the metadata that it leaves behind."""
    member = Member(store.client("broker"), 1, cluster_id=cluster_id)
    await member.join()
    await member.metadata.change(lambda image: become_controller(image, 1, member.epoch))
    for _ in range(changes):
        await member.metadata.change(count_up("n"))
    await member.leave()
    return member.image


async def restore(store: MemoryStore, image: Image) -> int:
    return await restore_store(store.client("restore"), image, Random(1), offload)


async def check(store: MemoryStore, image: Image) -> int:
    return await check_restore(store.client("check"), image, Random(1), offload)


async def expect_refusal(store: MemoryStore, image: Image, reason: str) -> None:
    """Neither function does anything to the store but to say why it must stay as it is."""
    commits = store.commits
    for ask in (check, restore):
        with pytest.raises(StoreUnavailable, match=reason):
            await ask(store, image)
    assert store.commits == commits


def test_a_lost_store_is_written_again() -> None:
    """Topics and settings are there, the versions go on, and brokers join."""

    async def main() -> None:
        saved = await live(MemoryStore(), 5)
        store = MemoryStore()
        assert await check(store, saved) == 0
        assert not store.commits
        assert await restore(store, saved) == 0
        again = Member(store.client("broker"), 1, cluster_id="ours")
        epoch = await again.join()
        assert epoch == saved.version + 1
        assert again.image.features["n"] == 5
        assert again.image.cluster_id == saved.cluster_id
        await expect_refusal(store, saved, "brokers are running on the store in memory: 1\\. Stop them")
        await again.leave()
        await expect_refusal(store, saved, "keep what is there")

    simulate(main())


def test_a_store_from_an_old_backup_is_brought_up_to_date() -> None:
    """Its entries are replaced by the snapshot of the copy."""

    async def main() -> None:
        old = MemoryStore()
        stale, image = await live(old, 1), await live(MemoryStore(), 5)
        assert await check(old, image) == stale.version
        assert await restore(old, image) == stale.version
        again = Member(old.client("broker"), 1, cluster_id="ours")
        await again.join()
        assert again.image.features["n"] == 5
        session = again.membership._connection.require()
        assert await session.children("/ottla/log") == [str(again.image.version)]

    simulate(main())


@pytest.mark.parametrize("snapshot_entries", [3, 5000], ids=["snapshot", "entries"])
def test_another_cluster_is_not_overwritten(snapshot_entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is older or newer than the copy. Its id may be in a snapshot only."""
    monkeypatch.setattr("ottla.cluster.shared_snapshots.SNAPSHOT_ENTRIES", snapshot_entries)

    async def main() -> None:
        store = MemoryStore()
        session = await store.client("reader").open(lambda state: None)
        theirs, ours = await live(store, 20, "theirs"), await live(MemoryStore(), 30, "ours")
        older = await live(MemoryStore(), 1, "ours")
        assert older.version < theirs.version < ours.version
        assert ("1" in await session.children(znodes.LOG)) == (snapshot_entries > theirs.version)
        await session.close()
        for image in (older, ours):
            await expect_refusal(store, image, "store in memory holds cluster theirs, and the copy is of cluster ours")
        again = Member(store.client("broker"), 1, cluster_id="theirs")
        await again.join()
        assert again.image.features["n"] == 20
        await expect_refusal(store, ours, "holds cluster theirs")

    simulate(main())


def test_what_cannot_be_read_may_be_another_cluster() -> None:
    async def main() -> None:
        store = MemoryStore()
        await live(store, 1)
        session = await store.client("somebody").open(lambda state: None)
        await session.commit([Delete(znodes.entry_path(2))])
        await session.close()
        await expect_refusal(store, await live(MemoryStore(), 5), "what the store in memory holds cannot be read")

    simulate(main())
