"""The shared log and membership on a real ZooKeeper: concurrent writers, expired sessions, servers that die."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kazoo.client import KazooClient

from ottla.cli.cluster.zookeeper_server import ZooKeeperServer
from ottla.cli.ports import pick_port
from ottla.cluster.changes import ConfigResource, SetConfig
from ottla.cluster.decision import Decision
from ottla.cluster.memory_store import MemoryStore
from ottla.cluster.registration import become_controller
from ottla.cluster.restore import check_restore, restore_store
from ottla.cluster.store import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    Disconnected,
    NodeExists,
    NoNode,
    NotAllowed,
    NotEmpty,
    SessionExpired,
    SessionState,
    SetData,
    Store,
    StoreError,
    StoreSession,
    StoreUnavailable,
)
from ottla.cluster.zookeeper import ZooKeeper
from ottla.errors import ErrorCode, KafkaError
from ottla.testing.remote_store import RemoteStore
from ottla.testing.store_server import StoreServer
from tests.patience import PATIENCE_S
from tests.unit.cluster.cluster_members import Member, count_up, offload

SESSION_S = 10.0
"""Long enough that a busy machine ends no session."""
SHORT_SESSION_S = 2.0
"""For a test that waits until a session has expired."""


def connect(address: str, session_s: float = SESSION_S) -> ZooKeeper:
    return ZooKeeper(address, session_s, PATIENCE_S)


def run(main: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await main

    asyncio.run(limited())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.02)


def ignore(state: SessionState) -> None:
    """For sessions whose state nobody looks at."""


async def open_claimed(store: Store, hear: Callable[[SessionState], None] = ignore) -> StoreSession:
    session = await store.open(hear)
    await session.claim()
    return session


def protecting(address: str, credentials: str = "me:secret") -> ZooKeeper:
    """With zookeeper.set.acl."""
    return ZooKeeper(address, SESSION_S, PATIENCE_S, credentials, protect_nodes=True)


@pytest.fixture(params=["zookeeper", "memory", "served"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """ZooKeeper, the store in memory, and that store served to another process: what one does, the others do."""
    if request.param == "memory":
        yield MemoryStore(SHORT_SESSION_S).client("a client")
    elif request.param == "served":
        server = StoreServer(MemoryStore(SHORT_SESSION_S), str(tmp_path / "store"))
        yield RemoteStore(server.path, "a client")
        server.close()
    else:
        yield connect(request.getfixturevalue("zookeeper"), SHORT_SESSION_S)


def test_operations_and_their_errors(store: Store) -> None:
    """A commit is all or nothing, and its error names the node. Versions count the changes of data."""

    async def main() -> None:
        session = await open_claimed(store)
        await session.commit([Create("/a", b"1"), Create("/a/b", b"2"), Create("/e", ephemeral=True)])
        assert await session.get("/a") == (b"1", 0, 0)
        assert (await session.get("/e")).owner == session.id
        assert await session.children("/a") == ["b"]
        await session.commit([SetData("/a", b"3", 0), Check("/a/b", 0), Check("/e")])
        assert (await session.get("/a")).version == 1
        refused: list[tuple[list[Any], type[StoreError], str]] = [
            ([SetData("/a", b"x"), SetData("/a", b"4", 0)], BadVersion, "/a"),
            ([Create("/c"), Check("/none")], NoNode, "/none"),
            ([Create("/c"), Create("/a")], NodeExists, "/a"),
            ([Delete("/a/b"), Create("/c"), Delete("/none")], NoNode, "/none"),
            ([Create("/c"), Delete("/a")], NotEmpty, "/a"),
            ([Create("/none/c")], NoNode, "/none/c"),
            ([Create("/e/c")], StoreError, "/e/c"),
        ]
        for operations, kind, path in refused:
            with pytest.raises(kind) as refusal:
                await session.commit(operations)
            assert refusal.value.path == path
            assert await session.get("/a") == (b"3", 1, 0)
            assert await session.children("/a") == ["b"]
        with pytest.raises(NoNode):
            await session.get("/c")
        with pytest.raises(NoNode):
            await session.children("/c")
        await session.close()

    run(main())


def test_watches_fire_once_and_before_the_change_is_read(store: Store) -> None:
    """On data, on children, on deletion; not for a change that the reader has seen."""

    async def main() -> None:
        writer, reader = await open_claimed(store), await open_claimed(store)
        await writer.commit([Create("/a", b"1"), Create("/a/b")])
        await reader.sync()
        heard: list[str] = []
        await reader.get("/a", lambda: heard.append("data"))
        await reader.children("/a", lambda: heard.append("children"))
        await writer.commit([SetData("/a", b"2")])
        await reader.sync()
        assert (await reader.get("/a")).data == b"2"
        assert heard == ["data"]
        await writer.commit([SetData("/a", b"3"), Create("/a/c")])
        await reader.sync()
        assert await reader.children("/a") == ["b", "c"]
        assert heard == ["data", "children"]
        await reader.get("/a/c", lambda: heard.append("gone"))
        await writer.commit([Delete("/a/c")])
        await reader.sync()
        with pytest.raises(NoNode):
            await reader.get("/a/c")
        assert heard == ["data", "children", "gone"]
        await writer.close()
        await reader.close()

    run(main())


def test_the_end_of_a_session(store: Store) -> None:
    """Closed: its nodes are gone at once. Abandoned: after the time-out, not before."""

    async def main() -> None:
        watcher, closed, abandoned = [await open_claimed(store) for _ in range(3)]
        await closed.commit([Create("/closed", ephemeral=True)])
        await abandoned.commit([Create("/abandoned", ephemeral=True)])
        await closed.close()
        await watcher.sync()
        with pytest.raises(NoNode):
            await watcher.get("/closed")
        began = time.monotonic()
        abandoned.abandon()
        while True:
            try:
                await watcher.sync()
                await watcher.get("/abandoned")
            except NoNode:
                break
            except (ConnectionLost, Disconnected, SessionExpired):  # a busy machine may end this session, too
                watcher.abandon()
                watcher = await open_claimed(store)
            await asyncio.sleep(0.05)
        assert time.monotonic() - began > SHORT_SESSION_S / 2
        await watcher.close()

    run(main())


def test_concurrent_writers(zookeeper: str) -> None:
    """Every increment counts once, and all brokers have the same history."""

    async def main() -> None:
        members = [Member(connect(zookeeper), number, seed=number) for number in (1, 2, 3)]
        await asyncio.gather(*(member.join() for member in members))
        work = [member.metadata.change(count_up("n")) for _ in range(20) for member in members]
        assert sorted(await asyncio.gather(*work)) == list(range(1, 61))
        version = max(member.image.version for member in members)
        for member in members:
            await member.metadata.wait_for_version(version)
            assert member.image == members[0].image
        assert await members[0].membership.list_alive() == {member.id: member.epoch for member in members}
        for member in members:
            await member.leave()

    run(main())


def test_a_large_entry_and_a_snapshot(zookeeper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries that a snapshot covers are deleted; a broker that comes later starts from the snapshot."""
    monkeypatch.setattr("ottla.cluster.shared_snapshots.SNAPSHOT_ENTRIES", 20)

    async def main() -> None:
        first = Member(connect(zookeeper), 1)
        await first.join()
        large = [SetConfig(ConfigResource.BROKER, "", f"key-{number}", "x" * 1000) for number in range(450)]
        await first.metadata.change(lambda image: Decision(large, None))
        await first.metadata.change(lambda image: become_controller(image, 1, first.epoch))
        for _ in range(100):
            await first.metadata.change(count_up("n"))
        session = first.membership._connection.require()
        while "1" in await session.children("/ottla/log"):
            await asyncio.sleep(0.02)
        second = Member(connect(zookeeper), 2)
        await second.join()
        await first.metadata.refresh()
        assert second.image == first.image
        assert second.image.features["n"] == 100
        for member in (first, second):
            await member.leave()

    run(main())


