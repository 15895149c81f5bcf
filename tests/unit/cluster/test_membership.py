"""Membership in a cluster: registration, sessions that end, and who counts as alive."""

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from ottla.cluster import znodes
from ottla.cluster.broker_ids import generate_broker_id
from ottla.cluster.decision import Decision
from ottla.cluster.image import Image
from ottla.cluster.memory_store import MemorySession, MemoryStore
from ottla.cluster.registration import become_controller, unfence_broker
from ottla.cluster.store import (
    ConnectionLost,
    Create,
    Disconnected,
    NodeData,
    NoNode,
    NotAllowed,
    SessionExpired,
    SessionState,
    SetData,
    Store,
    StoreError,
    StoreSession,
    StoreUnavailable,
    Watch,
)
from ottla.errors import ErrorCode, KafkaError
from tests.simulation.loop import simulate
from tests.unit.cluster.cluster_members import Member, count_up


def test_brokers_join_and_see_each_other() -> None:
    """Each gets an epoch of its own; a change of one is seen by all."""

    async def main() -> None:
        store = MemoryStore()
        members = [Member(store.client(f"broker-{number}"), number) for number in (1, 2, 3)]
        epochs = [await member.join() for member in members]
        assert epochs == sorted(set(epochs))
        assert await members[0].membership.list_alive() == dict(zip((1, 2, 3), epochs, strict=True))
        assert await members[2].metadata.change(count_up("n")) == 1
        version = members[2].image.version
        for member in members:
            await member.metadata.wait_for_version(version)
            assert member.image == members[2].image

    simulate(main())


def test_nodes_that_somebody_else_put_there_do_not_count() -> None:
    """By mistake or on purpose: brokers go on, and new ones can join."""

    async def main() -> None:
        store = MemoryStore()
        first, second = (Member(store.client(f"broker-{number}"), number) for number in (1, 2))
        await first.join()
        session = await store.client("stranger").open(lambda state: None)
        for name in ("x", "1", "1-x", "01-1", f"1-{'9' * 5000}", "-1-1"):
            await session.commit([Create(f"{znodes.ALIVE}/{name}"), Create(f"{znodes.CONTROLLER}/x{name}")])
        await second.join()
        assert sorted(await first.membership.list_alive()) == [1, 2]
        assert await second.membership.list_controllers() == []

    simulate(main())


def test_a_broker_that_leaves_or_dies_is_no_longer_alive() -> None:
    """A clean leave is seen at once, a death after the session time-out."""

    async def main() -> None:
        store = MemoryStore(session_timeout_s=6.0)
        first, second, third = (Member(store.client(f"broker-{number}"), number) for number in (1, 2, 3))
        for member in (first, second, third):
            await member.join()
        await second.leave()
        assert sorted(await first.membership.list_alive()) == [1, 3]
        third.die()
        await asyncio.sleep(3)
        assert sorted(await first.membership.list_alive()) == [1, 3]
        await asyncio.sleep(6)
        assert sorted(await first.membership.list_alive()) == [1]

    simulate(main())


def test_a_new_session_is_opened_after_the_process_had_no_file_descriptors() -> None:
    """The session expired, and every attempt to connect again needs a socket."""

    class Exhausted:
        name = "the store of this test"

        def __init__(self, store: Store) -> None:
            self.store = store
            self.failures = 0

        async def open(self, on_state: Callable[[SessionState], None]) -> StoreSession:
            if self.failures:
                self.failures -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return await self.store.open(on_state)

    async def main() -> None:
        store = MemoryStore()
        exhausted = Exhausted(store.client("broker-1"))
        member = Member(exhausted, 1)
        await member.join()
        exhausted.failures = 3
        store.expire("broker-1")
        async with asyncio.timeout(60):
            while not member.expirations:
                await asyncio.sleep(0.1)
            await member.membership.wait_until_connected()
            await member.register()
        assert not exhausted.failures
        assert await member.membership.list_alive() == {1: member.epoch}

    simulate(main())


