"""The classes of Fetch requests and responses, and how a topic is named in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.storage.files import FileSlice
from ottla.wire.primitives import ZERO_UUID, Bytes, NodeEndpoint, Reader, Writer

VERSIONS = range(4, 19)
LOG_START_FROM = 5
SESSION_FROM = 7
LEADER_EPOCH_FROM = 9
RACK_FROM = 11
COMPACT_FROM = 12
TOPIC_ID_FROM = 13
REPLICA_STATE_FROM = 15
ENDPOINTS_FROM = 16
DIRECTORY_FROM = 17
HIGH_WATERMARK_FROM = 18

HIGH_WATERMARK_UNSUPPORTED = 2**63 - 1
"""The high watermark of a follower that does not send one."""

Part = Bytes | FileSlice
Records = Bytes | FileSlice | Sequence[FileSlice] | None


@dataclass(slots=True)
class FetchPartition:
    index: int
    current_leader_epoch: int = -1
    fetch_offset: int = 0
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    max_bytes: int = 0
    replica_directory_id: bytes = ZERO_UUID
    high_watermark: int = HIGH_WATERMARK_UNSUPPORTED


@dataclass(slots=True)
class FetchTopic:
    """A topic has a name below version 13, and an id from there on."""

    name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: list[FetchPartition] = field(default_factory=list)


class ForgottenTopic(NamedTuple):
    """Partitions that leave a fetch session."""

    name: str
    topic_id: bytes
    indexes: list[int]


@dataclass(slots=True)
class FetchRequest:
    replica_id: int = -1
    replica_epoch: int = -1
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2**31 - 1
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: list[FetchTopic] = field(default_factory=list)
    forgotten: list[ForgottenTopic] = field(default_factory=list)
    rack_id: str = ""
    cluster_id: str | None = None


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class EpochEndOffset(NamedTuple):
    epoch: int
    end_offset: int


class LeaderIdAndEpoch(NamedTuple):
    leader_id: int
    leader_epoch: int


class SnapshotId(NamedTuple):
    end_offset: int
    epoch: int


@dataclass(slots=True)
class PartitionResult:
    """The result for one partition. No records are encoded as 0 bytes, never as null: clients expect a record set."""

    index: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    preferred_read_replica: int = -1
    records: Records = None
    diverging_epoch: EpochEndOffset | None = None
    current_leader: LeaderIdAndEpoch | None = None
    snapshot_id: SnapshotId | None = None


@dataclass(slots=True)
class TopicResult:
    name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: list[PartitionResult] = field(default_factory=list)


@dataclass(slots=True)
class FetchResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    topics: list[TopicResult] = field(default_factory=list)
    node_endpoints: Sequence[NodeEndpoint] = ()


def read_topic(version: int, source: Reader) -> tuple[str, bytes]:
    return ("", source.uuid()) if version >= TOPIC_ID_FROM else (source.string(), ZERO_UUID)


def write_topic(version: int, name: str, topic_id: bytes, target: Writer) -> None:
    if version >= TOPIC_ID_FROM:
        target.uuid(topic_id)
    else:
        target.string(name)
