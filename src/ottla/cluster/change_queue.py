"""Changes of the metadata that wait to be made, and the one task of this broker that appends them.

One append is under way at a time. Changes that arrive meanwhile share the next entry: each decider runs on the image
that the ones before it leave behind. After a conflict all of them are decided again on the newer image, so nobody gets
an answer that rests on an entry that is not in the log.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Protocol, TypeVar

from ottla.cluster.changes import (
    NO_LEADER,
    BecomeController,
    BeginShutdown,
    Change,
    ChangePartition,
    FenceBroker,
    RegisterBroker,
    TakeReplicasOffline,
    UnfenceBroker,
    UnregisterBroker,
)
from ottla.cluster.decision import Decision
from ottla.cluster.encoding import ENTRY_BYTES_MAX, PLAIN_BYTES_MAX, encode, encode_plain
from ottla.cluster.image import Image
from ottla.cluster.metadata_log import Conflict, Entry, LogUnavailable, MetadataLog, NotController
from ottla.errors import ErrorCode, KafkaError
from ottla.observability.metrics import DurationMeter

R = TypeVar("R")

BACKOFF_S = 0.002
BACKOFF_DOUBLINGS_MAX = 7

DECISIONS_PER_ENTRY = 500

_ALONE = (RegisterBroker, BecomeController)
"""Changes that need an entry of their own: the epoch that they give is the version of the entry, and the log creates a
node with them."""

_OF_BROKERS = (RegisterBroker, FenceBroker, UnfenceBroker, BeginShutdown, TakeReplicasOffline, UnregisterBroker)
"""Changes of a broker, which may change the leader of any partition."""


class OutcomeUnknown(KafkaError):
    """The time-out ended while the change was being appended: it may be made or not, and the image will tell."""


class ImageKeeper(Protocol):
    """The part of `Metadata` that this module uses."""

    @property
    def image(self) -> Image: ...

    async def refresh(self) -> None: ...

    async def wait_for_version(self, version: int) -> None: ...

    def publish(self, entry: Entry, after: Image) -> None: ...


@dataclass(slots=True, eq=False)
class _Pending:
    decide: Callable[[Image], Decision[Any]]
    future: "asyncio.Future[Any]"
    as_controller: bool
    requested_s: float
    is_in_flight: bool = False
    is_fresh: bool = False
    """Whether the log was read to its end since the change was requested. Only then may it be refused."""


@dataclass(slots=True)
class _EntryDraft:
    """An entry in the making: what was decided for whom, and the image after all of it."""

    before: Image
    after: Image
    changes: list[Change] = field(default_factory=list)
    size: int = 0
    merged: int = 0
    outcomes: list[tuple[_Pending, Any, Exception | None]] = field(default_factory=list)


class ChangeQueue:
    def __init__(self, keeper: ImageKeeper, log: MetadataLog, random: Random) -> None:
        self._keeper = keeper
        self._log = log
        self._random = random
        self._pending: deque[_Pending] = deque()
        self._task: asyncio.Task[None] | None = None
        self._obstacle = ""
        self._is_closed = False
        self.elections = DurationMeter()
        """Durations from the request of a change that gave partitions other leaders until it was in force here."""

    async def submit(
        self, decide: Callable[[Image], Decision[R]], timeout_s: float | None, as_controller: bool, first: bool
    ) -> R:
        loop = asyncio.get_running_loop()
        pending = _Pending(decide, loop.create_future(), as_controller, loop.time())
        if self._is_closed:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the broker stops")
        if first:
            self._pending.appendleft(pending)
        else:
            self._pending.append(pending)
        if self._task is None:
            self._task = loop.create_task(self._run(), name="changes of the metadata")
        timer = None if timeout_s is None else loop.call_later(timeout_s, self._give_up, pending, timeout_s)
        try:
            result: R = await pending.future
            return result
        finally:
            if timer is not None:
                timer.cancel()

    def close(self) -> None:
        """Give up: nothing more is appended, and everybody who waits is refused."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
        self._refuse_all(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the broker stops"))

    def _give_up(self, pending: _Pending, timeout_s: float) -> None:
        if pending.future.done():
            return
        obstacle = self._obstacle or self._log.obstacle
        reason = f": {obstacle}" if obstacle else ""
        message = f"the metadata could not be changed within {timeout_s:.3g} s{reason}"
        error = OutcomeUnknown if pending.is_in_flight else KafkaError
        pending.future.set_exception(error(ErrorCode.REQUEST_TIMED_OUT, message))

    async def _run(self) -> None:
        attempts = 0
        try:
            while self._drop_done():
                try:
                    try:
                        await self._write_entry()
                    except Conflict:
                        await self._refresh()
                    else:
                        attempts, self._obstacle = 0, ""
                        continue
                except LogUnavailable as error:
                    self._obstacle = str(error)
                attempts += 1
                await asyncio.sleep(self._random.random() * BACKOFF_S * 2 ** min(attempts, BACKOFF_DOUBLINGS_MAX))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._refuse_all(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._task = None

    async def _write_entry(self) -> None:
        """Decide about the oldest changes and append one entry for them."""
        draft = self._decide()
        if not draft.changes:
            if all(pending.is_fresh for pending, _, _ in draft.outcomes):
                self._answer(draft)
            else:
                await self._refresh()
            return
        if draft.merged > 1:
            if len(encode_plain(draft.changes)) > PLAIN_BYTES_MAX:
                draft = self._decide(decisions_max=1)
            else:
                draft.after = draft.before.replay(draft.before.version + 1, draft.changes)
        as_controller = draft.outcomes[0][0].as_controller
        entry_id, changes = self._random.randbytes(16), tuple(draft.changes)
        for pending, _, _ in draft.outcomes:
            pending.is_in_flight = True
        try:
            version = await self._log.append(draft.before.version, entry_id, changes, as_controller=as_controller)
        except NotController as error:
            self._refuse(draft, KafkaError(ErrorCode.NOT_CONTROLLER, str(error)))
            return
        except KafkaError as error:
            self._refuse(draft, error)
            return
        finally:
            for pending, _, _ in draft.outcomes:
                pending.is_in_flight = False
        if self._keeper.image is draft.before:
            self._keeper.publish(Entry(version, entry_id, changes), draft.after)
        else:  # the broker follows the log, and has replayed the entry already, or will
            await self._keeper.wait_for_version(version)
        if _elects(draft.before, draft.after, changes):
            requested_s = min(pending.requested_s for pending, _, _ in draft.outcomes)
            self.elections.count_duration(asyncio.get_running_loop().time() - requested_s)
        self._answer(draft)

    def _decide(self, decisions_max: int = DECISIONS_PER_ENTRY) -> _EntryDraft:
        before = self._keeper.image
        draft = _EntryDraft(before, before)
        for pending in list(self._pending)[:decisions_max]:
            if pending.future.done():
                continue
            if draft.outcomes and pending.as_controller != draft.outcomes[0][0].as_controller:
                break
            # Deciders see the version of the log's head, also on an image that is not in the log yet.
            image = before if draft.after is before else replace(draft.after, version=before.version)
            try:
                decision = pending.decide(image)
                changes = tuple(decision.changes)
                if changes and not self._add(draft, image, changes):
                    break
            except Exception as error:
                draft.outcomes.append((pending, None, error))
                continue
            draft.outcomes.append((pending, decision.result, None))
            if any(isinstance(item, _ALONE) for item in changes):
                break
        return draft

    def _add(self, draft: _EntryDraft, image: Image, changes: Sequence[Change]) -> bool:
        """Add changes to the entry. Returns False if they need the next one."""
        size = len(encode(changes))
        if size > ENTRY_BYTES_MAX:
            message = f"the change is too large: {size} bytes of metadata, {ENTRY_BYTES_MAX} are the limit"
            raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
        if draft.changes:
            is_alone = any(isinstance(item, _ALONE) for item in changes)
            if is_alone or draft.size + size > ENTRY_BYTES_MAX:
                return False
        # An entry that cannot be replayed must never get into the log: no broker could start again.
        draft.after = image.replay(draft.before.version + 1, changes)
        draft.changes.extend(changes)
        draft.size += size
        draft.merged += 1
        return True

    def _answer(self, draft: _EntryDraft) -> None:
        for pending, result, error in draft.outcomes:
            if pending.future.done():
                continue
            if error is None:
                pending.future.set_result(result)
            else:
                pending.future.set_exception(error)

    def _refuse(self, draft: _EntryDraft, error: Exception) -> None:
        for pending, _, _ in draft.outcomes:
            if not pending.future.done():
                pending.future.set_exception(error)

    def _refuse_all(self, error: BaseException) -> None:
        pending, self._pending = self._pending, deque()
        for item in pending:
            if not item.future.done():
                item.future.set_exception(error)

    def _drop_done(self) -> bool:
        """Forget changes that were answered. Returns whether some are left."""
        self._pending = deque(pending for pending in self._pending if not pending.future.done())
        return bool(self._pending)

    async def _refresh(self) -> None:
        """Replay the log to its end. LogUnavailable if it cannot be read: then nobody is refused yet."""
        waiting = list(self._pending)
        await self._keeper.refresh()
        for pending in waiting:
            pending.is_fresh = True


def _elects(before: Image, after: Image, changes: Sequence[Change]) -> bool:
    """Whether an entry has given a partition another leader."""
    names: Iterable[str] = ()
    if any(isinstance(item, _OF_BROKERS) for item in changes):
        names = after.topics_by_name
    elif partitions := [item for item in changes if isinstance(item, ChangePartition)]:
        names = {after.topic_names[item.topic_id] for item in partitions if item.topic_id in after.topic_names}
    for name in names:
        was, now = before.topic(name), after.topics_by_name[name]
        if was is now or was is None:
            continue
        leaders = zip(was.partitions, now.partitions, strict=False)
        if any(NO_LEADER != new.leader != old.leader for old, new in leaders):
            return True
    return False
