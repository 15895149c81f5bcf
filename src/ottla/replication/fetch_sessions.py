"""Incremental fetch sessions (KIP-227): the broker remembers what a client fetches, and both sides send changes only.

A session holds the partitions in fetch order and what the client last received about each. It belongs to a user: for
anybody else it does not exist, or whoever guesses its id would learn the names of its topics. Within a user, a client
proves that a session is its own with the session's id and next epoch. The cache is bounded: a new session may take the
slot of one that has been idle for long enough, or of a smaller one. A client that gets no slot is served without a
session, which is correct too and only takes more bytes on the wire.

A follower's session is privileged, as in Kafka: no consumer's session takes its slot, but it may take a consumer's. It
may hold thousands of partitions of which few get records, so it watches them for as long as it lives, and a fetch looks
only at those where something happened.
"""

from collections.abc import Iterable, Mapping
from random import Random
from typing import Protocol

from ottla.errors import ErrorCode, KafkaError
from ottla.replication.partition import Partition
from ottla.security.principal import ANONYMOUS, Principal
from ottla.wire.fetch import TOPIC_ID_FROM, FetchPartition, FetchRequest, PartitionResult

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
CONSUMER = -1
SESSION_EPOCH_MAX = 2**31 - 1

FOLLOWER_IDLE_S = 30.0
"""A follower's session without a fetch for this long is abandoned."""

RequestedPartition = tuple[bytes, str, int]
"""Topic id, topic name and partition. A request has either the id (from version 13) or the name, the other is empty."""


def next_epoch(epoch: int) -> int:
    return 1 if epoch == SESSION_EPOCH_MAX else epoch + 1


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
        news = news or result.preferred_read_replica >= 0
        self.answered = offsets
        return news


class Session:
    """What every session has. `follower` is the broker id of the follower that it belongs to, -1 for a consumer."""

    __slots__ = ("created", "epoch", "follower", "id", "last_used", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now: float, follower: int) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.created = now
        self.last_used = now
        self.follower = follower


class FetchSession(Session):
    """The session of a consumer."""

    __slots__ = ("owner", "partitions")

    def __init__(self, session_id: int, uses_topic_ids: bool, now: float, owner: Principal) -> None:
        super().__init__(session_id, uses_topic_ids, now, CONSUMER)
        self.owner = owner
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

    def __len__(self) -> int:
        return len(self.partitions)

    def move_to_end(self, keys: Iterable[RequestedPartition]) -> None:
        """Fetch these partitions last in the next fetch: they gave records, and must not starve the others."""
        for key in keys:
            partition = self.partitions.pop(key, None)
            if partition is not None:
                self.partitions[key] = partition


class WaitingFetch(Protocol):
    """A fetch of a follower that has not been answered yet."""

    def look_soon(self) -> None:
        """A partition was added to `changed`."""

    def finish(self) -> None:
        """Answer now."""


class FollowerSessionPartition:
    """One partition of a follower's session."""

    __slots__ = ("answered", "error_code", "key", "partition", "request", "session")

    def __init__(self, session: "FollowerSession", key: RequestedPartition, request: FetchPartition) -> None:
        self.session = session
        self.key = key
        self.request = request
        self.partition: Partition | None = None
        self.answered: tuple[int, int] | None = None
        """High watermark and log start that the follower last received; None if it needs them whatever they are."""
        self.error_code = 0
        """The error that the follower last received."""

    def follow(self, partition: Partition) -> None:
        """Watch the partition from now on."""
        self.unfollow()
        self.partition = partition
        partition.end_moved.watch(self.note_change)
        partition.high_watermark.watch(self.note_change)

    def unfollow(self) -> None:
        if self.partition is not None:
            self.partition.end_moved.unwatch(self.note_change)
            self.partition.high_watermark.unwatch(self.note_change)
            self.partition = None

    def note_change(self) -> None:
        """Something happened in the partition: the next look at the session includes it."""
        session = self.session
        if self.key in session.changed:
            return
        session.changed[self.key] = self
        if self.partition is not None and self.partition.in_sync is not None:
            # Until now nothing happened since the leader last looked at the partition for this follower.
            self.partition.in_sync.note_caught_up(session.follower, session.last_used)
        if session.waiting is not None:
            session.waiting.look_soon()


class FollowerSession(Session):
    """The session of a follower. `changed` are the partitions where something happened that it may not know yet."""

    __slots__ = ("broker_epoch", "changed", "partitions", "waiting")

    def __init__(self, uses_topic_ids: bool, now: float, follower: int, broker_epoch: int) -> None:
        super().__init__(NO_SESSION, uses_topic_ids, now, follower)
        self.broker_epoch = broker_epoch
        self.partitions: dict[RequestedPartition, FollowerSessionPartition] = {}
        self.changed: dict[RequestedPartition, FollowerSessionPartition] = {}
        self.waiting: WaitingFetch | None = None
        """The fetch that waits until something happens."""

    def __len__(self) -> int:
        return len(self.partitions)

    def update(
        self, asked: Mapping[RequestedPartition, FetchPartition], forgotten: Iterable[RequestedPartition]
    ) -> None:
        for key in forgotten:
            known = self.partitions.pop(key, None)
            if known is not None:
                known.unfollow()
                self.changed.pop(key, None)
        for key, request in asked.items():
            known = self.partitions.get(key)
            if known is None:
                known = self.partitions[key] = FollowerSessionPartition(self, key, request)
            else:
                known.request = request
                self.changed.pop(key, None)
            self.changed[key] = known  # behind those that did not fit into the last answer

    def close(self) -> None:
        """The session has ended: it watches nothing any more."""
        for followed in self.partitions.values():
            followed.unfollow()
        self.partitions.clear()
        self.changed.clear()


