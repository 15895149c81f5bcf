"""One connection to one leader, over which partitions are copied: when a request is sent, and what an answer leads to.

One request is in flight. Its answer is applied, and the next request is sent in the same iteration of the event loop:
it tells the leader that the records have arrived, and producers wait for that. If partitions are added or come back
while the leader waits for records, a second request is sent after a moment; the leader then answers the first at once.

A partition leaves the session while its log is truncated, while its leader is asked where its log begins and ends,
after an error, and while it is throttled. `leader_session.py` makes the requests, `following.py` decides what an answer
means.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from ottla.errors import ErrorCode, KafkaError
from ottla.replication.followed import Followed
from ottla.replication.following import (
    Append,
    AskRange,
    BeginWithin,
    Outdated,
    Retry,
    StartAnew,
    Truncate,
    UpToDate,
    Verdict,
    judge,
    judge_range,
    name_error,
)
from ottla.replication.leader_session import FetchSettings, LeaderSession
from ottla.replication.partition import Partition
from ottla.replication.peers import Peers, PeerUnavailable
from ottla.replication.ranges import Range, ask_ranges
from ottla.replication.throttles import ReplicationThrottle
from ottla.replication.truncation import Truncations
from ottla.storage.disk_errors import describe_error
from ottla.system.clock import Clock
from ottla.topic_partition import TopicIdPartition
from ottla.wire.fetch import FetchResponse, PartitionResult
from ottla.wire.peer import PeerConnection
from ottla.wire.primitives import Bytes

logger = logging.getLogger(__name__)

INTERRUPT_S = 0.02
"""A request that is unanswered for this long waits for records at the leader."""
IN_FLIGHT_MAX = 2
FIRST_RECONNECT_S = 0.05

_SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)

_PASSING = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
"""Either the leader or the follower does not know of an election yet. There may be thousands of them at once."""


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
    ) -> None:
        self.leader = leader
        self.number = number
        self.bytes_in = 0
        self.reassignment_bytes_in = 0
        """Bytes of records for replicas that a reassignment adds."""
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._peers = peers
        self._clock = clock
        self._settings = settings
        self._throttle = throttle
        self._truncations = truncations
        self._loop = asyncio.get_running_loop()
        self._session = LeaderSession()
        self._counts_throttled = False
        """Whether there is a limit for throttled partitions, as of the last answer."""
        self._throttled: dict[TopicIdPartition, Followed] = {}
        """Partitions that are paused by the throttle."""
        self._connection: PeerConnection | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._is_connecting = False
        self._backoff_s = 0.0
        self._in_flight: deque[int] = deque()
        self._sent_at = 0.0
        self._flushes: dict[asyncio.Future[None], None] = {}
        """Records that must be on disk before the next request."""
        self._wake_handle: asyncio.Handle | None = None
        self._throttle_timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def is_empty(self) -> bool:
        return not self._session.partitions

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    # Partitions

    def add(self, followed: Followed) -> None:
        self._session.partitions[followed.key] = followed
        running = self._truncations.find(followed.partition)
        if running is not None:  # began under an earlier leader
            followed.is_paused = True
            running.add_done_callback(lambda _: self._resume(followed))
            return
        self._session.changed[followed.key] = followed
        self._wake()

    def remove(self, followed: Followed) -> None:
        if self._session.has(followed):
            self._pause(followed)
            del self._session.partitions[followed.key]

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
        followed.pause()
        self._session.withdraw(followed)
        self._throttled.pop(followed.key, None)

    def _resume(self, followed: Followed) -> None:
        if self._session.has(followed) and not self._is_closed:
            followed.timer = None
            followed.is_paused = False
            self._session.changed[followed.key] = followed
            self._wake()

    def _back_off(self, followed: Followed, reason: str, *, is_passing: bool = False) -> None:
        """`is_passing`: the error ends by itself in a moment. The log tells of it only if it does not."""
        backoff_s_max = self._settings().backoff_s
        followed.lengthen_backoff(backoff_s_max)
        is_news = not followed.is_told and (not is_passing or followed.backoff_s >= backoff_s_max)
        followed.is_told |= is_news
        log = logger.info if is_news else logger.debug
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
        elif not self._session.changed or self._session.epoch == 0 or len(self._in_flight) == IN_FLIGHT_MAX:
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
        session = self._session
        if session.epoch == 0:
            session.name_all()
        self._wait_until_durable()
        if self._flushes or not (session.changed or session.forgotten or session.is_active()):
            return
        settings = self._settings()
        request = session.make_request(self._broker_id, self._broker_epoch(), settings)
        number = session.request_number
        self._in_flight.append(number)
        self._sent_at = self._loop.time()
        timeout_s = settings.timeout_s + request.max_wait_ms / 1000
        try:
            answer = connection.send(request, timeout_s)
        except (PeerUnavailable, KafkaError) as error:
            self._handle_loss(str(error))
            return
        answer.add_done_callback(lambda future: self._handle_answer(connection, number, future))

    def _wait_until_durable(self) -> None:
        """With flush.messages=1 a request would say that records are on disk which are not yet."""
        for followed in list(self._session.changed.values()):
            flush = followed.partition.wait_until_durable()
            if flush is not None:
                self._flushes[flush] = None
                flush.add_done_callback(partial(self._handle_flush, followed))

    def _handle_flush(self, followed: Followed, future: asyncio.Future[None]) -> None:
        self._flushes.pop(future, None)
        error = None if future.cancelled() else future.exception()
        if error is not None and self._session.has(followed):
            self._back_off(followed, str(error))
        if not self._flushes and not self._in_flight:
            self._send()

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
        if number >= self._session.valid_from:
            self._apply(number, response)
        if not self._in_flight or (self._session.changed and len(self._in_flight) < IN_FLIGHT_MAX):
            self._send()

    def _apply(self, number: int, response: FetchResponse) -> None:
        if response.error_code:
            self._handle_session_error(response.error_code)
            return
        session = self._session
        if session.epoch == 0:
            session.begin(response.session_id)
        now_ms = self._clock.now_ms()
        self._counts_throttled = not self._throttle.is_unlimited
        out_of_range: list[Followed] = []
        for topic in response.topics:
            topic_id = topic.topic_id
            for result in topic.partitions:
                followed = session.partitions.get((topic_id, result.index))
                if followed is not None and followed.asked is not None and followed.asked_in <= number:
                    self._apply_result(followed, result, now_ms, out_of_range)
        if out_of_range:
            self._start(self._ask_ranges(out_of_range))

    def _handle_session_error(self, error_code: int) -> None:
        if error_code not in _SESSION_ERRORS:
            name = name_error(error_code)
            for followed in list(self._session.partitions.values()):
                if not followed.is_paused:
                    self._back_off(followed, f"the whole request failed with {name}")
        self._session.end()

    def _apply_result(
        self, followed: Followed, result: PartitionResult, now_ms: int, out_of_range: list[Followed]
    ) -> None:
        assert followed.asked is not None
        partition = followed.partition
        try:
            match judge(partition, self.leader, followed.asked, result):
                case Append(records):
                    self._append(followed, records, now_ms)
                    self._session.changed[followed.key] = followed
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
            followed.note_success()
            followed.leader_high_watermark = result.high_watermark
            partition.follow_leader(result.high_watermark, result.log_start_offset)
            if partition.log.log_start_offset != followed.asked.log_start_offset:
                # Retention here may have moved it before the leader's did; DeleteRecords waits until the leader knows.
                self._session.changed[followed.key] = followed
        except KafkaError as error:
            self._back_off(followed, str(error.message or error))
        except Exception:
            logger.exception("%s: an answer of broker %d cannot be applied", partition, self.leader)
            self._back_off(followed, "its answer cannot be applied")

    def _append(self, followed: Followed, records: Bytes, now_ms: int) -> None:
        followed.partition.append_as_follower(records, now_ms)
        self.bytes_in += len(records)
        state = followed.partition.state
        if state is not None and self._broker_id in state.adding:
            self.reassignment_bytes_in += len(records)
        if self._counts_throttled and followed.is_throttled(self._broker_id):
            self._throttle.record(len(records))

    def _append_first(self, followed: Followed, first: BeginWithin, now_ms: int) -> None:
        """The log begins where the leader's first batch does: append that, and serve nothing below the log start."""
        partition = followed.partition
        if self._is_closed or not self._session.has(followed):
            return
        try:
            if partition.log.end_offset == first.offset:
                self._append(followed, first.records, now_ms)
                partition.follow_leader(first.log_start_offset, first.log_start_offset)
        except KafkaError as error:
            self._back_off(followed, str(error.message or error))
        except Exception:
            logger.exception("%s: the first records of broker %d cannot be appended", partition, self.leader)
            self._back_off(followed, "its first records cannot be appended")
        else:
            self._resume(followed)

    def _ask_anew(self, followed: Followed) -> None:
        """An answer was outdated: the session holds an old request, or the metadata has another leader."""
        state = followed.partition.state
        if state is not None and (state.leader, state.leader_epoch) == (self.leader, followed.leader_epoch):
            self._session.changed[followed.key] = followed
        else:
            self._pause(followed)  # until `Fetchers.follow` or `leave`

    def _obey(self, followed: Followed, verdict: Verdict, now_ms: int) -> None:
        """Do what has to be done before the partition is asked for again."""
        partition, truncations = followed.partition, self._truncations
        resume = partial(self._resume, followed)
        match verdict:
            case Truncate(offset):
                self._change_log(followed, lambda: truncations.truncate(partition, offset), resume)
            case StartAnew(offset):
                self._change_log(followed, lambda: truncations.start_anew(partition, offset, now_ms), resume)
            case BeginWithin(offset):
                append_first = partial(self._append_first, followed, verdict, now_ms)
                self._change_log(followed, lambda: truncations.start_anew(partition, offset, now_ms), append_first)
            case Retry(code, reason):
                self._back_off(followed, f"{name_error(code)} {reason}".rstrip(), is_passing=code in _PASSING)
            case _:
                raise AssertionError(f"{verdict} needs nothing to be done")

    def _change_log(self, followed: Followed, begin: Callable[[], None], go_on: Callable[[], None]) -> None:
        """Begin a truncation, and go on when it is over."""
        self._pause(followed)
        try:
            begin()
        except OSError as error:
            self._back_off(followed, f"its log cannot be truncated: {describe_error(error)}")
            return
        running = self._truncations.find(followed.partition)
        if running is not None:
            running.add_done_callback(lambda _: go_on())

    async def _ask_ranges(self, out_of_range: Sequence[Followed]) -> None:
        """After OFFSET_OUT_OF_RANGE: ask the leader where its logs begin and end, and act on it."""
        asked = [(followed.partition, followed.leader_epoch) for followed in out_of_range]
        ranges: dict[Partition, Range | int] = {}
        reason = ""
        try:
            ranges = await ask_ranges(self._peers, self.leader, self._broker_id, asked, self._settings().timeout_s)
        except (PeerUnavailable, KafkaError) as error:
            reason = str(error)
        except Exception:
            logger.exception("broker %d cannot be asked where its logs begin and end", self.leader)
            reason = "it cannot be asked where its log begins and ends"
        now_ms = self._clock.now_ms()
        for followed in out_of_range:
            if not self._session.has(followed):
                continue
            if reason:
                self._back_off(followed, reason)
            else:
                self._obey_range(followed, ranges[followed.partition], now_ms)

    def _obey_range(self, followed: Followed, found: Range | int, now_ms: int) -> None:
        """Act on the range of the leader's log, or on the error code that the leader answered."""
        log = followed.partition.log
        try:
            verdict = Retry(found) if isinstance(found, int) else judge_range(log, followed.leader_epoch, *found)
            self._obey(followed, verdict, now_ms)
        except Exception:
            logger.exception("%s: the range of broker %d's log cannot be applied", followed.partition, self.leader)
            self._back_off(followed, "the range of its log cannot be applied")

    # Throttling

    def _hold_throttled(self) -> None:
        """Take throttled partitions out of the session while the rate is exceeded."""
        if self._throttle.is_unlimited and not self._throttled:
            return
        wait_s = self._throttle.wait_s()
        if wait_s <= 0:
            return
        for key, followed in list(self._session.partitions.items()):
            if not followed.is_paused and followed.is_throttled(self._broker_id):
                self._pause(followed)
                self._throttled[key] = followed
        if self._throttled and self._throttle_timer is None:
            self._throttle_timer = self._loop.call_later(wait_s, self._release_throttled)

    def _release_throttled(self) -> None:
        """Resume the partitions that may go on: all of them, or those that joined the ISR or lost their limit."""
        wait_s = self._throttle.wait_s()
        throttled, self._throttled = self._throttled, {}
        for key, followed in throttled.items():
            if wait_s > 0 and followed.is_throttled(self._broker_id):
                self._throttled[key] = followed
            else:
                self._resume(followed)
        self._throttle_timer = None
        if self._throttled:
            self._throttle_timer = self._loop.call_later(wait_s, self._release_throttled)

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
        self._session.end()
        self._connect()

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine, name=f"fetcher {self.number} of leader {self.leader}")
        self._tasks[task] = None
        task.add_done_callback(self._handle_end)

    def _handle_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            logger.error("copying from broker %d failed", self.leader, exc_info=task.exception())