def test_a_broker_whose_event_loop_is_stuck_loses_its_session(zookeeper: str) -> None:
    """kazoo's thread would keep the session; the watchdog ends it. The broker hears of it and registers again."""

    async def main() -> None:
        member = Member(connect(zookeeper, session_s=1.0), 1)
        first = await member.join()
        time.sleep(3)  # the stuck loop
        await until(lambda: member.expirations == 1)
        assert await member.register() > first
        assert await member.metadata.change(count_up("n")) == 1
        await member.leave()

    run(main())


def test_an_expired_session(zookeeper: str) -> None:
    """Another client with the same session closes it: the broker hears of it, and goes on after it registered."""

    async def main() -> None:
        member = Member(connect(zookeeper), 1)
        first = await member.join()
        session = member.membership._connection.require()
        identity = session._client.client_id  # type: ignore[attr-defined]
        thief = KazooClient(hosts=zookeeper.partition("/")[0], client_id=identity)

        def steal() -> None:
            thief.start()
            thief.stop()
            thief.close()

        await asyncio.to_thread(steal)
        await until(lambda: member.expirations == 1)
        with pytest.raises(KafkaError) as refusal:
            await member.metadata.change(count_up("n"), timeout_s=0.5)
        assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert await member.register() > first
        assert await member.metadata.change(count_up("n")) == 1
        await member.leave()

    run(main())


