"""The metadata as this broker knows it: the image, kept up to date with the log, and the one way to change it.

Decide, append, replay: a decider is a pure function that takes an image and returns the changes it wants. They are
appended to the log if the image was the newest, and then replayed on every broker. Listeners run in the order of
versions, before `change` returns, so a change is in force when the client gets its answer.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

from ottla.cluster.changes import ENTRY_BYTES_MAX, Change, DeleteTopic, ReserveProducerIds, encode
from ottla.cluster.image import EMPTY, Image, ReplayError
from ottla.cluster.metadata_log import Conflict, Entry, LogUnavailable, MetadataLog, NotController
from ottla.errors import ErrorCode, KafkaError

R = TypeVar("R")

Listener = Callable[[Image, Image, Sequence[Change]], None]
"""Called with the image before, the image after, and the changes in between."""

BACKOFF_S = 0.002
BACKOFF_DOUBLINGS_MAX = 7
UNAVAILABLE_S = 0.1


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """The result of a decider: the changes to append, which may be none, and a result for the caller."""

    changes: Sequence[Change]
    result: R


class Metadata:
    """`image` is the newest that this broker knows. It only moves forward, and listeners are called at every step."""

    def __init__(self, log: MetadataLog, random: Random, image: Image = EMPTY) -> None:
        self.image = image
        self._log = log
        self._random = random
        self._listeners: list[Listener] = []
        self._appending = asyncio.Lock()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self.deleted_before: frozenset[bytes] = frozenset()
        """Ids of topics that were deleted before the log was loaded, as far back as the log goes."""

    def on_change(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def load(self) -> Image:
        """Replay the log up to its head."""
        entries = await self._log.read(self.image.version)
        self._replay(entries)
        changes = (change for entry in entries for change in entry.changes)
        self.deleted_before = frozenset(change.topic_id for change in changes if isinstance(change, DeleteTopic))
        return self.image

    async def refresh(self) -> None:
        """Replay everything that was in the log when this was called."""
        self._replay(await self._log.read(self.image.version))

    async def follow(self) -> None:
        """Replay entries as they appear in the log, without end."""
        while True:
            await self._log.wait_for_growth(self.image.version)
            try:
                self._replay(await self._log.read(self.image.version, newest=False))
            except LogUnavailable:
                await asyncio.sleep(UNAVAILABLE_S)

    async def change(
        self, decide: Callable[[Image], Decision[R]], timeout_s: float | None = None, *, as_controller: bool = False
    ) -> R:
        """Append and replay the changes of a decider. After a conflict it is called again with the newer image.

        If the decider raises KafkaError, nothing is appended and the caller gets the error. REQUEST_TIMED_OUT if it
        takes longer than `timeout_s`; the change may then still be made. `as_controller`: the change counts only if
        this broker is the controller; NOT_CONTROLLER otherwise.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await self._change(decide, as_controller)
        except TimeoutError:
            message = f"the metadata could not be changed within {timeout_s} s"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message) from None
        except NotController as error:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, str(error)) from None

    async def _change(self, decide: Callable[[Image], Decision[R]], as_controller: bool) -> R:
        async with self._appending:
            attempts = 0
            while True:
                try:
                    decision = decide(self.image)
                    if not decision.changes or await self._append(tuple(decision.changes), as_controller):
                        return decision.result
                    await self.refresh()
                except LogUnavailable:
                    pass
                attempts += 1
                await asyncio.sleep(self._random.random() * BACKOFF_S * 2 ** min(attempts, BACKOFF_DOUBLINGS_MAX))

    async def reserve_producer_ids(self, broker_id: int, count: int) -> range:
        """Reserve producer ids for this broker; no other producer will ever get them."""

        def decide(image: Image) -> Decision[range]:
            broker = image.broker(broker_id)
            if broker is None:
                raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
            first = image.next_producer_id
            change = ReserveProducerIds(broker_id, broker.epoch, first, count)
            return Decision([change], range(first, first + count))

        return await self.change(decide)

    async def wait_for_version(self, version: int) -> None:
        """Returns when this broker has replayed the entry `version`."""
        if self.image.version < version:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append((version, waiter))
            await waiter

    async def _append(self, changes: tuple[Change, ...], as_controller: bool) -> bool:
        """Append to the log. Returns False if the image was not the newest."""
        size = len(encode(changes))
        if size > ENTRY_BYTES_MAX:
            message = f"the change is too large: {size} bytes of metadata, {ENTRY_BYTES_MAX} are the limit"
            raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
        before = self.image
        # An entry that cannot be replayed must never get into the log: no broker could start again.
        after = before.replay(before.version + 1, changes)
        try:
            version = await self._log.append(
                before.version, self._random.randbytes(16), changes, as_controller=as_controller
            )
        except Conflict:
            return False
        if self.image is before:  # else `follow` has replayed it already
            self._publish(after, changes)
        else:
            await self.wait_for_version(version)
        await self._snapshot_if_wanted()
        return True

    async def _snapshot_if_wanted(self) -> None:
        if self._log.wants_snapshot():
            await self._log.save_snapshot(self.image)

    def _replay(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry.version > self.image.version:
                if not entry.snapshot and entry.version != self.image.version + 1:
                    raise ReplayError(f"metadata entry {entry.version} cannot follow version {self.image.version}")
                base = EMPTY if entry.snapshot else self.image
                self._publish(base.replay(entry.version, entry.changes), entry.changes)

    def _publish(self, after: Image, changes: Sequence[Change]) -> None:
        before, self.image = self.image, after
        for listener in self._listeners:
            listener(before, after, changes)
        waiting, self._waiters = self._waiters, []
        for version, waiter in waiting:
            if version > after.version:
                self._waiters.append((version, waiter))
            elif not waiter.done():
                waiter.set_result(None)
