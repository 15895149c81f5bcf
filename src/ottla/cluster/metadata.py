"""The metadata as this broker knows it: the image, kept up to date with the log, and the one way to change it.

Decide, append, replay: a decider is a pure function that takes an image and returns the changes it wants. They are
appended to the log if the image was the newest, and then replayed on every broker. Listeners run in the order of
versions, before `change` returns, so a change is in force when the client gets its answer.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from ottla.cluster.change_queue import ChangeQueue, OutcomeUnknown
from ottla.cluster.changes import Change, DeleteTopic
from ottla.cluster.decision import Decision
from ottla.cluster.image import EMPTY, Image, ReplayError
from ottla.cluster.metadata_log import Entry, LogBehind, LogDisconnected, LogUnavailable, MetadataLog

__all__ = ["Listener", "Metadata", "OutcomeUnknown"]

R = TypeVar("R")

Listener = Callable[[Image, Image, Sequence[Change]], None]
"""Called with the image before, the image after, and the changes in between. After a jump to a snapshot the changes
are the deletion of topics that are gone, then everything in the snapshot: compare the images instead."""

RETRY_S = 0.1
"""Pause before the log is read again after a read that failed."""

CATCH_UP_INTERVAL_S = 0.02
"""Seconds between two reads of the head on behalf of clients. Requests that arrive in between share the next read."""

CATCH_UP_TIMEOUT_S = 1.0

logger = logging.getLogger(__name__)


class Metadata:
    """`image` is the newest that this broker knows. It only moves forward, and listeners are called at every step."""

    def __init__(
        self,
        log: MetadataLog,
        random: Random,
        image: Image = EMPTY,
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        """`on_failure` is called with the reason when an entry could not be applied here, or the log was lost: the
        broker must stop, because its state no longer follows the metadata."""
        self.image = image
        self._log = log
        self._queue = ChangeQueue(self, log, random)
        self.elections = self._queue.elections
        """Durations of the changes by this broker that gave partitions other leaders."""
        self._on_failure = on_failure
        self._listeners: list[Listener] = []
        self._entry_listeners: list[Callable[[Entry], None]] = []
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._snapshot_task: asyncio.Task[None] | None = None
        self._catching_up: asyncio.Task[None] | None = None
        self._next_catch_up: asyncio.Future[None] | None = None
        self.deleted_before: frozenset[bytes] = frozenset()
        """Ids of topics that were deleted before the log was loaded, as far back as the log goes."""

    def on_change(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def on_entry(self, listener: Callable[[Entry], None]) -> None:
        """`listener` gets every entry and snapshot that is replayed, in order, before the other listeners."""
        self._entry_listeners.append(listener)

    async def load(self) -> Image:
        """Replay the log up to its head as soon as it is connected. LogUnavailable if it cannot be read even then."""
        attempts = 0
        while True:
            try:
                entries = await self._read(newest=True)
                break
            except LogDisconnected as error:
                attempts += 1
                if attempts == 1:
                    logger.warning("the metadata cannot be read yet: %s", error)
                await asyncio.sleep(RETRY_S)
        self._replay(entries)
        changes = (change for entry in entries for change in entry.changes)
        self.deleted_before = frozenset(change.topic_id for change in changes if isinstance(change, DeleteTopic))
        return self.image

    async def refresh(self) -> None:
        """Replay everything that was in the log when this was called. LogUnavailable if it cannot be read."""
        self._replay(await self._read(newest=True))

    async def follow(self) -> None:
        """Replay entries as they appear in the log, without end."""
        while True:
            await self._log.wait_for_growth(self.image.version)
            try:
                self._replay(await self._read(newest=False))
            except LogUnavailable:
                await asyncio.sleep(RETRY_S)

    async def catch_up(self, timeout_s: float = CATCH_UP_TIMEOUT_S) -> None:
        """Replay what other brokers have acknowledged before this call, so that an answer may say "unknown".

        Requests share reads of the head, so clients cannot cause more than a few of them per second. If the log cannot
        be reached in time, the image stays as it is.
        """
        if not self._log.is_shared:
            return
        if self._next_catch_up is None:
            self._next_catch_up = asyncio.get_running_loop().create_future()
        if self._catching_up is None:
            self._catching_up = asyncio.get_running_loop().create_task(self._catch_up(), name="catch up with the log")
        await asyncio.wait([self._next_catch_up], timeout=timeout_s)

    async def change(
        self,
        decide: Callable[[Image], Decision[R]],
        timeout_s: float | None = None,
        *,
        as_controller: bool = False,
        first: bool = False,
    ) -> R:
        """Append and replay the changes of a decider. After a conflict it is called again with the newer image.

        If the decider raises KafkaError, nothing is appended and the caller gets the error. REQUEST_TIMED_OUT if it
        takes longer than `timeout_s`; as OutcomeUnknown if the change may still be made. None waits until the outcome
        is known. `as_controller`: the change counts only if this broker is the controller; NOT_CONTROLLER otherwise.
        `first`: do not wait for changes that were requested before.
        """
        return await self._queue.submit(decide, timeout_s, as_controller, first)

    async def wait_for_version(self, version: int) -> None:
        """Returns when this broker has replayed the entry `version`."""
        if self.image.version < version:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append((version, waiter))
            await waiter

    def close(self) -> None:
        """End what runs in the background. Changes that still wait are refused."""
        self._queue.close()
        for task in (self._snapshot_task, self._catching_up):
            if task is not None:
                task.cancel()

    def publish(self, entry: Entry, after: Image) -> None:
        """Make `after` the image, and tell everybody. It is the image after `entry`."""
        before, self.image = self.image, after
        changes = _describe_jump(before, after, entry.changes) if entry.snapshot else entry.changes
        try:
            for hear in self._entry_listeners:
                hear(entry)
            for listener in self._listeners:
                listener(before, after, changes)
        except LogBehind as error:
            self._fail(str(error))
            raise
        except Exception as error:
            self._fail(f"metadata entry {entry.version} could not be applied: {error!r}")
            raise
        waiting, self._waiters = self._waiters, []
        for version, waiter in waiting:
            if version > after.version:
                self._waiters.append((version, waiter))
            elif not waiter.done():
                waiter.set_result(None)
        self._snapshot_if_wanted()

    async def _read(self, *, newest: bool) -> Sequence[Entry]:
        try:
            return await self._log.read(self.image.version, newest=newest)
        except LogBehind as error:
            self._fail(str(error))
            raise

    def _replay(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry.version > self.image.version:
                try:
                    after = self._replay_entry(entry)
                except (ReplayError, LogBehind) as error:
                    self._fail(str(error))
                    raise
                self.publish(entry, after)

    def _replay_entry(self, entry: Entry) -> Image:
        if entry.snapshot:
            after = EMPTY.replay(entry.version, entry.changes)
            if self.image.cluster_id not in (None, after.cluster_id):
                raise LogBehind(
                    f"the store holds the metadata of cluster {after.cluster_id}, and this broker is in cluster "
                    f"{self.image.cluster_id}: the store was emptied (ottla cluster restore)"
                )
            return after
        if entry.version != self.image.version + 1:
            raise ReplayError(f"metadata entry {entry.version} cannot follow version {self.image.version}")
        return self.image.replay(entry.version, entry.changes)

    def _fail(self, reason: str) -> None:
        if self._on_failure is not None:
            self._on_failure(reason)

    def _snapshot_if_wanted(self) -> None:
        if self._snapshot_task is None and self._log.wants_snapshot():
            task = asyncio.get_running_loop().create_task(self._save_snapshot(), name="snapshot of the metadata")
            self._snapshot_task = task

    async def _save_snapshot(self) -> None:
        try:
            await self._log.save_snapshot(self.image)
        except Exception:
            logger.exception("the snapshot of the metadata failed")
        finally:
            self._snapshot_task = None

    async def _catch_up(self) -> None:
        try:
            while (waiter := self._next_catch_up) is not None:
                self._next_catch_up = None  # who asks from now on needs a read that starts later
                try:
                    await self.refresh()
                except LogUnavailable:
                    pass
                finally:
                    if not waiter.done():
                        waiter.set_result(None)
                await asyncio.sleep(CATCH_UP_INTERVAL_S)
        finally:
            self._catching_up = None


def _describe_jump(before: Image, after: Image, changes: Sequence[Change]) -> Sequence[Change]:
    """What changed between an image and a later snapshot, as changes: deletions first, then the whole snapshot."""
    gone = sorted(topic_id for topic_id in before.topic_names if topic_id not in after.topic_names)
    return (*map(DeleteTopic, gone), *changes)
