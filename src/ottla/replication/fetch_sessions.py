"""Incremental fetch sessions (KIP-227): the broker remembers what a client fetches, and both sides send changes only.

A session holds the partitions in fetch order and what the client last received about each. A client proves that a
session is its own with the session's id and next epoch. The cache is bounded: a new session may take the slot of one
that has been idle for long enough, or of a smaller one. A client that gets no slot is served without a session, which
is correct too and only takes more bytes on the wire.
"""

from collections.abc import Iterable, Mapping
from random import Random

from ottla.errors import ErrorCode, KafkaError
from ottla.wire.fetch import FetchPartition, FetchRequest, PartitionResult

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
MAX_EPOCH = 2**31 - 1

RequestedPartition = tuple[bytes, str, int]
"""Topic id, topic name and partition. A request has either the id (from version 13) or the name, the other is empty."""


def next_epoch(epoch: int) -> int:
    return 1 if epoch == MAX_EPOCH else epoch + 1


class SessionPartition:
    """One partition of a session: what the client asks for, and what it last received."""

    __slots__ = ("answered", "request")

    def __init__(self, request: FetchPartition) -> None:
        self.request = request
        self.answered: tuple[int, int, int] | None = None  # high watermark, last stable offset, log start

    def must_answer(self, result: PartitionResult, has_records: bool) -> bool:
        """Whether `result` has anything that the client does not know yet. Remembers that the client gets it now."""
        if result.error_code:
            self.answered = None  # after an error the client needs every value again
            return True
        offsets = (result.high_watermark, result.last_stable_offset, result.log_start_offset)
        news = has_records or offsets != self.answered or result.diverging_epoch is not None
        self.answered = offsets
        return news


class FetchSession:
    __slots__ = ("created", "epoch", "id", "last_used", "partitions", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now: float) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.created = now
        self.last_used = now
        self.partitions: dict[RequestedPartition, SessionPartition] = {}

    def update(
        self, added: Mapping[RequestedPartition, FetchPartition], forgotten: Iterable[RequestedPartition]
    ) -> None:
        for key in forgotten:
            self.partitions.pop(key, None)
        for key, request in added.items():
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = SessionPartition(request)
            else:
                known.request = request

    def move_to_end(self, keys: Iterable[RequestedPartition]) -> None:
        """Fetch these partitions last in the next fetch: they gave records, and must not starve the others."""
        for key in keys:
            partition = self.partitions.pop(key, None)
            if partition is not None:
                self.partitions[key] = partition


class FetchSessions:
    """All sessions of this broker, within `slots`."""

    def __init__(self, slots: int, eviction_s: float, random: Random) -> None:
        self._slots = slots
        self._eviction_s = eviction_s
        self._random = random
        self._sessions: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, request: FetchRequest, version: int, now: float, asked: Mapping[RequestedPartition, FetchPartition]
    ) -> tuple[FetchSession | None, dict[RequestedPartition, FetchPartition]]:
        """Find or create the session of a request. Returns it, None if there is none, and all partitions to fetch."""
        if request.session_epoch == FINAL_EPOCH:
            self._sessions.pop(request.session_id, None)
            return None, dict(asked)
        if request.session_epoch == INITIAL_EPOCH:
            self._sessions.pop(request.session_id, None)
            return self._create(version >= 13, now, asked), dict(asked)
        session = self._continue(request, version, now)
        forgotten = [(topic_id, name, index) for name, topic_id, indexes in request.forgotten for index in indexes]
        session.update(asked, forgotten)
        return session, {key: partition.request for key, partition in session.partitions.items()}

    def _continue(self, request: FetchRequest, version: int, now: float) -> FetchSession:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != (version >= 13):
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = next_epoch(session.epoch)
        session.last_used = now
        del self._sessions[session.id]
        self._sessions[session.id] = session
        return session

    def _create(
        self, uses_topic_ids: bool, now: float, asked: Mapping[RequestedPartition, FetchPartition]
    ) -> FetchSession | None:
        if not asked or not self._make_room(len(asked), now):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random.randrange(1, MAX_EPOCH)
        session = FetchSession(session_id, uses_topic_ids, now)
        session.update(asked, ())
        self._sessions[session_id] = session
        return session

    def _make_room(self, size: int, now: float) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        evicted = next(iter(self._sessions.values()))
        if now - evicted.last_used < self._eviction_s:
            # No session is idle. A new session replaces the smallest one if it is larger, because it gains more; but
            # not before the eviction time is over, so that a flood of new sessions cannot push the old ones out.
            evicted = min(self._sessions.values(), key=lambda session: len(session.partitions))
            if len(evicted.partitions) >= size or now - evicted.created < self._eviction_s:
                return False
        del self._sessions[evicted.id]
        return True
