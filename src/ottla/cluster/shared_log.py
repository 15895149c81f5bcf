"""The metadata log that the brokers of a cluster share, in the coordination store.

An append is one commit: it moves the head from the version that the writer has read, creates the entry, and checks
that the writer's own alive node exists, and its controller node if it acts as the controller. The head proves that the
writer has read everything, the alive node that its session has not expired. An entry that registers this broker, or
makes it the controller, creates that node in the same commit.

After a lost connection the outcome of an append is unknown, and it may be applied even later. It counts as settled
only when the version that it was meant for is taken: by itself, by another broker, or by an empty entry that this
broker appends for the purpose.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import NamedTuple, TypeVar

from ottla.cluster import znodes
from ottla.cluster.changes import BecomeController, Change, RegisterBroker
from ottla.cluster.connection import NO_CONNECTION, StoreConnection
from ottla.cluster.image import Image
from ottla.cluster.metadata_log import (
    Conflict,
    Entry,
    LogDisconnected,
    LogUnavailable,
    NotAMember,
    NotController,
    check_not_behind,
)
from ottla.cluster.shared_snapshots import MissingEntries, SharedSnapshots
from ottla.cluster.store import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    NoConnection,
    NodeExists,
    NoNode,
    Operation,
    SessionState,
    SetData,
    StoreError,
    StoreSession,
)
from ottla.system.threads import Offload

T = TypeVar("T")

POLL_S = 1.0
"""How often the head is read without a sign of growth. A watch can be lost with a connection."""

READS_AT_ONCE = 64
RESTARTS_MAX = 10
"""How often a read starts again because snapshots removed entries under it."""

logger = logging.getLogger(__name__)


class _Head(NamedTuple):
    """The version of the newest entry, and the version of the node that holds this number."""

    version: int
    node_version: int


class SharedLog:
    """A `MetadataLog`. `Metadata` makes sure that one append runs at a time."""

    is_shared = True

    def __init__(self, connection: StoreConnection, broker_id: int, random: Random, offload: Offload) -> None:
        self._connection = connection
        self._broker_id = broker_id
        self._random = random
        self._head: _Head | None = None
        self._is_watched = False
        self._growth = asyncio.Event()
        self._snapshots = SharedSnapshots(connection, offload)
        self._alive: str | None = None
        self._controller: str | None = None
        self.alive_data = b""
        """Data of the alive node that the next registration creates."""
        self.predecessors: list[str] = []
        """Nodes of earlier registrations of this broker, which the next registration deletes."""
        connection.on_state(self._handle_connection_change)

    @property
    def obstacle(self) -> str:
        return "" if self._connection.is_connected else NO_CONNECTION

    @property
    def head(self) -> int:
        """Version of the newest entry that this broker has heard of."""
        return 0 if self._head is None else self._head.version

    @property
    def controller_epoch(self) -> int | None:
        """The epoch at which this broker was elected, until it resigned or registered again."""
        return None if self._controller is None else int(self._controller.rpartition("/")[2])

    async def append(
        self, expected_version: int, entry_id: bytes, changes: Sequence[Change], *, as_controller: bool = False
    ) -> int:
        head = self._head
        if head is None or head.version != expected_version:
            raise Conflict(f"the head is {self.head}, not {expected_version}")
        version = expected_version + 1
        data = znodes.encode_entry(entry_id, tuple(changes))
        operations = [
            *self._list_membership_operations(version, changes, as_controller),
            SetData(znodes.HEAD, znodes.encode_head(version), head.node_version),
            Create(znodes.entry_path(version), data),
        ]
        try:
            await self._connection.require().commit(operations)
        except ConnectionLost:
            await self._settle(version, entry_id)
        except StoreError as error:
            raise self._explain_refusal(error) from None
        else:
            self._advance(_Head(version, head.node_version + 1))
        self._note_append(version, changes, len(data))
        return version

    async def read(self, after: int, *, newest: bool = True) -> Sequence[Entry]:
        session, head = await self._reach(lambda session: self._read_head(session, newest))
        if head is None:
            if after:
                raise LogUnavailable(f"{self._connection.store_name} holds no metadata")
            return []  # nobody has created the nodes of the cluster yet
        if newest:
            check_not_behind(self._connection.store_name, head.version, after)
        for attempt in range(RESTARTS_MAX):
            try:
                return await self._read_entries(session, after, head.version, must_jump=attempt > 0)
            except MissingEntries:
                continue
            except StoreError as error:
                raise _explain_unavailable(error) from None
        raise LogUnavailable(f"entries after version {after} were removed while they were read")

    async def wait_for_growth(self, beyond: int) -> None:
        while self.head <= beyond:
            self._growth.clear()
            if not self._is_watched or not self._connection.is_connected:
                try:
                    await self._watch_head()
                except StoreError:
                    self._is_watched = False
            if self.head <= beyond:
                try:
                    async with asyncio.timeout(POLL_S):  # wait_for of Python 3.11 may swallow a cancellation
                        await self._growth.wait()
                except TimeoutError:
                    self._is_watched = False

    def wants_snapshot(self) -> bool:
        return self._controller is not None and self._snapshots.wants_snapshot()

    async def save_snapshot(self, image: Image) -> None:
        if self._controller is not None:
            try:
                await self._snapshots.save(image, self._controller)
            except StoreError as error:
                logger.warning("the snapshot of the metadata could not be written: %s", error)

    async def resign_controllership(self) -> None:
        """Delete the controller node, so that another broker is elected at once.

        LogUnavailable if that failed. This broker is the controller then, until it has resigned or its session ends:
        nobody else is elected while the node exists.
        """
        path = self._controller
        if path is None:
            return
        try:
            await self._connection.require().commit([Delete(path)])
        except NoNode:
            pass
        except StoreError as error:
            raise LogUnavailable(str(error)) from None
        if self._controller == path:
            self._controller = None

    def _list_membership_operations(
        self, version: int, changes: Sequence[Change], as_controller: bool
    ) -> list[Operation]:
        """The part of an append that ties it to the session of this broker."""
        registers = any(isinstance(item, RegisterBroker) and item.broker_id == self._broker_id for item in changes)
        if registers:
            path = znodes.alive_path(self._broker_id, version)
            if self._controller is not None and self._controller not in self.predecessors:
                self.predecessors.append(self._controller)
            deletions = [Delete(predecessor) for predecessor in self.predecessors]
            return [*deletions, Create(path, self.alive_data, ephemeral=True)]
        if self._alive is None:
            raise NotAMember(f"broker {self._broker_id} is not registered")
        operations: list[Operation] = [Check(self._alive)]
        if any(isinstance(item, BecomeController) and item.broker_id == self._broker_id for item in changes):
            operations.append(Create(znodes.controller_path(version), b"%d" % self._broker_id, ephemeral=True))
        elif as_controller:
            if self._controller is None:
                raise NotController(f"broker {self._broker_id} is not the controller")
            operations.append(Check(self._controller))
        return operations

    def _explain_refusal(self, error: StoreError) -> Exception:
        """The error that the writer gets for an append that was not applied."""
        if isinstance(error, BadVersion | NodeExists):
            return Conflict(str(error))
        if isinstance(error, NoNode):
            if error.path in self.predecessors:
                self.predecessors.remove(error.path)
                self._controller = None if error.path == self._controller else self._controller
                return Conflict(str(error))
            if error.path == self._alive:
                self._alive = None
                return NotAMember(f"the session of broker {self._broker_id} has expired")
            if error.path == self._controller:
                self._controller = None
                return NotController(f"broker {self._broker_id} is no longer the controller")
        return LogUnavailable(str(error))

    def _note_append(self, version: int, changes: Sequence[Change], size: int) -> None:
        for item in changes:
            if isinstance(item, RegisterBroker) and item.broker_id == self._broker_id:
                self._alive = znodes.alive_path(self._broker_id, version)
                self._controller = None
                self.predecessors = []
            elif isinstance(item, BecomeController) and item.broker_id == self._broker_id:
                self._controller = znodes.controller_path(version)
        self._snapshots.count(1, size)

    async def _settle(self, version: int, entry_id: bytes) -> None:
        """Find out what became of an append. Returns if it is in the log; Conflict if it is not and never will be."""
        while True:
            session = await self._connection.wait_until_connected()
            try:
                await session.sync()
                head = await self._get_head(session)
                if head.version < version:
                    await self._take_version(session, version, head)
                    raise Conflict(f"version {version} was taken by an empty entry")
                node = await session.get(znodes.entry_path(version))
            except NoNode:
                # A snapshot has replaced the entry. Deciding again is safe: a decider sees what was done already.
                raise Conflict(f"entry {version} was removed before its writer could read it") from None
            except StoreError:
                # The pause keeps a connection that breaks at every attempt from becoming a busy loop.
                await asyncio.sleep(0.05 * self._random.random())
                continue
            if znodes.decode_entry(version, node.data).id == entry_id:
                return
            raise Conflict(f"version {version} was taken by another entry")

    async def _take_version(self, session: StoreSession, version: int, head: _Head) -> None:
        """Append an empty entry, so that an append of the same version that is still under way cannot be applied."""
        await session.commit(
            [
                SetData(znodes.HEAD, znodes.encode_head(version), head.node_version),
                Create(znodes.entry_path(version), znodes.encode_entry(self._random.randbytes(16), ())),
            ]
        )
        self._advance(_Head(version, head.node_version + 1))

    async def _reach(self, ask: Callable[[StoreSession], Awaitable[T]]) -> tuple[StoreSession, T]:
        try:
            session = self._connection.require()
            return session, await ask(session)
        except StoreError as error:
            raise _explain_unavailable(error) from None

    async def _read_head(self, session: StoreSession, newest: bool) -> _Head | None:
        """The head, None if there is none."""
        try:
            if newest:
                _, head = await asyncio.gather(session.sync(), self._get_head(session))
                return head
            return await self._get_head(session)
        except NoNode:
            return None

    async def _get_head(self, session: StoreSession) -> _Head:
        node = await session.get(znodes.HEAD)
        head = _Head(znodes.decode_head(node.data), node.version)
        self._advance(head)
        return head

    def _advance(self, head: _Head) -> None:
        if self._head is None or head.version > self._head.version:
            self._growth.set()
        elif head.version < self._head.version:
            return
        self._head = head  # also at the same version: the node of a store that was written again has another one

    async def _watch_head(self) -> None:
        session = self._connection.require()
        self._is_watched = True
        node = await session.get(znodes.HEAD, self._handle_head_change)
        self._advance(_Head(znodes.decode_head(node.data), node.version))

    def _handle_head_change(self) -> None:
        self._is_watched = False
        self._growth.set()

    def _handle_connection_change(self, state: SessionState) -> None:
        if state is not SessionState.CONNECTED:
            self._is_watched = False
        if state is SessionState.EXPIRED:
            self._alive = self._controller = None
        self._growth.set()

    async def _read_entries(self, session: StoreSession, after: int, head: int, must_jump: bool) -> list[Entry]:
        entries: list[Entry] = []
        snapshot = await self._snapshots.read(session, after, head, must_jump)
        if snapshot is not None:
            entries.append(snapshot)
            after = snapshot.version
        for first in range(after + 1, head + 1, READS_AT_ONCE):
            versions = range(first, min(first + READS_AT_ONCE, head + 1))
            found = await asyncio.gather(
                *(session.get(znodes.entry_path(version)) for version in versions), return_exceptions=True
            )
            for version, node in zip(versions, found, strict=True):
                if isinstance(node, NoNode):
                    raise MissingEntries(f"entry {version} is missing")
                if isinstance(node, BaseException):
                    raise node
                entries.append(znodes.decode_entry(version, node.data))
                self._snapshots.count(1, len(node.data))
        return entries


def _explain_unavailable(error: StoreError) -> LogUnavailable:
    return (LogDisconnected if isinstance(error, NoConnection) else LogUnavailable)(str(error))
