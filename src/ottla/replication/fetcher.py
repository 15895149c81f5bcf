"""One connection to one leader: a Fetch session (KIP-227) with all partitions that are copied over it.

One request is in flight. Its answer is applied, and the next request is sent in the same iteration of the event loop:
it tells the leader that the records have arrived, and producers wait for that. A request names only the partitions
whose offsets changed. If partitions are added or come back while the leader waits for records, a second request is
sent after a moment; the leader then answers the first at once.

A partition leaves the session while its log is truncated, while its leader is asked where its log begins and ends,
after an error, and while it is throttled. `following.py` decides what an answer means.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.replication.following import (
    Append,
    AskRange,
    Outdated,
    Retry,
    StartNew,
    Truncate,
    UpToDate,
    Verdict,
    judge,
    judge_range,
    make_request,
    next_backoff_s,
)
from ottla.replication.partition import Partition
from ottla.replication.peers import Peers, PeerUnavailable
from ottla.replication.ranges import ask_ranges
from ottla.replication.throttles import ReplicationThrottle, is_throttled
from ottla.replication.truncation import Truncations
from ottla.storage.disk_errors import describe_error
from ottla.system.clock import Clock
from ottla.wire.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic, PartitionResult
from ottla.wire.peer import PeerConnection

logger = logging.getLogger(__name__)

INTERRUPT_S = 0.02
"""A request that is unanswered for this long waits for records at the leader."""
IN_FLIGHT_MAX = 2
FIRST_RECONNECT_S = 0.05
SESSION_EPOCH_MAX = 2**31 - 1

Key = tuple[bytes, int]
"""Topic id and partition."""

_SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


class FetchSettings(NamedTuple):
    min_bytes: int
    wait_max_ms: int
    partition_max_bytes: int
    response_max_bytes: int
    backoff_s: float
    timeout_s: float
    answer_bytes_max: int


class Followed:
    """One partition that is copied from a leader, in one leader epoch."""

    __slots__ = (
        "asked",
        "asked_in",
        "backoff_s",
        "fetcher",
        "is_paused",
        "key",
        "leader",
        "leader_epoch",
        "leader_high_watermark",
        "must_start_new",
        "partition",
        "timer",
    )

    fetcher: "Fetcher"

    def __init__(self, partition: Partition, leader: int, leader_epoch: int) -> None:
        self.partition = partition
        self.key: Key = (partition.topic_id, partition.index)
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.asked: FetchPartition | None = None
        """What the leader's session holds for this partition; None if the session does not have it."""
        self.asked_in = 0
        """The number of the request that said so."""
        self.is_paused = False
        self.backoff_s = 0.0
        self.timer: asyncio.TimerHandle | None = None
        self.leader_high_watermark = 0
        self.must_start_new = False
        """Whether the records in the log are worth nothing under this leader."""

    @property
    def lag(self) -> int:
        return max(self.leader_high_watermark - self.partition.log.end_offset, 0)