def test_zookeeper_is_killed_and_comes_back(own_zookeeper: ZooKeeperServer) -> None:
    """Changes fail in their time meanwhile; afterwards everything goes on by itself, and each change counts once."""

    async def main() -> None:
        members = [Member(connect(own_zookeeper.address, session_s=4.0), number) for number in (1, 2)]
        for member in members:
            await member.join()
        assert await members[0].metadata.change(count_up("n")) == 1
        await asyncio.to_thread(own_zookeeper.kill)
        await until(lambda: not members[0].membership.is_connected)
        with pytest.raises(KafkaError, match=r"within 0\.5 s") as refusal:
            await members[0].metadata.change(count_up("n"), timeout_s=0.5)
        assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT
        waiting = asyncio.create_task(members[1].metadata.change(count_up("n")))
        await asyncio.to_thread(own_zookeeper.start)
        for member in members:  # the machine may be so slow that a session expired
            await until(lambda member=member: member.membership.is_connected)  # type: ignore[misc]
            if member.expirations:
                await member.register()
        assert await waiting == 2
        assert await members[0].metadata.change(count_up("n")) == 3
        for member in members:
            await member.leave()

    run(main())


def test_one_of_three_servers_is_killed(ensemble: list[ZooKeeperServer]) -> None:
    """Changes go on; each counts once."""

    async def main() -> None:
        addresses = ",".join(server.address for server in ensemble)
        member = Member(connect(f"{addresses}/a/path"), 1, seed=Random().randrange(1 << 20))
        await member.join()
        assert await member.metadata.change(count_up("n")) == 1
        for server in ensemble[:1]:
            await asyncio.to_thread(server.kill)
        for level in range(2, 12):
            assert await member.metadata.change(count_up("n")) == level
        assert member.expirations == 0
        await member.leave()

    run(main())


