"""Fetch: read record batches; wait for them if there are none yet (long poll).

Versions: 5 log start offset; 7 sessions (KIP-227); 9 leader epoch (KIP-320); 11 rack and preferred replica (KIP-392);
12 flexible, diverging epoch; 13 topics by id (KIP-516); 15 replica state; 16 new leader (KIP-951); 17, 18 followers.
An answer holds whole batches as they are on disk, as slices of the segment files. A fetch from an offset in the middle
of a batch returns that batch, and the client skips the records before the offset. The first batch is returned whole
even if it is larger than the limits. A consumer reads from the leader, or from a follower to which the leader sends it
(`replication.nearest`). Followers are answered by `replication.follower_fetch`.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.changes import NO_LEADER
from ottla.config.broker_table import RACK_AWARE_SELECTOR
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import may, require
from ottla.handlers.new_leader import find_new_leader
from ottla.replication.fetch_sessions import FetchSession, RequestedPartition
from ottla.replication.follower_fetch import FollowerFetch, find_divergence
from ottla.replication.nearest import find_nearest
from ottla.replication.partition import Partition
from ottla.security import rights
from ottla.wire import fetch
from ottla.wire.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionResult,
    TopicResult,
)
from ottla.wire.primitives import NodeEndpoint

REQUIRES = rights.parts(rights.READ_TOPIC, rights.CLUSTER_ACTION)

READ_COMMITTED = 1
LEADER_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

DO_NOT_END_WAIT = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
"""Errors of partitions that do not exist, or that the client may not read. As in Kafka, they do not end the wait for
other partitions: a client that keeps asking for one of them would otherwise send fetches without a pause."""


def handle(
    node: Node, call: Call[FetchRequest]
) -> FetchResponse | Coroutine[Any, Any, FetchResponse] | asyncio.Future[FetchResponse]:
    request = call.body
    asked = {
        (topic.topic_id, topic.name, partition.index): partition
        for topic in request.topics
        for partition in topic.partitions
    }
    now = asyncio.get_running_loop().time()
    if request.replica_id >= 0:
        if node.authorizer is not None:
            return handle_authorized_follower(node, call, asked, now)
        return handle_follower(node, call, asked, now)
    try:
        session, wanted = node.fetch_sessions.open(request, call.version, now, asked, call.client.principal)
    except KafkaError as error:
        node.request_meters.count_error(call.api_key, error.code)
        return FetchResponse(error_code=error.code)
    fetching = FetchInProgress(node, call, wanted)
    if node.quotas.fetch.is_active:
        fetching.limit_size(node.quotas.fetch.find_most(call.client.principal.name, call.client_id))
    fetching.read_all()
    if fetching.is_enough():
        return build_response(fetching, session, call)
    return wait(fetching, session, call)


def handle_follower(
    node: Node, call: Call[FetchRequest], asked: Mapping[RequestedPartition, FetchPartition], now: float
) -> FetchResponse | asyncio.Future[FetchResponse]:
    try:
        session = node.fetch_sessions.open_follower(call.body, call.version, now, asked)
    except KafkaError as error:
        node.request_meters.count_error(call.api_key, error.code)
        return FetchResponse(error_code=error.code)
    throttle, max_bytes = node.replication.leader_throttle, node.config.fetch_max_bytes
    fetching = FollowerFetch(node.replicas, node.request_meters, session, call.body, max_bytes, throttle)
    fetching.read_changed(now)
    return fetching.build_response() if fetching.is_enough() else fetching.wait()


def handle_authorized_follower(
    node: Node, call: Call[FetchRequest], asked: Mapping[RequestedPartition, FetchPartition], now: float
) -> FetchResponse | asyncio.Future[FetchResponse]:
    """A follower reads every topic, past the high watermark, so only brokers may fetch as one (CVE-2018-1288)."""
    if not may(node, call, rights.CLUSTER_ACTION):
        return refuse_follower(node, call)
    answer = handle_follower(node, call, asked, now)
    if isinstance(answer, FetchResponse):
        return answer
    checked: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()

    def check_again(done: asyncio.Future[FetchResponse]) -> None:
        if checked.done():  # the connection is closed
            return
        if done.cancelled():
            checked.cancel()
        elif (error := done.exception()) is not None:
            checked.set_exception(error)
        else:
            checked.set_result(done.result() if may(node, call, rights.CLUSTER_ACTION) else refuse_follower(node, call))

    answer.add_done_callback(check_again)
    return checked


def refuse_follower(node: Node, call: Call[FetchRequest]) -> FetchResponse:
    if call.body.session_id:
        node.request_meters.count_error(call.api_key, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    node.request_meters.count_error(call.api_key, code)
    return FetchResponse(
        topics=[
            TopicResult(topic.name, topic.topic_id, [PartitionResult(each.index, code) for each in topic.partitions])
            for topic in call.body.topics
        ]
    )


async def wait(fetching: "FetchInProgress", session: FetchSession | None, call: Call[FetchRequest]) -> FetchResponse:
    """The long poll: read again whenever a high watermark moves, until there are min.bytes or max.wait.ms is over."""
    wake = asyncio.Event()
    over = False

    def end() -> None:
        nonlocal over
        over = True  # comparing clock times would not do: a timer of uvloop may fire a little early
        wake.set()

    timer = asyncio.get_running_loop().call_later(call.body.max_wait_ms / 1000, end)
    fetching.watch(wake)
    try:
        while not (fetching.is_enough() or over):
            await wake.wait()
            wake.clear()
            fetching.read_moved()
    finally:
        timer.cancel()
        fetching.unwatch()
    fetching.check_again()
    return build_response(fetching, session, call)


def build_response(
    fetching: "FetchInProgress", session: FetchSession | None, call: Call[FetchRequest]
) -> FetchResponse:
    """All results; in a session, after its first answer, only those that tell the client something new."""
    if fetching.quota.is_active and (throttled := throttle(fetching, session, call)) is not None:
        return throttled
    first = session is None or call.body.session_epoch == 0
    topics: dict[tuple[bytes, str], TopicResult] = {}
    with_records = []
    for key, result in fetching.results.items():
        has_records = result.records is not None
        if session is not None:
            # Another request may have changed the session while this one waited: then the partition is new.
            known = session.partitions.get(key)
            must_answer = known is None or known.must_answer(result, has_records)
            if not (must_answer or first):
                continue
        if has_records:
            with_records.append(key)
            fetching.count_sent(key)
        topic_id, name, _ = key
        topic = topics.get((topic_id, name))
        if topic is None:
            topics[topic_id, name] = TopicResult(name, topic_id, [result])
        else:
            topic.partitions.append(result)
    if session is not None:
        session.move_to_end(with_records)
    response = FetchResponse(session_id=session.id if session is not None else 0, topics=list(topics.values()))
    if fetching.endpoints:
        response.node_endpoints = fetching.endpoints
    return response


def throttle(
    fetching: "FetchInProgress", session: FetchSession | None, call: Call[FetchRequest]
) -> FetchResponse | None:
    """Count the records that are about to be sent. A client above its quota gets an empty answer, as in Kafka.

    The client knows nothing of a session that begins with an empty answer, so it begins another one.
    """
    throttle_ms = fetching.quota.record_if_allowed(call.client.principal.name, call.client_id, fetching.size)
    if not throttle_ms:
        return None
    call.client.mute(throttle_ms)
    known = session is not None and call.body.session_epoch != 0
    return FetchResponse(throttle_ms, session_id=session.id if session is not None and known else 0)


class FetchInProgress:
    """The partitions that one fetch request wants, and what was read from each so far."""

    __slots__ = (
        "_acls",
        "_call",
        "_failed",
        "_max_bytes",
        "_min_bytes",
        "_moved",
        "_node",
        "_partitions",
        "_rack",
        "_replicas",
        "_request",
        "_sizes",
        "_wanted",
        "_watchers",
        "endpoints",
        "quota",
        "results",
        "size",
    )

    _watchers: list[tuple[Partition, Any]]
    _moved: dict[RequestedPartition, None]

    def __init__(
        self, node: Node, call: Call[FetchRequest], wanted: Mapping[RequestedPartition, FetchPartition]
    ) -> None:
        request = call.body
        self._node = node
        self._call = call
        self._acls = node.authorizer.acls if node.authorizer is not None else None
        self._replicas = node.replicas
        self._request = request
        self._wanted = wanted
        self._max_bytes = min(request.max_bytes, node.config.fetch_max_bytes)
        self._min_bytes = request.min_bytes
        self._rack = request.rack_id
        """The client's rack, if it may be sent to a follower there."""
        if self._rack and node.config.replica_selector_class != RACK_AWARE_SELECTOR:
            self._rack = ""
        self._partitions: dict[RequestedPartition, Partition] = {}
        self._sizes: dict[RequestedPartition, int] = {}
        self._failed = False
        self.results: dict[RequestedPartition, PartitionResult] = {}
        self.endpoints: tuple[NodeEndpoint, ...] = ()
        """Addresses of the brokers to which the answer sends the client."""
        self.size = 0
        self.quota = node.quotas.fetch

    def limit_size(self, most: int) -> None:
        """Send no more than `most` bytes, or the client would be throttled for this answer alone."""
        self._max_bytes = min(self._max_bytes, most)
        self._min_bytes = min(self._min_bytes, self._max_bytes)

    def is_enough(self) -> bool:
        return self._failed or self.size >= self._min_bytes or self._request.max_wait_ms <= 0 or not self._partitions

    def read_all(self) -> None:
        for key, asked in self._wanted.items():
            self._read(key, asked)

    def read_moved(self) -> None:
        moved, self._moved = self._moved, {}
        for key in moved:
            self.size -= self._sizes.pop(key, 0)
            self._read(key, self._wanted[key])

    def _read(self, key: RequestedPartition, asked: FetchPartition) -> None:
        try:
            result = self._read_partition(key, asked)
        except KafkaError as error:
            result = PartitionResult(asked.index, error.code)
            # A partition that was here when the wait began, and is unknown now, ends it.
            self._failed = self._failed or key in self._partitions or error.code not in DO_NOT_END_WAIT
            self._count_failure(key, error.code)
            if error.code in LEADER_MOVED and self._call.version >= fetch.ENDPOINTS_FROM:
                self._name_leader(key, result)
        self.results[key] = result

    def _name_leader(self, key: RequestedPartition, result: PartitionResult) -> None:
        topic_id, name, index = key
        leader = find_new_leader(self._node, self._call.client, name, topic_id, index)
        if leader is not None:
            result.current_leader = LeaderIdAndEpoch(leader.broker_id, leader.epoch)
            if leader.endpoint is not None and leader.endpoint not in self.endpoints:
                self.endpoints = (*self.endpoints, leader.endpoint)

    def _read_partition(self, key: RequestedPartition, asked: FetchPartition) -> PartitionResult:
        partition = self._find(key)
        state = partition.state
        if state is not None and state.leader == partition.broker_id:
            if asked.current_leader_epoch >= 0:
                partition.require_epoch(asked.current_leader_epoch)
            if self._rack and (nearest := self._find_nearest(partition, asked)) is not None:
                return self._send_to(nearest, partition, asked)
        else:
            if state is not None:
                partition.require_epoch(asked.current_leader_epoch)
            # Only the leader can say that an offset does not exist: a client would begin anew somewhere else.
            if not self._may_read(partition) or asked.fetch_offset > partition.log.end_offset:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if asked.last_fetched_epoch >= 0 and (diverging := find_divergence(partition, asked)) is not None:
            self._failed = True  # not an error, but there is nothing to wait for
            return PartitionResult(
                asked.index, high_watermark=partition.high_watermark.value, diverging_epoch=diverging
            )
        found = partition.read(
            asked.fetch_offset,
            max(min(asked.max_bytes, self._max_bytes - self.size), 0),
            read_committed=self._request.isolation_level == READ_COMMITTED,
            at_least_one=self.size == 0,
        )
        if found.records is not None:
            self._sizes[key] = found.records.length
            self.size += found.records.length
        return PartitionResult(
            asked.index,
            0,
            found.high_watermark,
            found.last_stable_offset,
            found.log_start_offset,
            None if found.aborted is None else [AbortedTransaction(*aborted[:2]) for aborted in found.aborted],
            -1,
            found.records,
        )

    def _may_read(self, partition: Partition) -> bool:
        """Whether a client may read from this replica: from a follower, if it can be sent to one (KIP-392)."""
        state = partition.state
        return partition.is_leader or (
            state is not None and state.leader != NO_LEADER and self._call.version >= fetch.RACK_FROM
        )

    def _find_nearest(self, partition: Partition, asked: FetchPartition) -> int | None:
        if partition.in_sync is None:
            return None
        listener = self._call.client.listener
        return find_nearest(self._node.image, partition.in_sync, self._rack, listener, asked.fetch_offset)

    def _send_to(self, nearest: int, partition: Partition, asked: FetchPartition) -> PartitionResult:
        """Send the client to a follower. There is nothing to wait for."""
        self._failed = True
        return PartitionResult(
            asked.index,
            0,
            partition.high_watermark.value,
            partition.last_stable_offset,
            partition.log.log_start_offset,
            preferred_read_replica=nearest,
        )

    def check_again(self) -> None:
        """After a wait: the client gets nothing that it may no longer read, also if it was read before."""
        authorizer = self._node.authorizer
        if authorizer is None or authorizer.acls is self._acls:
            return
        for key, asked in self._wanted.items():
            try:
                self._require_right(key)
            except KafkaError as error:
                self.size -= self._sizes.pop(key, 0)
                self.results[key] = PartitionResult(asked.index, error.code)
                self._count_failure(key, error.code)

    def _require_right(self, key: RequestedPartition) -> None:
        topic_id, name, _ = key
        found = name or self._node.image.topic_names.get(topic_id)
        if found is not None:  # an id that no topic has is answered as unknown
            require(self._node, self._call, rights.READ_TOPIC, found)

    def _find(self, key: RequestedPartition) -> Partition:
        topic_id, name, index = key
        if self._acls is not None:
            self._require_right(key)
        partition = self._replicas.get(name, index) if name else self._replicas.get_by_id(topic_id, index)
        self._partitions[key] = partition
        partition.meter.fetches += 1
        return partition

    def _count_failure(self, key: RequestedPartition, code: int) -> None:
        partition = self._partitions.get(key)
        meter = partition.meter if partition is not None else self._replicas.meters.elsewhere
        meter.failed_fetches += 1
        self._node.request_meters.count_error(self._call.api_key, code)

    def count_sent(self, key: RequestedPartition) -> None:
        """Count the bytes that go to a consumer. What followers copy does not count as output of the topic."""
        self._partitions[key].meter.bytes_out += self._sizes[key]

    def watch(self, wake: asyncio.Event) -> None:
        """Set `wake` whenever a high watermark moves, until `unwatch`; at once if one moved since it was read.

        The wait begins in a later iteration of the event loop than the read, and a produce may happen in between.
        """
        self._watchers = []
        self._moved = {}
        for key, partition in self._partitions.items():

            def moved(key: RequestedPartition = key) -> None:
                self._moved[key] = None
                wake.set()

            partition.high_watermark.watch(moved)
            self._watchers.append((partition, moved))
            epoch = self._wanted[key].current_leader_epoch
            if (
                partition.high_watermark.value != self.results[key].high_watermark
                or not self._may_read(partition)
                or (epoch >= 0 and epoch != partition.leader_epoch)
            ):
                moved()

    def unwatch(self) -> None:
        for partition, moved in self._watchers:
            partition.high_watermark.unwatch(moved)


def build_error_response(call: Call[FetchRequest], code: ErrorCode, message: str) -> FetchResponse:
    """The answer to a request that failed as a whole. Before version 7 every partition carries the error code."""
    if call.version >= 7:
        return FetchResponse(error_code=code)
    return FetchResponse(
        topics=[
            TopicResult(topic.name, topic.topic_id, [PartitionResult(asked.index, code) for asked in topic.partitions])
            for topic in call.body.topics
        ]
    )


CODEC = (fetch.read_request, fetch.write_response, build_error_response)