AnySession = FetchSession | FollowerSession


class FetchSessions:
    """All sessions of this broker, within `slots`."""

    def __init__(self, slots: int, eviction_s: float, random: Random) -> None:
        self._slots = slots
        self._eviction_s = eviction_s
        self._random = random
        self._sessions: dict[int, AnySession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self,
        request: FetchRequest,
        version: int,
        now: float,
        asked: Mapping[RequestedPartition, FetchPartition],
        owner: Principal = ANONYMOUS,
    ) -> tuple[FetchSession | None, dict[RequestedPartition, FetchPartition]]:
        """Find or create the session of a request. Returns it, None if there is none, and all partitions to fetch."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if self._belongs_to(owner, request.session_id):
                self._drop(request.session_id)
            created = None
            if request.session_epoch == INITIAL_EPOCH and asked and self._make_room(len(asked), now, CONSUMER):
                created = FetchSession(self._choose_id(), version >= TOPIC_ID_FROM, now, owner)
                created.update(asked, ())
                self._sessions[created.id] = created
            return created, dict(asked)
        if not self._belongs_to(owner, request.session_id):
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session = self._continue(request, version, now)
        assert isinstance(session, FetchSession)
        session.update(asked, find_forgotten(request))
        return session, {key: partition.request for key, partition in session.partitions.items()}

    def open_follower(
        self, request: FetchRequest, version: int, now: float, asked: Mapping[RequestedPartition, FetchPartition]
    ) -> FollowerSession:
        """Find or create the session of a follower. Its id is NO_SESSION if it is for this one request: close it."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._drop(request.session_id)
            session = FollowerSession(version >= TOPIC_ID_FROM, now, request.replica_id, request.replica_epoch)
            self._drop_abandoned(session)
            if request.session_epoch == INITIAL_EPOCH and asked and self._make_room(len(asked), now, session.follower):
                session.id = self._choose_id()
                self._sessions[session.id] = session
        else:
            known = self._continue(request, version, now)
            assert isinstance(known, FollowerSession)
            session = known
            if session.broker_epoch != request.replica_epoch:  # its broker has registered again since
                raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            if session.waiting is not None:
                session.waiting.finish()
        session.update(asked, find_forgotten(request))
        return session

    def _belongs_to(self, owner: Principal, session_id: int) -> bool:
        """Whether there is such a session of a consumer, and this user has begun it."""
        session = self._sessions.get(session_id)
        return isinstance(session, FetchSession) and session.owner == owner

    def _continue(self, request: FetchRequest, version: int, now: float) -> AnySession:
        session = self._sessions.get(request.session_id)
        if session is None or session.follower != max(request.replica_id, CONSUMER):
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != (version >= TOPIC_ID_FROM):
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = next_epoch(session.epoch)
        session.last_used = now
        del self._sessions[session.id]
        self._sessions[session.id] = session
        return session

    def _choose_id(self) -> int:
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random.randrange(1, SESSION_EPOCH_MAX)
        return session_id

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if isinstance(session, FollowerSession):
            session.close()

    def _drop_abandoned(self, session: FollowerSession) -> None:
        """End sessions of the same follower that it will not continue: its broker was restarted, or they are idle.

        They would watch their partitions for nothing. A follower fetches at least every replica.fetch.wait.max.ms.
        """
        for each in list(self._sessions.values()):
            if (
                isinstance(each, FollowerSession)
                and each.follower == session.follower
                and (each.broker_epoch < session.broker_epoch or session.created - each.last_used >= FOLLOWER_IDLE_S)
            ):
                self._drop(each.id)

    def _make_room(self, size: int, now: float, follower: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        is_privileged = follower != CONSUMER
        evictable = [session for session in self._sessions.values() if is_privileged or session.follower == CONSUMER]
        if not evictable:
            return False
        evicted = evictable[0]
        if now - evicted.last_used < self._eviction_s:
            consumers = [session for session in evictable if session.follower == CONSUMER]
            if is_privileged and consumers:
                evicted = consumers[0]
            else:
                # No session is idle. A new session replaces the smallest one if it is larger, because it gains more;
                # but not before the eviction time is over, so that a flood of new sessions cannot push the old ones
                # out.
                evicted = min(evictable, key=len)
                if len(evicted) >= size or now - evicted.created < self._eviction_s:
                    return False
        self._drop(evicted.id)
        return True


def find_forgotten(request: FetchRequest) -> list[RequestedPartition]:
    """The partitions that leave the session."""
    return [(topic_id, name, index) for name, topic_id, indexes in request.forgotten for index in indexes]
