"""Fetch: read record batches, waiting for them if there are none yet.

Versions: 5 log start offset; 7 sessions (KIP-227); 9 leader epoch (KIP-320); 11 rack and preferred replica (KIP-392);
12 flexible, diverging epoch; 13 topics by id (KIP-516); 15 replica state; 16 new leader (KIP-951); 17, 18 followers.
Answers hold whole batches as they are on disk, as slices of files. An offset in the middle of a batch returns that
batch: the client skips what it did not ask for. The first batch is returned whole even if it is above the limits.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.replication.fetch_sessions import FetchSession, PartitionKey
from ottla.replication.partition import Partition
from ottla.wire import fetch
from ottla.wire.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionResult,
    TopicResult,
)

VERSIONS = fetch.VERSIONS

READ_COMMITTED = 1


def handle(node: Node, call: Call[FetchRequest]) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
    request = call.body
    asked = {
        (topic.topic_id, topic.name, partition.index): partition
        for topic in request.topics
        for partition in topic.partitions
    }
    now = asyncio.get_running_loop().time()
    try:
        session, wanted = node.fetch_sessions.open(request, call.version, now, asked)
    except KafkaError as error:
        node.request_meters.told(call.api_key, error.code)
        return FetchResponse(error_code=error.code)
    reading = Reading(node, call, wanted)
    reading.read_all()
    if reading.is_enough():
        return answer(reading, session, call)
    return wait(reading, session, call)


async def wait(reading: "Reading", session: FetchSession | None, call: Call[FetchRequest]) -> FetchResponse:
    """The long poll: look again whenever a partition has something new, until there is enough or time is up."""
    wake = asyncio.Event()
    over = False

    def end() -> None:
        nonlocal over
        over = True  # not read off the clock: a timer of uvloop may fire a little before its time
        wake.set()

    timer = asyncio.get_running_loop().call_later(call.body.max_wait_ms / 1000, end)
    reading.watch(wake)
    try:
        while not (reading.is_enough() or over):
            await wake.wait()
            wake.clear()
            reading.read_moved()
    finally:
        timer.cancel()
        reading.unwatch()
    return answer(reading, session, call)


def answer(reading: "Reading", session: FetchSession | None, call: Call[FetchRequest]) -> FetchResponse:
    """All results; or for a session past its first answer only those with something new to say."""
    first = session is None or call.body.session_epoch == 0
    topics: dict[tuple[bytes, str], TopicResult] = {}
    with_records = []
    for key, result in reading.results.items():
        has_records = result.records is not None
        if session is not None:
            # Whoever knows the session's id may have changed it while this fetch waited: then the partition is news.
            known = session.partitions.get(key)
            news = known is None or known.must_answer(result, has_records)
            if not (news or first):
                continue
        if has_records:
            with_records.append(key)
            reading.count_sent(key)
        topic_id, name, _ = key
        topic = topics.get((topic_id, name))
        if topic is None:
            topics[topic_id, name] = TopicResult(name, topic_id, [result])
        else:
            topic.partitions.append(result)
    if session is not None:
        session.answered_last(with_records)
    return FetchResponse(session_id=session.id if session is not None else 0, topics=list(topics.values()))


class Reading:
    """One fetch in progress: the partitions it wants, and what was found in each so far."""

    __slots__ = (
        "_api_key",
        "_failed",
        "_follower",
        "_max_bytes",
        "_moved",
        "_partitions",
        "_replicas",
        "_request",
        "_request_meters",
        "_sizes",
        "_wanted",
        "_watchers",
        "results",
        "size",
    )

    _watchers: list[tuple[Partition, Any]]
    _moved: dict[PartitionKey, None]

    def __init__(self, node: Node, call: Call[FetchRequest], wanted: Mapping[PartitionKey, FetchPartition]) -> None:
        request = call.body
        self._replicas = node.replicas
        self._request_meters = node.request_meters
        self._api_key = call.api_key
        self._request = request
        self._wanted = wanted
        self._follower = request.replica_id >= 0
        self._max_bytes = min(request.max_bytes, node.config.fetch_max_bytes)
        self._partitions: dict[PartitionKey, Partition] = {}
        self._sizes: dict[PartitionKey, int] = {}
        self._failed = False
        self.results: dict[PartitionKey, PartitionResult] = {}
        self.size = 0

    def is_enough(self) -> bool:
        return (
            self._failed
            or self.size >= self._request.min_bytes
            or self._request.max_wait_ms <= 0
            or not self._partitions
        )

    def read_all(self) -> None:
        for key, asked in self._wanted.items():
            self._read(key, asked)

    def read_moved(self) -> None:
        moved, self._moved = self._moved, {}
        for key in moved:
            self.size -= self._sizes.pop(key, 0)
            self._read(key, self._wanted[key])

    def _read(self, key: PartitionKey, asked: FetchPartition) -> None:
        try:
            result = self._read_partition(key, asked)
        except KafkaError as error:
            result = PartitionResult(asked.index, error.code)
            # A partition that was never here does not cut the wait for the others short, as in Kafka: a client that
            # keeps asking for it would otherwise ask without a pause.
            self._failed = self._failed or key in self._partitions
            self._count_failure(key, error.code)
        self.results[key] = result

    def _read_partition(self, key: PartitionKey, asked: FetchPartition) -> PartitionResult:
        partition = self._find(key)
        partition.require_leader(asked.current_leader_epoch)
        if asked.last_fetched_epoch >= 0 and (diverging := self._diverging(partition, asked)) is not None:
            self._failed = True  # not an error, but nothing to wait for either
            return PartitionResult(
                asked.index, high_watermark=partition.high_watermark.value, diverging_epoch=diverging
            )
        found = partition.read(
            asked.fetch_offset,
            max(min(asked.max_bytes, self._max_bytes - self.size), 0),
            read_committed=self._request.isolation_level == READ_COMMITTED,
            follower=self._follower,
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

    def _find(self, key: PartitionKey) -> Partition:
        topic_id, name, index = key
        partition = self._replicas.get(name, index) if name else self._replicas.get_by_id(topic_id, index)
        self._partitions[key] = partition
        partition.meter.fetches += 1
        return partition

    def _count_failure(self, key: PartitionKey, code: int) -> None:
        partition = self._partitions.get(key)
        meter = partition.meter if partition is not None else self._replicas.meters.elsewhere
        meter.failed_fetches += 1
        self._request_meters.told(self._api_key, code)

    def count_sent(self, key: PartitionKey) -> None:
        """The records of this partition go to the client: a follower's copy is not what a topic gave out."""
        if not self._follower:
            self._partitions[key].meter.bytes_out += self._sizes[key]

    def _diverging(self, partition: Partition, asked: FetchPartition) -> EpochEndOffset | None:
        """Where the client's log leaves ours, if the last epoch it says it fetched ended earlier here (KIP-595)."""
        epoch, end_offset = partition.epoch_end(asked.last_fetched_epoch)
        if epoch < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < asked.last_fetched_epoch or end_offset < asked.fetch_offset:
            return EpochEndOffset(epoch, end_offset)
        return None

    def watch(self, wake: asyncio.Event) -> None:
        """Have `wake` set whenever a partition has moved, until `unwatch`; at once if one has since it was read.

        The wait begins in a later turn of the loop than the reading, and a produce may come in between.
        """
        self._watchers = []
        self._moved = {}
        for key, partition in self._partitions.items():

            def moved(key: PartitionKey = key) -> None:
                self._moved[key] = None
                wake.set()

            partition.high_watermark.watch(moved)
            self._watchers.append((partition, moved))
            if partition.high_watermark.value != self.results[key].high_watermark or not partition.is_leader:
                moved()

    def unwatch(self) -> None:
        for partition, moved in self._watchers:
            partition.high_watermark.unwatch(moved)


def refusal(call: Call[FetchRequest], code: ErrorCode, message: str) -> FetchResponse:
    """Before version 7 there is no code for the whole request: every partition carries it."""
    if call.version >= 7:
        return FetchResponse(error_code=code)
    return FetchResponse(
        topics=[
            TopicResult(topic.name, topic.topic_id, [PartitionResult(asked.index, code) for asked in topic.partitions])
            for topic in call.body.topics
        ]
    )


CODEC = (fetch.read_request, fetch.write_response, refusal)