def test_a_start_goes_on_when_the_session_has_ended_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session does not know yet that it has lost its connection. On a busy machine that can take long."""
    uninformed: list[StoreError] = [Disconnected("the thread knows it"), SessionExpired("the thread knows it")] * 10

    async def claim(session: MemorySession) -> None:
        if uninformed:
            raise uninformed.pop()

    async def main() -> None:
        monkeypatch.setattr(MemorySession, "claim", claim)
        store = MemoryStore()
        assert await generate_broker_id(store.client("broker-1"), 1000, Random(1)) == 1001
        assert not uninformed
        uninformed.extend([ConnectionLost("an answer is missing")] * 20)
        member = Member(store.client("broker-1"), 1)
        await member.join()
        assert await member.membership.list_alive() == {1: member.epoch}

    simulate(main())


def test_a_store_of_somebody_else_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    async def claim(session: MemorySession) -> None:
        raise NotAllowed("the node belongs to somebody else")

    async def main() -> None:
        monkeypatch.setattr(MemorySession, "claim", claim)
        store = MemoryStore()
        with pytest.raises(StoreUnavailable, match=r"^the node belongs to somebody else$"):
            await Member(store.client("broker-1"), 1).join()
        with pytest.raises(StoreUnavailable, match=r"^the node belongs to somebody else$"):
            await generate_broker_id(store.client("broker-1"), 1000, Random(1))

    simulate(main())


def test_a_lost_connection_is_told_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        store = MemoryStore(session_timeout_s=6.0)
        member = Member(store.client("broker-1"), 1)
        await member.join()
        store.cut("broker-1")
        await asyncio.sleep(1)
        assert (member.membership.meter.disconnects, member.membership.meter.expirations) == (1, 0)
        assert [record.levelname for record in caplog.records if "has lost its connection" in record.message] == [
            "WARNING"
        ]
        store.heal("broker-1")
        await member.membership.wait_until_connected()
        assert sum("is connected to" in record.message for record in caplog.records) == 1
        store.cut("broker-1")
        await asyncio.sleep(10)
        store.heal("broker-1")
        await member.membership.wait_until_connected()
        assert (member.membership.meter.disconnects, member.membership.meter.expirations) == (2, 1)

    caplog.set_level("INFO")
    simulate(main())


def test_a_restarted_broker_takes_over_its_node() -> None:
    """It need not wait for the session of its last life; that life can change nothing more."""

    async def main() -> None:
        store = MemoryStore()
        old = Member(store.client("old"), 1)
        first = await old.join()
        started = asyncio.get_running_loop().time()
        new = Member(store.client("new"), 1, seed=2)
        second = await new.join()
        assert asyncio.get_running_loop().time() - started < 1
        assert second > first
        assert await new.membership.list_alive() == {1: second}
        with pytest.raises(KafkaError) as refusal:
            await old.metadata.change(count_up("n"), timeout_s=5)
        assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT
        await new.metadata.refresh()
        assert "n" not in new.image.features

    simulate(main())


def test_a_second_broker_with_the_same_id_is_refused() -> None:
    """In one line, after it has waited for the other one to be gone."""

    async def main() -> None:
        store = MemoryStore()
        await Member(store.client("a"), 1).join()
        other = Member(store.client("b"), 1, seed=2, directory=b"other directory!")
        with pytest.raises(KafkaError, match="another broker with id 1"):
            await other.join()

    simulate(main())


def test_a_broker_with_an_emptied_directory_takes_the_place_of_its_last_life() -> None:
    """Nobody else is there to fence the last life, which did not leave; its session decides."""

    async def main() -> None:
        store = MemoryStore(session_timeout_s=6.0)
        old = Member(store.client("old"), 1)
        first = await old.join()
        await old.metadata.change(partial(unfence_broker, broker_id=1, broker_epoch=first))
        old.die()
        new = Member(store.client("new"), 1, seed=2, directory=b"other directory!")
        second = await new.join()
        assert second > first
        assert await new.membership.list_alive() == {1: second}

    simulate(main())


def test_an_expired_session_is_followed_by_a_new_one() -> None:
    """The broker hears of it, cannot change anything before it registers again, and then goes on."""

    async def main() -> None:
        store = MemoryStore()
        member, other = Member(store.client("a"), 1), Member(store.client("b"), 2)
        first = await member.join()
        await other.join()
        store.cut("a")
        await asyncio.sleep(10)
        assert sorted(await other.membership.list_alive()) == [2]
        assert member.expirations == 0  # only the store knows
        store.heal("a")
        await asyncio.sleep(1)
        assert member.expirations == 1
        assert await member.register() > first
        assert await member.metadata.change(count_up("n")) == 1

    simulate(main())


def test_a_process_whose_place_was_taken_gives_up() -> None:
    """Two processes with copies of the same data directory do not take the place from each other in turns."""

    async def main() -> None:
        store = MemoryStore()
        old, new = Member(store.client("old"), 1), Member(store.client("new"), 1, seed=2)
        await old.join()
        second = await new.join()
        with pytest.raises(KafkaError, match="has taken its place") as refusal:
            await old.register()
        assert refusal.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert await new.membership.list_alive() == {1: second}

    simulate(main())


def test_appends_go_on_after_the_node_of_the_head_was_written_again() -> None:
    """A store that was restored has the same version in a node with another version of its own."""

    async def main() -> None:
        store = MemoryStore()
        member = Member(store.client("1"), 1)
        await member.join()
        session = await store.client("operator").open(lambda state: None)
        head = await session.get(znodes.HEAD)
        await session.commit([SetData(znodes.HEAD, head.data)])
        async with asyncio.timeout(10):
            assert await member.metadata.change(count_up("a")) == 1
        await member.leave()

    simulate(main())


def test_what_others_write_is_read_although_no_watch_fires(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch can be lost with a connection. The head is read once a second besides."""
    real = MemoryStore.get

    def get_without_watch(store: MemoryStore, session: MemorySession, path: str, watch: Watch | None) -> NodeData:
        return real(store, session, path, None)

    async def main() -> None:
        store = MemoryStore()
        first, second = (Member(store.client(f"broker-{number}"), number) for number in (1, 2))
        await first.join()
        await second.join()
        for _ in range(3):
            version = await second.metadata.change(change_and_tell)
            async with asyncio.timeout(10):
                await first.metadata.wait_for_version(version)

    monkeypatch.setattr(MemoryStore, "get", get_without_watch)
    simulate(main())


def test_a_reader_whose_next_entries_were_removed_goes_on_from_the_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not far enough behind to begin with the snapshot, and finds that an entry is missing."""
    monkeypatch.setattr("ottla.cluster.shared_snapshots.SNAPSHOT_ENTRIES", 5)

    async def main() -> None:
        store = MemoryStore()
        controller, behind = (Member(store.client(f"broker-{number}"), number) for number in (1, 2))
        await controller.join()
        await behind.join()
        behind.stop_following()
        version = behind.image.version
        await controller.metadata.change(lambda image: become_controller(image, 1, controller.epoch))
        for _ in range(40):
            await controller.metadata.change(count_up("n"))
        await asyncio.sleep(1)
        session = await store.client("witness").open(lambda state: None)
        with pytest.raises(NoNode):
            await session.get(znodes.entry_path(version + 1))
        await behind.metadata.refresh()
        assert behind.image == controller.image

    simulate(main())


def change_and_tell(image: Image) -> Decision[int]:
    """A change whose result is the version of its entry."""
    return Decision(count_up("n")(image).changes, image.version + 1)
