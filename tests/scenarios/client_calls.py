"""The requests that most scenarios send, as functions: one call for one request over a raw client."""

import time
from collections.abc import Mapping
from typing import Any

from ottla.records.batch import Record, decode, encode, headers
from ottla.testing import LocalBroker
from ottla.wire.fetch import PartitionResult as Fetched
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.produce import PartitionResult as Produced
from tests.patience import PATIENCE_MS, PATIENCE_S
from tests.raw_client import RawClient

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
RETRY_S = 0.01


def connect(broker: LocalBroker, timeout_s: float = PATIENCE_S) -> RawClient:
    return RawClient(broker.host, broker.port, timeout_s=timeout_s)


def make_batch(*values: bytes, timestamp: int = 1_000, **fields: Any) -> bytearray:
    """A batch with one record per value. Its timestamps are a millisecond apart."""
    return encode([(None, value, (), timestamp + number) for number, value in enumerate(values)], **fields)


def append(client: RawClient, topic: str, *values: bytes, partition: int = 0, **fields: Any) -> int:
    """Produce one batch and check that it is acknowledged. Returns its first offset."""
    result = produce_batch(client, topic, make_batch(*values, **fields), partition=partition)
    assert result.error_code == 0, result
    return result.base_offset


def produce_batch(client: RawClient, topic: str | bytes, batch: Any, *, partition: int = 0, **options: Any) -> Produced:
    result = client.produce(topic, partition, batch, **options)
    assert result is not None
    return result


def decode_records(fetched: Fetched) -> list[Record]:
    """The records of all complete batches in an answer."""
    assert fetched.error_code == 0, fetched
    data = bytes(fetched.records) if isinstance(fetched.records, memoryview | bytes | bytearray) else b""
    return [record for position, _ in headers(data) for record in decode(data, position)]


def decode_values(fetched: Fetched) -> list[bytes | None]:
    return [record.value for record in decode_records(fetched)]


def read_all_values(client: RawClient, topic: str | bytes, partition: int = 0) -> list[bytes | None]:
    """The values of all records from offset 0 to the high watermark."""
    found: list[bytes | None] = []
    offset = 0
    while True:
        fetched = client.fetch(topic, partition, offset)
        records = decode_records(fetched)
        if not records:
            assert offset == fetched.high_watermark
            return found
        found += [record.value for record in records]
        offset = records[-1].offset + 1


def describe_topic(client: RawClient, topic: str, *, create: bool = False) -> Any:
    """The answer of Metadata for one topic."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=create)
    (found,) = client.request(request, 12).topics
    return found


def await_topic(client: RawClient, topic: str, *, exists: bool = True) -> None:
    """Returns when Metadata has the topic, or no longer has it."""
    deadline = time.monotonic() + PATIENCE_S
    while (describe_topic(client, topic).error_code == 0) != exists:
        assert time.monotonic() < deadline, f"topic {topic} {'does not exist' if exists else 'still exists'}"
        time.sleep(RETRY_S)


def find_topic_id(client: RawClient, topic: str) -> bytes:
    found: bytes = describe_topic(client, topic).topic_id
    return found


def create_topic(client: RawClient, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> Any:
    """Create a topic and wait until it has leaders. Returns the result of the creation, which may be an error.

    Apache Kafka answers a moment before its own requests know the topic, a long moment on a busy machine.
    """
    settings = [CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()]
    asked = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1, configs=settings)
    (result,) = client.request(CreateTopicsRequest(topics=[asked], timeout_ms=PATIENCE_MS), 7).topics
    deadline = time.monotonic() + PATIENCE_S
    while not result.error_code and not _has_leaders(client, topic):
        assert time.monotonic() < deadline, topic
    return result


def _has_leaders(client: RawClient, topic: str) -> bool:
    described = describe_topic(client, topic)
    return not described.error_code and all(each.leader_id >= 0 for each in described.partitions)


def delete_topic(client: RawClient, topic: str) -> int:
    """Delete a topic. Returns the error code."""
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=PATIENCE_MS)
    (result,) = client.request(request, 6).responses
    code: int = result.error_code
    return code


def list_offset(client: RawClient, topic: str, timestamp: int, *, version: int = 11, **options: Any) -> Any:
    """ListOffsets of partition 0. `leader_epoch` is what the client takes for the current leader epoch."""
    asked = ListOffsetsPartition(timestamp=timestamp, current_leader_epoch=options.pop("leader_epoch", -1))
    request = ListOffsetsRequest(
        replica_id=options.pop("replica_id", -1),
        topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
        **options,
    )
    return client.request(request, version).topics[0].partitions[0]
