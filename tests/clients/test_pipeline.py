"""Reading by the pipeline: records that another client wrote, from Ottla and from Apache Kafka."""

from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import ottla
from benchmarks.peers.apache_kafka import ApacheKafka
from ottla.errors import KafkaError
from ottla.testing import LocalBroker
from tests.clients import logins
from tests.patience import PATIENCE_S

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
EACH = 300


def fill(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    """Fill two partitions: one with records in every codec, one with transactions of which every second is aborted.

    Returns what a read_committed reader should see, without offsets and timestamps.
    """
    admin = AdminClient(logins.librdkafka(bootstrap))
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(PATIENCE_S)
    expected = []
    for codec in CODECS:
        producer = Producer({**logins.librdkafka(bootstrap), "compression.type": codec, "linger.ms": 50})
        for number in range(EACH):
            key, value = (f"{codec}-{number}".encode() if number % 3 else None), (b"x" * number if number % 5 else None)
            headers: list[tuple[str, str | bytes | None]] = [("codec", codec.encode()), ("nothing", None)]
            producer.produce(topic, value, key, partition=0, headers=headers if number % 2 else None)
            pairs = [{"key": name, "value": content} for name, content in headers]
            expected.append({"partition": 0, "key": key, "value": value, "headers": pairs if number % 2 else None})
        assert not producer.flush(PATIENCE_S)
    producer = Producer({**logins.librdkafka(bootstrap), "transactional.id": topic})
    producer.init_transactions(PATIENCE_S)
    for number in range(6):
        producer.begin_transaction()
        for part in range(10):
            producer.produce(topic, b"%d.%d" % (number, part), partition=1)
        producer.flush(PATIENCE_S)
        if number % 2:
            producer.abort_transaction(PATIENCE_S)
            continue
        producer.commit_transaction(PATIENCE_S)
        rows = [b"%d.%d" % (number, part) for part in range(10)]
        expected += [{"partition": 1, "key": None, "value": value, "headers": None} for value in rows]
    return expected


def check_reading(bootstrap: str, topic: str) -> None:
    expected = fill(bootstrap, topic)
    read = partial(ottla.read, topic, bootstrap=bootstrap, settings=logins.ours(bootstrap))
    columns = ["partition", "key", "value", "headers"]
    assert read(columns=columns, isolation="read_committed").to_arrow().to_pylist() == expected
    everything = read(columns=["partition", "offset"]).to_pandas()
    assert len(everything) == len(expected) + 30
    assert list(everything[everything.partition == 0].offset) == list(range(EACH * len(CODECS)))
    with pytest.raises(KafkaError, match=f"{topic}-0: offset 5000 was asked for, but the log ends at 1500"):
        list(read(start=5000, end=6000).batches())


def test_records_of_another_client_are_read_from_ottla(broker: LocalBroker, topic: str) -> None:
    check_reading(broker.bootstrap, topic)


def test_records_of_another_client_are_read_from_apache_kafka(apache_kafka: ApacheKafka, topic: str) -> None:
    check_reading(apache_kafka.bootstrap, topic)
