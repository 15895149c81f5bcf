"""The compacted topics in which workers keep what they know: keys are text, values JSON, null deletes.

Readers see committed records only.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ottla.client.backoff import now_ms
from ottla.client.client import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, Client, UnknownTopic
from ottla.client.fetching import fetch
from ottla.client.groups import raise_for_errors
from ottla.client.partitioning import find_partition
from ottla.client.sending import EncodedBatch
from ottla.connect.errors import ConnectError
from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

CREATE_TIMEOUT_MS: Final = 30_000
TOPIC_RESOURCE: Final = 2
POLICY: Final = "cleanup.policy"
COMPACT: Final = "compact"


@dataclass(frozen=True)
class TopicForm:
    """How a topic is created if it does not exist."""

    name: str
    partitions: int
    replication_factor: int
    """-1 for the broker's default."""
    settings: Mapping[str, str]
    """Settings of the topic besides cleanup.policy."""


class StoredRecord(NamedTuple):
    topic: str
    key: str
    value: Any
    """A JSON value; None if the key was deleted."""


def create_store_topic(client: Client, form: TopicForm) -> None:
    """Create a compacted topic unless it exists. ConnectError if one of the name exists that is not compacted."""
    if form.settings.get(POLICY, COMPACT) != COMPACT:
        raise ConnectError(f"topic {form.name!r} holds the state of the worker: its {POLICY} has to be {COMPACT}")
    topic = CreatableTopic(
        name=form.name,
        num_partitions=form.partitions,
        replication_factor=form.replication_factor,
        configs=[
            CreatableTopicConfig(name=key, value=value) for key, value in {**form.settings, POLICY: COMPACT}.items()
        ],
    )
    for result in client.ask_any(CreateTopicsRequest(topics=[topic], timeout_ms=CREATE_TIMEOUT_MS)).topics:
        if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            _check_policy(client, form.name)
        elif result.error_code:
            raise KafkaError(ErrorCode(result.error_code), f"cannot create topic {form.name!r}: {result.error_message}")


def _check_policy(client: Client, topic: str) -> None:
    resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=[POLICY])
    answer = client.ask_any(DescribeConfigsRequest(resources=[resource]))
    raise_for_errors(answer, f"cannot describe topic {topic!r}")
    found = next(
        (config.value for result in answer.results for config in result.configs if config.name == POLICY), None
    )
    if found != COMPACT:
        raise ConnectError(
            f"topic {topic!r} has {POLICY}={found}, so it would lose the state of the worker; set it to {COMPACT}"
        )


class TopicReader:
    """Reads topics from their beginning, and goes on from there with each call. One thread at a time."""

    def __init__(self, client: Client, topics: Sequence[str], *, waits_for_transactions: bool = False) -> None:
        """Without `waits_for_transactions`, a partition is read up to the first record of an open transaction. With it
        the reader waits for the end of transactions that were open when it began: what was committed after the first
        record of somebody else's open transaction is seen then."""
        self._client = client
        self._isolation = READ_UNCOMMITTED if waits_for_transactions else READ_COMMITTED
        self._topics = topics
        self._positions: dict[TopicPartition, int] = {}

    def read(self) -> Iterator[StoredRecord]:
        """What was committed since the last call, in the order of each partition.

        If the caller stops early or an error occurs, the next call repeats what is left of the partition.
        """
        counts = self._client.count_partitions(self._topics)
        partitions = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
        new = [where for where in partitions if where not in self._positions]
        if new:
            starts = self._client.list_offsets(dict.fromkeys(new, EARLIEST))
            self._positions |= {where: found.offset for where, found in starts.items()}
        ends = self._client.list_offsets(dict.fromkeys(partitions, LATEST), self._isolation)
        for where, end in ends.items():
            start = self._positions[where]
            if start < end.offset:
                yield from _read_range(self._client, where, start, end.offset)
                self._positions[where] = end.offset


def _read_range(client: Client, where: TopicPartition, start: int, end: int) -> Iterator[StoredRecord]:
    for view in fetch(client, *where, start, end, isolation=READ_COMMITTED):
        for position, _ in batch.headers(view):
            for record in batch.decode(view, position):
                if start <= record.offset < end and record.key is not None:
                    value = None if record.value is None else _decode_json(record.value)
                    yield StoredRecord(where.topic, record.key.decode("utf-8", "replace"), value)


def _decode_json(data: bytes) -> Any:
    """The JSON value; what is no JSON counts as an empty object, which every store ignores."""
    try:
        return json.loads(data)
    except ValueError:
        return {}


def encode_json(value: Any) -> bytes:
    """JSON without blanks, as Kafka Connect's JSON converter writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def encode_records(client: Client, topic: str, records: Iterable[tuple[str, Any]]) -> Iterator[EncodedBatch]:
    """One batch for each partition that has records. The key decides about the partition, as in the Java client."""
    try:
        count = client.count_partitions([topic])[topic]
    except UnknownTopic as error:
        raise ConnectError(f"{error}; it holds the state of the worker and must not be deleted") from None
    timestamp = now_ms()
    lots: dict[int, list[tuple[bytes, bytes | None, tuple[()], int]]] = {}
    for key, value in records:
        encoded_key = key.encode()
        number = 0 if count == 1 else find_partition(encoded_key, count)
        lot = lots.setdefault(number, [])
        lot.append((encoded_key, None if value is None else encode_json(value), (), timestamp))
    for number, lot in lots.items():
        yield EncodedBatch(topic, number, len(lot), timestamp, 0, batch.encode(lot))
