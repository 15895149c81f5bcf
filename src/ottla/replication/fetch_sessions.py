"""Incremental fetch sessions (KIP-227): the broker remembers what a client fetches, and both sides send changes only.

A session holds the partitions in fetch order and what the client was last told of each. It belongs to whoever knows
its id and next epoch. The cache is bounded: a newcomer may take the slot of a session that has been idle for long
enough, or of a smaller one; else it is served without a session, which is always correct, only longer on the wire.
"""

from collections.abc import Iterable, Mapping
from random import Random

from ottla.errors import ErrorCode, KafkaError
from ottla.wire.fetch import FetchPartition, FetchRequest, PartitionResult

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
MAX_EPOCH = 2**31 - 1

# (topic id, topic name, partition): requests name a topic either by id (from version 13) or by name.
PartitionKey = tuple[bytes, str, int]


def next_epoch(epoch: int) -> int:
    return 1 if epoch == MAX_EPOCH else epoch + 1


class SessionPartition:
    """One partition of a session: what is asked for, and what was last answered."""

    __slots__ = ("answered", "request")

    def __init__(self, request: FetchPartition) -> None:
        self.request = request
        self.answered: tuple[int, int, int] | None = None  # high watermark, last stable offset, log start

    def must_answer(self, result: PartitionResult, has_records: bool) -> bool:
        """Whether `result` says anything the client does not know; remembers that it has been told."""
        if result.error_code:
            self.answered = None  # whatever comes after an error is news
            return True
        told = (result.high_watermark, result.last_stable_offset, result.log_start_offset)
        news = has_records or told != self.answered or result.diverging_epoch is not None
        self.answered = told
        return news


class FetchSession:
    __slots__ = ("created", "epoch", "id", "last_used", "partitions", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now: float) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.created = now
        self.last_used = now
        self.partitions: dict[PartitionKey, SessionPartition] = {}

    def update(self, added: Mapping[PartitionKey, FetchPartition], forgotten: Iterable[PartitionKey]) -> None:
        for key in forgotten:
            self.partitions.pop(key, None)
        for key, request in added.items():
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = SessionPartition(request)
            else:
                known.request = request

    def answered_last(self, keys: Iterable[PartitionKey]) -> None:
        """Partitions that gave records go to the end, so that a busy one cannot starve the others."""
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
        self, request: FetchRequest, version: int, now: float, asked: Mapping[PartitionKey, FetchPartition]
    ) -> tuple[FetchSession | None, dict[PartitionKey, FetchPartition]]:
        """The session this request belongs to, if any, and all the partitions to fetch."""
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
        self, uses_topic_ids: bool, now: float, asked: Mapping[PartitionKey, FetchPartition]
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
        leaver = next(iter(self._sessions.values()))
        if now - leaver.last_used < self._eviction_s:
            # Everybody is busy. A larger newcomer gains more from a session than the smallest one has, but each may
            # stay for the eviction time: a flood of newcomers must not push out those who were here.
            leaver = min(self._sessions.values(), key=lambda session: len(session.partitions))
            if len(leaver.partitions) >= size or now - leaver.created < self._eviction_s:
                return False
        del self._sessions[leaver.id]
        return True
