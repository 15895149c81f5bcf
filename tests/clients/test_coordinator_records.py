"""What coordinators store is what Kafka's own tools print: groups, offsets and transactions, decoded field by field."""

import json
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from benchmarks.peers.apache_kafka import run_tool
from ottla.testing import LocalBroker
from ottla.testing import broker as local_broker
from tests.patience import PATIENCE_MS, PATIENCE_S
from tests.raw_client import RawClient
from tests.scenarios.client_calls import LATEST, list_offset

TOOLS = "org.apache.kafka.tools"
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
CLASSIC, CONSUMER = "classic", "consumer"

Decoded = dict[str, Any]


@pytest.fixture(scope="module")
def busy_broker(kafka_tools: None) -> Iterator[LocalBroker]:
    """A broker whose coordinators have stored every kind of record. Nothing writes to their topics any more."""
    settings: dict[str, Any] = {"offsets_topic_num_partitions": 1, "transaction_state_log_num_partitions": 1}
    with local_broker(**settings, group_initial_rebalance_delay_ms=0) as running:
        running.create_topic("t")
        keep_busy(running)
        yield running


def keep_busy(broker: LocalBroker) -> None:
    """Two groups, one of each protocol, read a record, commit it, and commit once more in a transaction."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "tx"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("t", b"value")
    producer.commit_transaction(PATIENCE_S)
    for protocol in (CLASSIC, CONSUMER):
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": protocol,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["t"])
        message: Message | None = None
        while message is None:
            message = consumer.poll(PATIENCE_S)
        consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        producer.begin_transaction()
        where = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition("t", 0, 2)], where, PATIENCE_S)
        producer.commit_transaction(PATIENCE_S)
        consumer.close()


def read_printed(broker: LocalBroker, topic: str, formatter: str) -> list[tuple[Decoded, Decoded | None]]:
    """The key and value of each record, as the console consumer prints them with one of Kafka's formatters."""
    with RawClient(broker.host, broker.port) as client:
        end = list_offset(client, topic, LATEST).offset
    where = ("--bootstrap-server", broker.bootstrap, "--topic", topic, "--partition", "0", "--offset", "earliest")
    limits = ("--max-messages", str(end - control_records(broker, topic)), "--timeout-ms", str(PATIENCE_MS))
    text = run_tool(
        f"{TOOLS}.consumer.ConsoleConsumer", *where, *limits, "--formatter", f"{TOOLS}.consumer.{formatter}"
    )
    found, position, decoder = [], 0, json.JSONDecoder()
    while position < len(text.rstrip()):
        record, position = decoder.raw_decode(text, position)
        value = record["value"]
        found.append((record["key"]["data"], value and value["data"]))
    return found


def control_records(broker: LocalBroker, topic: str) -> int:
    """How many markers the topic has, which no consumer gets: two transactions committed offsets."""
    return 2 if topic == OFFSETS else 0


def test_offsets_are_printed(busy_broker: LocalBroker) -> None:
    """The commits of both groups are there, each before the commit of its transaction."""
    records = read_printed(busy_broker, OFFSETS, "OffsetsMessageFormatter")
    shown = [(key["group"], key["topic"], key["partition"], value and value["offset"]) for key, value in records]
    assert shown == [(group, "t", 0, offset) for group in (CLASSIC, CONSUMER) for offset in (1, 2)]
    assert all(value and value["topicId"] for _, value in records)


def test_classic_groups_are_printed(busy_broker: LocalBroker) -> None:
    """A generation with its member comes first, then the empty group that the member left."""
    records = read_printed(busy_broker, OFFSETS, "GroupMetadataMessageFormatter")
    (_, stable), (_, empty) = [(key, value) for key, value in records if key.get("group") == CLASSIC]
    assert stable and empty
    assert (stable["protocolType"], stable["generation"], stable["protocol"]) == ("consumer", 1, "range")
    assert [member["memberId"] for member in stable["members"]] == [stable["leader"]]
    assert (empty["generation"], empty["members"], empty["leader"]) == (2, [], None)


def test_transactions_are_printed(busy_broker: LocalBroker) -> None:
    """Three transactions each go from ongoing over prepared to complete. The states are Kafka's numbers."""
    records = read_printed(busy_broker, TRANSACTIONS, "TransactionLogMessageFormatter")
    assert {key["transactionalId"] for key, _ in records} == {"tx"}
    states = [value["transactionStatus"] for _, value in records if value]
    assert [state for state, before in zip(states, [None, *states], strict=False) if state != before] == [
        0,
        1,
        2,
        4,
        1,
        2,
        4,
        1,
        2,
        4,
    ]


def test_segments_are_dumped(busy_broker: LocalBroker) -> None:
    """Kafka's reader of segments decodes every record of both topics, and none has an unknown type."""
    types = count_types(dump(busy_broker, OFFSETS, "--offsets-decoder"))
    assert set(types) == {"1", "2", "3", "5", "6", "7", "8"}
    assert types["1"] == 4
    assert set(count_types(dump(busy_broker, TRANSACTIONS, "--transaction-log-decoder"))) == {"0"}


def dump(broker: LocalBroker, topic: str, decoder: str) -> str:
    files = ",".join(map(str, sorted(Path(broker.directory, f"{topic}-0").glob("*.log"))))
    text = run_tool(f"{TOOLS}.DumpLogSegments", "--files", files, "--print-data-log", decoder)
    assert "isvalid: false" not in text
    return text


def count_types(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for kind in re.findall(r'key: \{"type":"(\d+)"', text):
        found[kind] = found.get(kind, 0) + 1
    numbers = [int(offset) for offset in re.findall(r"\| offset: (\d+) ", text)]
    assert numbers == [number for number, _ in zip(count(), numbers, strict=False)]
    assert sum(found.values()) + text.count("endTxnMarker") == len(numbers)
    return found