class ForgetfulServer:
    """Stands before ZooKeeper and can leave out an answer, as a server does that has lost its ensemble's leader."""

    def __init__(self, address: str) -> None:
        self._host, _, where = address.partition(":")
        port, _, self._path = where.partition("/")
        self._port = int(port)
        self.address = ""
        self.connections = self.closed = 0
        self.forgets_next = False

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._serve, self._host, 0)
        self.address = f"{self._host}:{server.sockets[0].getsockname()[1]}/{self._path}"
        yield
        server.close()
        await until(lambda: self.closed == self.connections)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        answers, requests = await asyncio.open_connection(self._host, self._port)
        passing = asyncio.ensure_future(self._pass_on_requests(reader, requests))
        try:
            await self._pass_on_answers(answers, writer)
        finally:
            passing.cancel()
            for each in (writer, requests):
                each.close()
                with suppress(OSError):
                    await each.wait_closed()
            self.closed += 1

    async def _pass_on_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    async def _pass_on_answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_first = True
        while True:
            try:
                size = await reader.readexactly(4)
                answer = await reader.readexactly(int.from_bytes(size, "big"))
            except asyncio.IncompleteReadError:
                return
            # The first answer opens the session. Those without a request have negative numbers.
            if self.forgets_next and not is_first and answer[0] < 0x80:
                self.forgets_next = False
            else:
                writer.write(size + answer)
            is_first = False


def test_an_answer_that_zookeeper_leaves_out(zookeeper: str) -> None:
    # kazoo's thread ended, with the session, and two tracebacks in the log of the broker.
    async def main() -> None:
        server = ForgetfulServer(zookeeper)
        states: list[SessionState] = []
        async with server.run():
            session = await open_claimed(connect(server.address), states.append)
            server.forgets_next = True
            outcomes = await asyncio.gather(
                session.commit([Create("/done", b"x")]), session.get("/done"), return_exceptions=True
            )
            assert [type(each) for each in outcomes] == [ConnectionLost, ConnectionLost], "nobody knows the outcomes"
            await until(lambda: states == [SessionState.SUSPENDED, SessionState.CONNECTED])
            assert (await session.get("/done")).data == b"x", "it is the same session, on another connection"
            assert server.connections == 2
            await session.close()

    run(main())


def test_an_answer_that_is_left_out_and_followed_by_none(zookeeper: str) -> None:
    # A broker that asked for nothing else followed the log no more, and missed elections.
    async def main() -> None:
        server = ForgetfulServer(zookeeper)
        async with server.run():
            other = Member(connect(zookeeper, SHORT_SESSION_S), 2)
            await other.join()
            member = Member(connect(server.address, SHORT_SESSION_S), 1)
            await member.join()
            await other.metadata.change(count_up("n"))
            await member.metadata.wait_for_version(other.image.version)
            server.forgets_next = True  # the answer to its next look at the log
            await until(lambda: not server.forgets_next)
            await other.metadata.change(count_up("n"))
            await member.metadata.wait_for_version(other.image.version)
            assert server.connections == 2
            await member.leave()
        await other.leave()

    run(main())


def test_zookeeper_cannot_be_reached() -> None:
    """One line says where it was looked for."""

    async def main() -> None:
        store = ZooKeeper(f"127.0.0.1:{pick_port()}/path", 1.0, 0.3)
        with pytest.raises(StoreUnavailable, match=r"cannot connect to ZooKeeper at 127.0.0.1:\d+: not within 0.3 s"):
            await store.open(ignore)

    run(main())


def test_zookeeper_is_paused_for_longer_than_the_sessions(own_zookeeper: ZooKeeperServer) -> None:
    """Sessions may have expired when it goes on. Every broker comes back by itself, and each change counts once."""

    async def main() -> None:
        members = [Member(connect(own_zookeeper.address, session_s=1.0), number, seed=number) for number in (1, 2)]
        for member in members:
            await member.join()
        assert await members[0].metadata.change(count_up("n")) == 1
        own_zookeeper.pause()
        waiting = asyncio.create_task(members[0].metadata.change(count_up("n")))
        await asyncio.sleep(2.5)
        own_zookeeper.resume()

        async def stay(member: Member) -> None:
            while not waiting.done():
                if member.membership.log._alive is None and member.membership.is_connected:
                    await member.register()
                await asyncio.sleep(0.05)

        await asyncio.gather(*(stay(member) for member in members))
        assert await waiting == 2
        await members[1].metadata.wait_for_version(members[0].image.version)
        assert members[1].image.features["n"] == 2
        for member in members:
            await member.leave()

    run(main())


