"""Asks other brokers where their partitions end and how old records are, for groups whose coordinator has no replica.

Only while somebody reads the metrics page. What a broker does not say, or is not allowed to say, is left out.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from ottla.errors import KafkaError
from ottla.records.batch import HEADER_SIZE, CorruptBatch, read_header
from ottla.topic_partition import TopicPartition
from ottla.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.peer import PeerRequest, PeerUnavailable

LATEST = -1
TIMEOUT_S = 5.0
"""How long to wait for the answer of a broker. Prometheus gives up after ten seconds."""

RECORDS_MAX = 100
"""Records whose age one broker is asked for, for one page."""

BYTES_MAX = 4 * 1024 * 1024
"""After so many bytes of answers no further record is asked for: a broker sends a whole batch for each."""


class Peers(Protocol):
    async def request(self, broker_id: int, message: PeerRequest, *, timeout_s: float) -> Any: ...


class PartitionOffset(NamedTuple):
    """An offset of a partition that another broker leads."""

    where: TopicPartition
    topic_id: bytes
    offset: int


async def ask_ends(peers: Peers, broker_id: int, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Ask the leader of these partitions for their high watermarks."""
    topics: dict[str, ListOffsetsTopic] = {}
    for topic, index in wanted:
        asked = topics.setdefault(topic, ListOffsetsTopic(name=topic))
        asked.partitions.append(ListOffsetsPartition(partition_index=index, timestamp=LATEST))
    request = ListOffsetsRequest(replica_id=-1, topics=list(topics.values()))
    try:
        answer = await peers.request(broker_id, request, timeout_s=TIMEOUT_S)
    except (PeerUnavailable, KafkaError):
        return {}
    return {
        TopicPartition(topic.name, each.partition_index): each.offset
        for topic in answer.topics
        for each in topic.partitions
        if not each.error_code and each.offset >= 0
    }


async def ask_times(
    peers: Peers, broker_id: int, wanted: list[PartitionOffset]
) -> dict[tuple[TopicPartition, int], int]:
    """Ask the leader when the records at these offsets were written, one after the other, by fetching each."""
    found: dict[tuple[TopicPartition, int], int] = {}
    received = 0
    for each in wanted[:RECORDS_MAX]:
        if received > BYTES_MAX:
            break
        partition = FetchPartition(each.where.partition, fetch_offset=each.offset, max_bytes=1)
        topic = FetchTopic(each.where.topic, each.topic_id, [partition])
        try:
            answer = await peers.request(broker_id, FetchRequest(max_bytes=1, topics=[topic]), timeout_s=TIMEOUT_S)
        except (PeerUnavailable, KafkaError):
            break
        for records in _list_records(answer):
            received += len(records)
            written_ms = _read_time(records)
            if written_ms is not None:
                found[each.where, each.offset] = written_ms
    return found


def _list_records(answer: Any) -> Iterator[bytes | bytearray | memoryview]:
    for topic in answer.topics:
        for each in topic.partitions:
            if not each.error_code and isinstance(each.records, bytes | bytearray | memoryview):
                yield each.records


def _read_time(records: bytes | bytearray | memoryview) -> int | None:
    """As `storage.timestamps.find_time_at` reads it; None also for a transaction marker."""
    if len(records) < HEADER_SIZE:
        return None
    try:
        header = read_header(records, 0)
    except CorruptBatch:
        return None
    timestamp = header.max_timestamp if header.log_append_time else header.base_timestamp
    return timestamp if timestamp >= 0 and not header.is_control else None
