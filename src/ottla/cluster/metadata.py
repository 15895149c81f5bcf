"""The metadata of this broker: its image, kept in step with the log, and the one way to change it.

Decide, append, replay: a decider looks at an image and says which changes it wants; they are appended if the image was
the newest; then they are replayed here as everywhere. Listeners run, in the order of versions, before `change` returns,
so what a client asked for is in place when it is answered.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

from ottla.cluster.changes import ENTRY_BYTES_MAX, Change, DeleteTopic, ReserveProducerIds, encode
from ottla.cluster.image import EMPTY, Image, ReplayError
from ottla.cluster.metadata_log import Conflict, Entry, MetadataLog
from ottla.errors import ErrorCode, KafkaError

R = TypeVar("R")

Listener = Callable[[Image, Image, Sequence[Change]], None]
"""Told of the image before, the image after, and what was changed in between."""

BACKOFF_S = 0.002
BACKOFF_DOUBLINGS_MAX = 7


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """What to append, and what to tell the one who asked. No changes: there is nothing to do."""

    changes: Sequence[Change]
    result: R


class Metadata:
    """`image` is what this broker knows; it only moves forward, and every step is told to the listeners."""

    def __init__(self, log: MetadataLog, random: Random, image: Image = EMPTY) -> None:
        self.image = image
        self._log = log
        self._random = random
        self._listeners: list[Listener] = []
        self._appending = asyncio.Lock()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self.deleted_before: frozenset[bytes] = frozenset()
        """Ids of topics that the log, as far back as it goes, says were deleted before it was loaded."""

    def on_change(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def load(self) -> Image:
        """Replay up to the head of the log."""
        entries = await self._log.read(self.image.version)
        self._replay(entries)
        changes = (change for entry in entries for change in entry.changes)
        self.deleted_before = frozenset(change.topic_id for change in changes if isinstance(change, DeleteTopic))
        return self.image

    async def refresh(self) -> None:
        """Know at least what was in the log when this was called."""
        self._replay(await self._log.read(self.image.version))

    async def follow(self) -> None:
        """Replay what comes, without end: background work of the broker."""
        while True:
            await self._log.grown(self.image.version)
            await self.refresh()

    async def change(self, decide: Callable[[Image], Decision[R]]) -> R:
        """Append what `decide` wants and replay it; after a conflict it is asked again with the newer image.

        A KafkaError of the decider reaches the caller, and nothing was appended.
        """
        async with self._appending:
            attempts = 0
            while True:
                decision = decide(self.image)
                if not decision.changes or await self._append(tuple(decision.changes)):
                    return decision.result
                await self.refresh()
                attempts += 1
                await asyncio.sleep(self._random.random() * BACKOFF_S * 2 ** min(attempts, BACKOFF_DOUBLINGS_MAX))

    async def reserve_producer_ids(self, broker_id: int, count: int) -> range:
        """Producer ids that nobody else will ever get."""

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

    async def _append(self, changes: tuple[Change, ...]) -> bool:
        """False if the image was not the newest."""
        size = len(encode(changes))
        if size > ENTRY_BYTES_MAX:
            message = f"this changes too much at once: {size} bytes of metadata, {ENTRY_BYTES_MAX} are the limit"
            raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
        before = self.image
        # What cannot be replayed must never be in the log: it would keep every broker from starting.
        after = before.replay(before.version + 1, changes)
        try:
            version = await self._log.append(before.version, self._random.randbytes(16), changes)
        except Conflict:
            return False
        if self.image is before:  # else `follow` has seen it first
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
