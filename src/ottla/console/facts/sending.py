"""Sends records: new ones, edited ones, and dead letters back to the topics they came from."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.client.client import Client
from ottla.client.partitioning import choose_partition
from ottla.client.sending import EncodedBatch, Sender
from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import HEADER_SIZE
from ottla.records.compression import compress
from ottla.records.record import Fields, Headers, write_record
from ottla.topic_partition import TopicPartition

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

ORIGIN_TOPICS = (
    "__connect.errors.topic",
    "kafka_dlt-original-topic",
    "dlt-original-topic",
    "x-original-topic",
    "original-topic",
    "origin.topic",
)
"""Headers that say where a dead letter came from: those of Kafka Connect and Ottla, of Spring Kafka, and habits."""

_MARKS = ("__connect.errors.", "kafka_dlt-", "dlt-", "x-original-", "original-", "origin.", "kafka_exception")
"""Headers that describe a failure begin with these. A record that is sent back has none of them."""


class SentRecord(NamedTuple):
    topic: str
    partition: int
    offset: int


def encode_records(topic: str, partition: int, records: Sequence[Fields], codec: int = 0) -> EncodedBatch:
    """One batch, ready for a `Sender`."""
    body = bytearray()
    first = records[0][3]
    for number, (key, value, headers, timestamp) in enumerate(records):
        write_record(body, timestamp - first, number, key, value, headers)
    data = bytearray(HEADER_SIZE)
    data += compress(codec, body) if codec else body
    newest = max(record[3] for record in records)
    return EncodedBatch(topic, partition, len(records), first, codec, data, newest)


def send_record(
    client: Client,
    topic: str,
    partition: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    timestamp: int,
    codec: int = 0,
) -> SentRecord:
    """Send one record with acks=all. Without a partition, the key decides as in the Java client."""
    count = client.count_partitions([topic])[topic]
    if partition is None:
        partition = choose_partition(key, count, client.random)
    if not 0 <= partition < count:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} has no partition {partition}")
    sender = Sender(client)
    sender.send(encode_records(topic, partition, [(key, value, headers, timestamp)], codec))
    sender.flush()
    (run,) = sender.find_runs()[TopicPartition(topic, partition)]
    return SentRecord(topic, partition, run.first)


class DeadLetter(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers


def find_origin(headers: Headers) -> str | None:
    """The topic that a dead letter came from; None if no header says it."""
    named = {name.lower(): value for name, value in headers if value}
    for name in ORIGIN_TOPICS:
        if name in named:
            try:
                return named[name].decode()
            except UnicodeDecodeError:
                return None
    return None


def without_marks(headers: Headers) -> list[tuple[str, bytes | None]]:
    return [(name, value) for name, value in headers if not name.lower().startswith(_MARKS)]


def redrive(
    client: Client, letters: Iterable[DeadLetter], timestamp: int, target: str | None = None
) -> Mapping[str, int]:
    """Send dead letters to where they came from, or all to `target`. Returns how many went to each topic.

    A letter whose headers name no topic goes to `target`; without one, KafkaError, and nothing was sent.
    """
    planned: list[tuple[str, DeadLetter]] = []
    for letter in letters:
        topic = target or find_origin(letter.headers)
        if topic is None:
            message = "a record's headers do not say which topic it came from; name the topic to send them to"
            raise KafkaError(ErrorCode.INVALID_RECORD, message)
        planned.append((topic, letter))
    counts = client.count_partitions(sorted({topic for topic, _ in planned}))
    sender = Sender(client)
    sent: dict[str, int] = {}
    for topic, letter in planned:
        partition = choose_partition(letter.key, counts[topic], client.random)
        fields = (letter.key, letter.value, without_marks(letter.headers), timestamp)
        sender.send(encode_records(topic, partition, [fields]))
        sent[topic] = sent.get(topic, 0) + 1
    sender.flush()
    return sent