class Fetcher:
    def __init__(
        self,
        leader: int,
        number: int,
        broker_id: int,
        broker_epoch: Callable[[], int],
        peers: Peers,
        clock: Clock,
        settings: Callable[[], FetchSettings],
        throttle: ReplicationThrottle,
        truncations: Truncations,
        first_copies: dict[Partition, int],
    ) -> None:
        """`first_copies`: see `Fetchers`. A partition leaves it when it has all that is committed."""
        self.leader = leader
        self.number = number
        self.bytes_in = 0
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._peers = peers
        self._clock = clock
        self._settings = settings
        self._throttle = throttle
        self._truncations = truncations
        self._first_copies = first_copies
        self._loop = asyncio.get_running_loop()
        self._followed: dict[Key, Followed] = {}
        self._changed: dict[Key, Followed] = {}
        """Partitions whose next request differs from what the session holds."""
        self._forgotten: dict[Key, None] = {}
        """Partitions that the session holds and that are not wanted any more."""
        self._counts_throttled = False
        """Whether there is a limit for throttled partitions, as of the last answer."""
        self._throttled: dict[Key, Followed] = {}
        """Partitions that are paused by the throttle."""
        self._connection: PeerConnection | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._is_connecting = False
        self._backoff_s = 0.0
        self._session_id = 0
        self._session_epoch = 0
        self._is_sessionless = False
        """Whether the leader had no room for a session: then each request names every partition."""
        self._request_number = 0
        self._valid_from = 0
        """Answers to earlier requests belong to a session that is gone."""
        self._in_flight: deque[int] = deque()
        self._sent_at = 0.0
        self._flushes: dict[asyncio.Future[None], None] = {}
        """Records that must be on disk before the next request."""
        self._wake_handle: asyncio.Handle | None = None
        self._throttle_timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def is_empty(self) -> bool:
        return not self._followed

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    # Partitions

    def add(self, followed: Followed) -> None:
        followed.fetcher = self
        self._followed[followed.key] = followed
        running = self._truncations.find(followed.partition)
        if running is not None:  # began under an earlier leader
            followed.is_paused = True
            running.add_done_callback(lambda _: self._resume(followed))
            return
        if followed.must_start_new:
            followed.is_paused = True
            self._start(self._ask_ranges([followed]))
            return
        self._changed[followed.key] = followed
        self._wake()

    def remove(self, followed: Followed) -> None:
        if self._followed.get(followed.key) is followed:
            self._pause(followed)
            del self._followed[followed.key]

    def close(self) -> None:
        self._is_closed = True
        for handle in (self._wake_handle, self._throttle_timer):
            if handle is not None:
                handle.cancel()
        for task in list(self._tasks):
            task.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close("no partition is copied from this leader")

    def _pause(self, followed: Followed) -> None:
        """Ask no more for the partition, until `_resume`."""
        followed.is_paused = True
        self._changed.pop(followed.key, None)
        self._throttled.pop(followed.key, None)
        if followed.timer is not None:
            followed.timer.cancel()
            followed.timer = None
        if followed.asked is not None:
            followed.asked = None
            self._forgotten[followed.key] = None

    def _resume(self, followed: Followed) -> None:
        if self._followed.get(followed.key) is followed and not self._is_closed:
            followed.timer = None
            if followed.must_start_new:
                self._start(self._ask_ranges([followed]))
                return
            followed.is_paused = False
            self._changed[followed.key] = followed
            self._wake()

    def _back_off(self, followed: Followed, reason: str) -> None:
        first = not followed.backoff_s
        followed.backoff_s = next_backoff_s(followed.backoff_s, self._settings().backoff_s)
        log = logger.info if first else logger.debug
        log("%s: copying from broker %d pauses: %s", followed.partition, self.leader, reason)
        self._pause(followed)
        followed.timer = self._loop.call_later(followed.backoff_s, self._resume, followed)

    # Requests

    def _wake(self) -> None:
        """Send a request soon: partitions were added or came back."""
        if self._wake_handle is not None or self._is_closed:
            return
        wait_s = self._sent_at + INTERRUPT_S - self._loop.time() if self._in_flight else 0.0
        if wait_s > 0:
            self._wake_handle = self._loop.call_later(wait_s, self._send_soon)
        else:
            self._wake_handle = self._loop.call_soon(self._send_soon)

    def _send_soon(self) -> None:
        self._wake_handle = None
        if not self._in_flight:
            self._send()
        elif not self._changed or self._session_epoch == 0 or len(self._in_flight) == IN_FLIGHT_MAX:
            return  # the next answer leads to the next request
        elif self._loop.time() < self._sent_at + INTERRUPT_S:
            self._wake()
        else:
            self._send()

    def _send(self) -> None:
        """Send the next request, if there is anything to ask for and nothing to wait for first."""
        connection = self._connection
        if self._is_closed:
            return
        if connection is None:
            self._connect()
            return
        self._hold_throttled()
        if self._flushes:
            return
        if self._session_epoch == 0:
            self._forgotten.clear()
            self._changed = {key: followed for key, followed in self._followed.items() if not followed.is_paused}
        self._wait_until_durable()
        if self._flushes or not (self._changed or self._forgotten or self._is_session_active()):
            return
        request = self._make_request()
        self._request_number += 1
        self._in_flight.append(self._request_number)
        self._sent_at = self._loop.time()
        timeout_s = self._settings().timeout_s + request.max_wait_ms / 1000
        try:
            answer = connection.send(request, timeout_s)
        except (PeerUnavailable, KafkaError) as error:
            self._handle_loss(str(error))
            return
        number = self._request_number
        answer.add_done_callback(lambda future: self._handle_answer(connection, number, future))

    def _is_session_active(self) -> bool:
        """Whether the leader's session holds a partition."""
        return any(followed.asked is not None for followed in self._followed.values())

    def _wait_until_durable(self) -> None:
        """With flush.messages=1 a request would say that records are on disk which are not yet."""
        for followed in list(self._changed.values()):
            flush = followed.partition.wait_until_durable()
            if flush is not None:
                self._flushes[flush] = None
                flush.add_done_callback(lambda future, followed=followed: self._handle_flush(followed, future))  # type: ignore[misc]

    def _handle_flush(self, followed: Followed, future: asyncio.Future[None]) -> None:
        self._flushes.pop(future, None)
        error = None if future.cancelled() else future.exception()
        if error is not None and self._followed.get(followed.key) is followed:
            self._back_off(followed, str(error))
        if not self._flushes and not self._in_flight:
            self._send()

    def _make_request(self) -> FetchRequest:
        settings = self._settings()
        max_bytes = settings.partition_max_bytes
        number = self._request_number + 1
        topics: dict[bytes, FetchTopic] = {}
        for key, followed in self._changed.items():
            partition = followed.partition
            high_watermark = partition.high_watermark.value
            asked = make_request(partition.index, followed.leader_epoch, partition.log, high_watermark, max_bytes)
            followed.asked, followed.asked_in = asked, number
            self._forgotten.pop(key, None)
            topic = topics.get(key[0])
            if topic is None:
                topic = topics[key[0]] = FetchTopic(partition.topic, key[0])
            topic.partitions.append(asked)
        self._changed.clear()
        forgotten: dict[bytes, ForgottenTopic] = {}
        for topic_id, index in self._forgotten:
            forgotten.setdefault(topic_id, ForgottenTopic("", topic_id, [])).indexes.append(index)
        self._forgotten.clear()
        request = FetchRequest(
            replica_id=self._broker_id,
            replica_epoch=self._broker_epoch(),
            # The answer with the session's id comes at once: without it no further request could be sent meanwhile.
            max_wait_ms=0 if self._session_epoch == 0 and not self._is_sessionless else settings.wait_max_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=list(topics.values()),
            forgotten=list(forgotten.values()),
        )
        if self._session_epoch:
            self._session_epoch = 1 if self._session_epoch == SESSION_EPOCH_MAX else self._session_epoch + 1
        return request

    # Answers

    def _handle_answer(self, connection: PeerConnection, number: int, future: "asyncio.Future[FetchResponse]") -> None:
        error = None if future.cancelled() else future.exception()
        if connection is not self._connection or future.cancelled():
            return
        if error is not None:
            self._handle_loss(str(error))
            return
        self._backoff_s = 0.0
        self._in_flight.popleft()
        response = future.result()
        if number >= self._valid_from:
            self._apply(number, response)
        if not self._in_flight or (self._changed and len(self._in_flight) < IN_FLIGHT_MAX):
            self._send()

    def _apply(self, number: int, response: FetchResponse) -> None:
        if response.error_code:
            self._handle_session_error(response.error_code)
            return
        if self._session_epoch == 0:
            self._session_id = response.session_id
            self._session_epoch = 1 if response.session_id else 0
            self._is_sessionless = not response.session_id
        now_ms = self._clock.now_ms()
        self._counts_throttled = not self._throttle.is_unlimited
        out_of_range: list[Followed] = []
        for topic in response.topics:
            topic_id = topic.topic_id
            for result in topic.partitions:
                followed = self._followed.get((topic_id, result.index))
                if followed is not None and followed.asked is not None and followed.asked_in <= number:
                    self._apply_result(followed, result, now_ms, out_of_range)
        if out_of_range:
            self._start(self._ask_ranges(out_of_range))

    def _handle_session_error(self, error_code: int) -> None:
        if error_code not in _SESSION_ERRORS:
            name = name_error(error_code)
            for followed in list(self._followed.values()):
                if not followed.is_paused:
                    self._back_off(followed, f"the whole request failed with {name}")
        self._end_session()

    def _end_session(self) -> None:
        """The next request names every partition."""
        self._session_epoch = 0
        self._is_sessionless = False
        self._valid_from = self._request_number + 1
        for followed in self._followed.values():
            followed.asked = None
        self._forgotten.clear()

    def _apply_result(
        self, followed: Followed, result: PartitionResult, now_ms: int, out_of_range: list[Followed]
    ) -> None:
        assert followed.asked is not None
        partition = followed.partition
        try:
            match judge(partition, self.leader, followed.asked, result):
                case Append(records):
                    partition.append_as_follower(records, now_ms)
                    self.bytes_in += len(records)
                    if self._counts_throttled and self._is_throttled(partition):
                        self._throttle.record(len(records))
                    self._changed[followed.key] = followed
                case UpToDate():
                    pass
                case AskRange():
                    self._pause(followed)
                    out_of_range.append(followed)
                    return
                case Outdated():
                    self._ask_anew(followed)
                    return
                case other:
                    self._obey(followed, other, now_ms)
                    return
            followed.backoff_s = 0.0
            followed.leader_high_watermark = result.high_watermark
            if partition.log.end_offset >= result.high_watermark:
                self._first_copies.pop(partition, None)
            log_start = partition.log.log_start_offset
            partition.follow_leader(result.high_watermark, result.log_start_offset)
            if partition.log.log_start_offset != log_start:
                self._changed[followed.key] = followed
        except KafkaError as error:
            self._back_off(followed, str(error.message or error))
        except Exception:
            logger.exception("%s: an answer of broker %d cannot be applied", partition, self.leader)
            self._back_off(followed, "its answer cannot be applied")

    def _ask_anew(self, followed: Followed) -> None:
        """An answer was outdated: the session holds an old request, or the metadata has another leader."""
        state = followed.partition.state
        if state is not None and (state.leader, state.leader_epoch) == (self.leader, followed.leader_epoch):
            self._changed[followed.key] = followed
        else:
            self._pause(followed)  # until `Fetchers.follow` or `leave`

    def _obey(self, followed: Followed, verdict: Verdict, now_ms: int) -> None:
        """Do what has to be done before the partition is asked for again."""
        partition = followed.partition
        match verdict:
            case Truncate(offset):
                self._pause(followed)
                try:
                    self._truncations.truncate(partition, offset)
                except OSError as error:
                    self._back_off(followed, f"its log cannot be truncated: {describe_error(error)}")
                    return
            case StartNew(offset):
                self._pause(followed)
                try:
                    self._truncations.start_new(partition, offset, now_ms)
                except OSError as error:
                    self._back_off(followed, f"its log cannot begin anew: {describe_error(error)}")
                    return
                followed.must_start_new = False
                self._first_copies[partition] = self.leader
            case Retry(code, reason):
                self._back_off(followed, f"{name_error(code)} {reason}".rstrip())
                return
            case _:
                raise AssertionError(f"{verdict} needs nothing to be done")
        running = self._truncations.find(partition)
        if running is not None:
            running.add_done_callback(lambda _: self._resume(followed))

    async def _ask_ranges(self, out_of_range: Sequence[Followed]) -> None:
        """After OFFSET_OUT_OF_RANGE: ask the leader where its logs begin and end, and act on it."""
        try:
            asked = [(followed.partition, followed.leader_epoch) for followed in out_of_range]
            ranges = await ask_ranges(self._peers, self.leader, self._broker_id, asked, self._settings().timeout_s)
        except (PeerUnavailable, KafkaError) as error:
            self._back_off_all(out_of_range, str(error))
            return
        now_ms = self._clock.now_ms()
        for followed in out_of_range:
            if self._followed.get(followed.key) is not followed:
                continue
            partition = followed.partition
            found = ranges[partition]
            if isinstance(found, int):
                self._obey(followed, Retry(found), now_ms)
            elif followed.must_start_new:
                self._obey(followed, StartNew(found[0]), now_ms)
            else:
                self._obey(followed, judge_range(partition.log, followed.leader_epoch, *found), now_ms)

    def _back_off_all(self, partitions: Iterable[Followed], reason: str) -> None:
        for followed in partitions:
            if self._followed.get(followed.key) is followed:
                self._back_off(followed, reason)

    # Throttling

    def _is_throttled(self, partition: Partition) -> bool:
        state = partition.state
        listed = partition.config.follower_replication_throttled_replicas
        return (
            bool(listed)
            and is_throttled(listed, partition.index, self._broker_id)
            and (state is None or self._broker_id not in state.isr)
        )

    def _hold_throttled(self) -> None:
        """Take throttled partitions out of the session while the rate is exceeded."""
        if self._throttle.is_unlimited and not self._throttled:
            return
        wait_s = self._throttle.wait_s()
        if wait_s <= 0:
            return
        for key, followed in list(self._followed.items()):
            if not followed.is_paused and self._is_throttled(followed.partition):
                self._pause(followed)
                self._throttled[key] = followed
        if self._throttled and self._throttle_timer is None:
            self._throttle_timer = self._loop.call_later(wait_s, self._release_throttled)

    def _release_throttled(self) -> None:
        self._throttle_timer = None
        throttled, self._throttled = self._throttled, {}
        for followed in throttled.values():
            self._resume(followed)

    # The connection

    def _connect(self) -> None:
        if not self._is_connecting:
            self._is_connecting = True
            self._start(self._keep_connecting())

    async def _keep_connecting(self) -> None:
        try:
            while True:
                if self._backoff_s:
                    await asyncio.sleep(self._backoff_s)
                try:
                    limit = self._settings().answer_bytes_max
                    connection = await self._peers.open(self.leader, answer_bytes_max=limit)
                except PeerUnavailable as error:
                    log = logger.debug if self._backoff_s else logger.info
                    log("nothing can be copied from broker %d: %s", self.leader, error)
                    backoff_s_max = max(self._settings().backoff_s, FIRST_RECONNECT_S)
                    self._backoff_s = min(max(2 * self._backoff_s, FIRST_RECONNECT_S), backoff_s_max)
                else:
                    break
        finally:
            self._is_connecting = False
        if self._is_closed:
            connection.close()
            return
        self._connection = connection
        self._backoff_s = max(self._backoff_s, FIRST_RECONNECT_S)
        connection.on_lost = self._handle_loss
        self._send()

    def _handle_loss(self, reason: str) -> None:
        """The connection is gone. Its answers would be outdated; the next one begins with a new session."""
        connection, self._connection = self._connection, None
        if connection is None or self._is_closed:
            return
        connection.close(reason)
        logger.info("lost the connection to leader %d: %s", self.leader, reason)
        self._in_flight.clear()
        self._end_session()
        self._connect()

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine, name=f"fetcher {self.number} of leader {self.leader}")
        self._tasks[task] = None
        task.add_done_callback(self._handle_end)

    def _handle_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            logger.error("copying from broker %d failed", self.leader, exc_info=task.exception())


def name_error(code: int) -> str:
    """The name of an error code; a code that this broker does not know keeps its number."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error code {code}"
