"""Short words for what a scenario asks a broker over its raw client."""

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
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
RETRY_S = 0.01


def connect(broker: LocalBroker, timeout_s: float = PATIENCE_S) -> RawClient:
    return RawClient(broker.host, broker.port, timeout_s=timeout_s)


def batch_of(*values: bytes, timestamp: int = 1_000, **fields: Any) -> bytearray:
    """One batch, a record for each value; records are a millisecond apart."""
    return encode([(None, value, (), timestamp + number) for number, value in enumerate(values)], **fields)


def append(client: RawClient, topic: str, *values: bytes, partition: int = 0, **fields: Any) -> int:
    """Sent and acknowledged; the first offset."""
    result = produced(client, topic, batch_of(*values, **fields), partition=partition)
    assert result.error_code == 0, result
    return result.base_offset


def produced(client: RawClient, topic: str | bytes, batch: Any, *, partition: int = 0, **options: Any) -> Produced:
    result = client.produce(topic, partition, batch, **options)
    assert result is not None
    return result


def records_of(fetched: Fetched) -> list[Record]:
    """All records of the whole batches in an answer."""
    assert fetched.error_code == 0, fetched
    data = bytes(fetched.records) if isinstance(fetched.records, memoryview | bytes | bytearray) else b""
    return [record for position, _ in headers(data) for record in decode(data, position)]


def values_of(fetched: Fetched) -> list[bytes | None]:
    return [record.value for record in records_of(fetched)]


def all_values(client: RawClient, topic: str | bytes, partition: int = 0) -> list[bytes | None]:
    """From the first offset to the high watermark."""
    found: list[bytes | None] = []
    offset = 0
    while True:
        fetched = client.fetch(topic, partition, offset)
        records = records_of(fetched)
        if not records:
            assert offset == fetched.high_watermark
            return found
        found += [record.value for record in records]
        offset = records[-1].offset + 1


def described(client: RawClient, topic: str, *, create: bool = False) -> Any:
    """What Metadata says of one topic."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=create)
    (found,) = client.request(request, 12).topics
    return found


def await_topic(client: RawClient, topic: str, *, exists: bool = True) -> None:
    """Returns when Metadata has the topic, or no longer has it."""
    deadline = time.monotonic() + PATIENCE_S
    while (described(client, topic).error_code == 0) != exists:
        assert time.monotonic() < deadline, f"topic {topic} {'does not exist' if exists else 'still exists'}"
        time.sleep(RETRY_S)


def topic_id(client: RawClient, topic: str) -> bytes:
    found: bytes = described(client, topic).topic_id
    return found


def create(client: RawClient, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> Any:
    """The result, whatever it is."""
    settings = [CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()]
    asked = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1, configs=settings)
    (result,) = client.request(CreateTopicsRequest(topics=[asked], timeout_ms=10_000), 7).topics
    return result


def delete(client: RawClient, topic: str) -> int:
    """The error code."""
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=10_000)
    (result,) = client.request(request, 6).responses
    code: int = result.error_code
    return code


def offset_at(client: RawClient, topic: str, timestamp: int, *, version: int = 11, **options: Any) -> Any:
    """ListOffsets of partition 0; `leader_epoch` is the one the client believes in."""
    asked = ListOffsetsPartition(timestamp=timestamp, current_leader_epoch=options.pop("leader_epoch", -1))
    request = ListOffsetsRequest(
        replica_id=options.pop("replica_id", -1),
        topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
        **options,
    )
    return client.request(request, version).topics[0].partitions[0]
