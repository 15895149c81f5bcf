"""A fetch of a follower: what it tells the leader, and what the leader answers.

The offset that a follower fetches from says how far it has copied the log; with flush.messages=1, how far it has copied
and flushed it. It may read up to the end of the log. The answer comes as soon as there are records, an error, or a
point from which the logs differ. A high watermark that the follower does not know yet is sent a little later, so that
it can go with the next records: it matters only for consumers that read from the follower, and after a change of
leader.
"""

import asyncio
from collections.abc import Callable, Mapping

from ottla.errors import ErrorCode, KafkaError
from ottla.observability.metrics import RequestMeters
from ottla.replication.fetch_sessions import NO_SESSION, FollowerSession, FollowerSessionPartition
from ottla.replication.in_sync import UNKNOWN
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.replication.throttles import ReplicationThrottle, is_throttled
from ottla.wire.fetch import (
    HIGH_WATERMARK_UNSUPPORTED,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionResult,
    TopicResult,
)

HIGH_WATERMARK_DELAY_S = 0.01
THROTTLE_STEP_S = 0.01
"""Shortest pause of a throttled follower, so that it gets more than a few bytes at a time."""
FETCH = 1
"""The API key, by which errors are counted."""


class FollowerFetch:
    """One fetch request of a follower, and what was found for each of its partitions so far."""

    __slots__ = (
        "_again",
        "_answer",
        "_ends_wait",
        "_has_news",
        "_held_back",
        "_look",
        "_loop",
        "_max_bytes",
        "_meters",
        "_replicas",
        "_request",
        "_results",
        "_session",
        "_size",
        "_sizes",
        "_throttle",
        "_timers",
    )

    _answer: asyncio.Future[FetchResponse]
    _loop: asyncio.AbstractEventLoop
    _timers: dict[Callable[[], None], asyncio.TimerHandle]

    def __init__(
        self,
        replicas: Replicas,
        meters: RequestMeters,
        session: FollowerSession,
        request: FetchRequest,
        max_bytes: int,
        throttle: ReplicationThrottle,
    ) -> None:
        """`throttle`: that of leaders."""
        self._replicas = replicas
        self._meters = meters
        self._session = session
        self._request = request
        self._max_bytes = min(request.max_bytes, max_bytes)
        self._throttle = throttle
        self._results: dict[FollowerSessionPartition, PartitionResult] = {}
        self._again: dict[FollowerSessionPartition, None] = {}
        """Partitions that the session's next fetch looks at again, whatever happens in them."""
        self._held_back: dict[FollowerSessionPartition, None] = {}
        """Partitions with records that the throttle holds back."""
        self._sizes: dict[FollowerSessionPartition, int] = {}
        self._size = 0
        self._ends_wait = False
        self._look: asyncio.Handle | None = None
        self._has_news = False
        """Whether the follower lacks a high watermark."""

    def is_enough(self) -> bool:
        return self._ends_wait or self._size >= self._request.min_bytes or self._request.max_wait_ms <= 0

    # The long poll. A future and not a coroutine, so that the connection handles further requests meanwhile. One in the
    # same session asks for more partitions: then this one is answered at once.

    def wait(self) -> asyncio.Future[FetchResponse]:
        """Look again whenever something happens in a partition, until there is enough to answer."""
        loop = self._loop = asyncio.get_running_loop()
        answer = self._answer = loop.create_future()
        answer.add_done_callback(self._end)
        self._timers = {}
        self._session.waiting = self
        self._do_later(self.finish, self._request.max_wait_ms / 1000)
        self._plan()
        return answer

    def look_soon(self) -> None:
        """A partition has changed. All changes of one iteration of the event loop are looked at together."""
        if self._look is None:
            self._look = self._loop.call_soon(self._look_again)

    def finish(self) -> None:
        """Answer with what was found."""
        if not self._answer.done():
            self._answer.set_result(self.build_response())

    def _look_again(self) -> None:
        self._look = None
        if self._answer.done():
            return
        self.read_changed()
        if self.is_enough():
            self.finish()
        else:
            self._plan()

    def _plan(self) -> None:
        """Choose when to look again, or to answer, although nothing happens."""
        if self._has_news:
            self._do_later(self._send_news, HIGH_WATERMARK_DELAY_S)
        if self._held_back:
            self._do_later(self._release, max(self._throttle.wait_s(), THROTTLE_STEP_S))

    def _do_later(self, action: Callable[[], None], delay_s: float) -> None:
        if action not in self._timers:
            self._timers[action] = self._loop.call_later(delay_s, action)

    def _send_news(self) -> None:
        """Like `finish`, under a name of its own: the timers are kept by what they do."""
        self.finish()

    def _release(self) -> None:
        """Look again at what the throttle has held back."""
        del self._timers[self._release]
        self._put_back(self._held_back)
        self.look_soon()

    def _end(self, answer: asyncio.Future[FetchResponse]) -> None:
        for timer in self._timers.values():
            timer.cancel()
        if self._session.waiting is self:
            self._session.waiting = None
        if answer.cancelled():
            self._give_back()

    # Reading

    def read_changed(self, fetched: float | None = None) -> None:
        """Look at the partitions where something happened. `fetched`: the request has just come, at this time."""
        changed = self._session.changed
        for followed in list(changed.values()):
            self._size -= self._sizes.pop(followed, 0)
            self._again.pop(followed, None)
            self._held_back.pop(followed, None)
            try:
                result = self._read(followed, fetched)
            except KafkaError as error:
                result = PartitionResult(followed.request.index, error.code)
                self._again[followed] = None
                # A follower that asks again does not get the same error again at once, so it cannot ask without pause.
                self._ends_wait = self._ends_wait or error.code != followed.error_code
                self._count_failure(followed, error.code)
            self._results[followed] = result
            # Last: a fetch may itself have moved the high watermark of the partition that was just looked at.
            changed.pop(followed.key, None)

    def _read(self, followed: FollowerSessionPartition, fetched: float | None) -> PartitionResult:
        request, session = followed.request, self._session
        partition = self._find(followed)
        partition.require_leader(request.current_leader_epoch)
        in_sync = partition.require_follower(session.follower, request.current_leader_epoch)
        self._require_current_broker()
        log = partition.log
        if not log.log_start_offset <= request.fetch_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if (diverging := self._find_divergence(partition, request)) is not None:
            self._ends_wait = True
            self._again[followed] = None
            high_watermark = partition.high_watermark.value
            return PartitionResult(
                request.index, 0, high_watermark, -1, log.log_start_offset, diverging_epoch=diverging
            )
        if request.fetch_offset > log.end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if fetched is not None:
            partition.meter.fetches += 1
            partition.note_follower_fetch(
                session.follower, session.broker_epoch, request.fetch_offset, request.log_start_offset, fetched
            )
        elif (follower := in_sync.followers[session.follower]).must_fetch or follower.end_offset == UNKNOWN:
            # It has left the ISR, or was removed and added, since it asked: only its next fetch counts.
            self._again[followed] = None
        return self._read_records(followed, partition, request)

    def _find_divergence(self, partition: Partition, request: FetchPartition) -> EpochEndOffset | None:
        """Up to where the follower's log is the same as the leader's, if it has to cut the rest off."""
        log, offset = partition.log, request.fetch_offset
        if request.last_fetched_epoch >= 0 and (diverging := find_divergence(partition, request)) is not None:
            return diverging
        is_deleted = offset == log.log_start_offset and 0 <= request.last_fetched_epoch < log.epochs.epoch_at(offset)
        if not is_deleted and offset >= log.removed_deletes.before:
            return None
        if self._has_all_committed(partition):
            return None
        # Either all that the follower has was deleted here, and nobody knows whether it was the same. Or it lacks
        # tombstones that compaction has removed.
        if is_deleted or partition.must_start_anew(self._session.follower, offset, request.log_start_offset):
            return EpochEndOffset(request.last_fetched_epoch, log.log_start_offset)
        return None

    def _has_all_committed(self, partition: Partition) -> bool:
        """Whether the follower may be elected. While its log starts anew it would lack what was acknowledged."""
        state, in_sync, follower = partition.state, partition.in_sync, self._session.follower
        broker = self._replicas.image.broker(follower)
        if state is None or in_sync is None or broker is None or broker.epoch != self._session.broker_epoch:
            return False  # in another life it may have lost records
        return follower in in_sync.maximal_isr or follower in state.elr

    def _read_records(
        self, followed: FollowerSessionPartition, partition: Partition, request: FetchPartition
    ) -> PartitionResult:
        log, high_watermark = partition.log, partition.high_watermark.value
        records = None
        if request.fetch_offset < log.end_offset:
            self._again[followed] = None
            if self._must_hold_back(partition):
                self._held_back[followed] = None
            else:
                limit = max(min(request.max_bytes, self._max_bytes - self._size), 0)
                found = log.read(request.fetch_offset, limit, up_to=log.end_offset, at_least_one=self._size == 0)
                records = found.slice if found is not None else None
        if records is not None:
            self._sizes[followed] = records.length
            self._size += records.length
        start = log.log_start_offset
        known = followed.answered or (request.high_watermark, start)
        if known[0] < high_watermark and request.high_watermark != HIGH_WATERMARK_UNSUPPORTED:
            self._has_news = True
        if known[1] < start:
            self._ends_wait = True  # whoever deletes records waits until every replica has done so
        return PartitionResult(request.index, 0, high_watermark, -1, start, None, -1, records)

    def _is_throttled(self, partition: Partition) -> bool:
        listed = partition.config.leader_replication_throttled_replicas
        return is_throttled(listed, partition.index, partition.broker_id)

    def _must_hold_back(self, partition: Partition) -> bool:
        """Whether the throttle forbids to send records now. It never does to a follower in the ISR."""
        return (
            not self._throttle.is_unlimited
            and self._is_throttled(partition)
            and partition.state is not None
            and self._session.follower not in partition.state.isr
            and self._throttle.wait_s() > 0
        )

    def _find(self, followed: FollowerSessionPartition) -> Partition:
        partition = followed.partition
        if partition is None or partition.state is None:
            followed.unfollow()
            topic_id, name, index = followed.key
            replicas = self._replicas
            partition = replicas.get(name, index) if name else replicas.get_by_id(topic_id, index)
            followed.follow(partition)
        return partition

    def _require_current_broker(self) -> None:
        """NOT_LEADER_OR_FOLLOWER, as in Kafka, if the follower's broker has registered anew since."""
        broker = self._replicas.image.broker(self._session.follower)
        if broker is not None and 0 <= self._session.broker_epoch < broker.epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _count_failure(self, followed: FollowerSessionPartition, code: int) -> None:
        meters = self._replicas.meters
        meter = followed.partition.meter if followed.partition is not None else meters.elsewhere
        meter.failed_fetches += 1
        self._meters.count_error(FETCH, code)

    # Answering

    def build_response(self) -> FetchResponse:
        """The partitions of which the follower does not know everything yet."""
        session = self._session
        topics: dict[tuple[bytes, str], TopicResult] = {}
        has_limit = not self._throttle.is_unlimited
        for followed, result in self._results.items():
            answered = None if result.error_code else (result.high_watermark, result.log_start_offset)
            if (
                answered is None
                or result.records is not None
                or result.diverging_epoch
                or answered != followed.answered
            ):
                topic_id, name, _ = followed.key
                topic = topics.get((topic_id, name))
                if topic is None:
                    topics[topic_id, name] = TopicResult(name, topic_id, [result])
                else:
                    topic.partitions.append(result)
            if followed in self._sizes:
                self._count_sent(followed, has_limit)
            followed.answered = answered
            followed.error_code = result.error_code
        self._replicas.meters.replication_bytes_out += self._size
        self._put_back(self._again)
        if session.id == NO_SESSION:
            session.close()
        return FetchResponse(session_id=session.id, topics=list(topics.values()))

    def _count_sent(self, followed: FollowerSessionPartition, has_limit: bool) -> None:
        """Count records for a replica that a reassignment adds, and for one that is throttled."""
        partition = followed.partition
        if partition is None:
            return
        if partition.state is not None and self._session.follower in partition.state.adding:
            self._replicas.meters.reassignment_bytes_out += self._sizes[followed]
        if has_limit and self._is_throttled(partition):
            self._throttle.record(self._sizes[followed])

    def _give_back(self) -> None:
        """The follower is gone. If it comes back, it has received nothing of what was found."""
        self._put_back(self._results)
        if self._session.id == NO_SESSION:
            self._session.close()

    def _put_back(self, partitions: Mapping[FollowerSessionPartition, object]) -> None:
        session = self._session
        for followed in partitions:
            if session.partitions.get(followed.key) is followed:
                session.changed.setdefault(followed.key, followed)


def find_divergence(partition: Partition, asked: FetchPartition) -> EpochEndOffset | None:
    """Where the sender's log diverges from ours: the last epoch that it fetched ended earlier here (KIP-595)."""
    epoch, end_offset = partition.epoch_end(asked.last_fetched_epoch)
    if epoch < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < asked.last_fetched_epoch or end_offset < asked.fetch_offset:
        return EpochEndOffset(epoch, end_offset)
    return None