def test_credentials_protect_the_nodes(zookeeper: str) -> None:
    """With zookeeper.set.acl, a client without the credentials reads nothing."""

    async def main() -> None:
        owner = await open_claimed(protecting(zookeeper))
        await owner.commit([Create("/secrets", b"1")])
        assert (await owner.get("/secrets")).data == b"1"
        stranger = await open_claimed(connect(zookeeper))
        with pytest.raises(StoreError):
            await stranger.get("/secrets")
        await owner.close()
        await stranger.close()

    run(main())


def test_nodes_that_were_open_before_are_protected(zookeeper: str) -> None:
    """zookeeper.set.acl counts for a cluster that had none, and for nodes that a stranger created before it started."""

    async def main() -> None:
        stranger = await open_claimed(connect(zookeeper))
        await stranger.commit([Create("/ottla"), Create("/ottla/log"), Create("/ottla/log/1", b"before")])
        owner = await open_claimed(protecting(zookeeper))
        for attempt in (
            stranger.get("/ottla/log/1"),
            stranger.children("/ottla/log"),
            stranger.commit([SetData("/ottla/log/1", b"forged", 0)]),
            stranger.commit([Create("/ottla/log/2", b"forged")]),
            stranger.commit([Delete("/ottla/log/1", 0)]),
        ):
            with pytest.raises(NotAllowed):
                await attempt
        assert (await owner.get("/ottla/log/1")).data == b"before"
        await owner.close()
        await stranger.close()

    run(main())


def test_a_node_of_somebody_else_is_not_used(zookeeper: str) -> None:
    """A broker does not start on nodes that another user has protected, or may change although they are to be."""

    async def main() -> None:
        other = await open_claimed(protecting(zookeeper, "other:secret"))
        await other.commit([Create("/ottla")])
        for store in (protecting(zookeeper), connect(zookeeper)):
            with pytest.raises(StoreUnavailable, match=r"the node .*/ottla.* belongs to somebody else"):
                await Member(store, 1).join()
        await other.close()

    run(main())


def test_a_store_that_is_only_looked_at_stays_as_it_was(zookeeper: str) -> None:
    # A dry run of a restore, or a broker, with zookeeper.set.acl and the path of another cluster: it took the nodes of
    # that cluster for its own, and whose they were could not start any more.
    async def main() -> None:
        theirs = Member(connect(f"{zookeeper}/theirs"), 1, cluster_id="theirs")
        await theirs.join()
        await theirs.leave()
        ours = Member(connect(f"{zookeeper}/ours"), 1, cluster_id="ours")
        await ours.join()
        for _ in range(3):
            await ours.metadata.change(count_up("n"))
        await ours.leave()
        for ask in (check_restore, restore_store):
            with pytest.raises(StoreUnavailable, match="holds cluster theirs, and the copy is of cluster ours"):
                await ask(protecting(f"{zookeeper}/theirs"), ours.image, Random(1), offload)
        assert await check_restore(protecting(f"{zookeeper}/typo"), ours.image, Random(1), offload) == 0
        assert await Member(connect(f"{zookeeper}/theirs"), 1, cluster_id="theirs").join() > 0
        top = await connect(zookeeper).open(ignore)
        assert await top.children("") == ["ours", "theirs"]
        await top.close()

    run(main())


def test_a_server_whose_port_is_taken_while_it_starts_takes_another(zookeeper: str, tmp_path: Path) -> None:
    server = ZooKeeperServer(tmp_path, is_durable=False)
    with socket.socket() as other:
        other.bind(("127.0.0.1", server.port))
        try:
            server.start()
            assert server.port != other.getsockname()[1]
        finally:
            server.kill()
