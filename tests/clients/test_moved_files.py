"""A topic moved by its files, from this broker to Apache Kafka and back: the same records, offsets and producers.

docs/moving-files.md says how to do it, and `move` here does no more than that page says.
"""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.peers.apache_kafka import ApacheKafka
from ottla.cli.log_verification import Report, verify_path
from ottla.storage.files import RealDisk
from ottla.testing import LocalBroker
from ottla.testing import broker as local_broker
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.clients import confluent
from tests.clients.child import ottla_up
from tests.clients.files import contents
from tests.clients.messages import CODECS, Delivery, Sent, group_by_partition, messages
from tests.kafka_peer import BROKER_OPTIONS
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient
from tests.scenarios.client_calls import LATEST, list_offset, make_batch, produce_batch

PARTITIONS = 2
SMALL = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.index.size.max.bytes": "1000000",
}
"""Small internal topics and indexes. A killed Kafka leaves every index at its full size, and all of it is compared."""
SETTINGS = {"segment.bytes": str(1 << 20), "retention.ms": "-1"}
PRODUCER_ID, SEQUENCE = 70_000, 41
"""Producer id and sequence of the batch that is sent once before the move and once after it."""
OURS, THEIRS, KILLED, TRANSACTIONS = "ours", "theirs", "killed", "transactions"


class BrokerView(NamedTuple):
    """What a broker returns about partition 0. The other broker must return the same after the move."""

    producers: list[tuple[int, int, int]]
    """Id, epoch and last sequence of every producer."""
    offsets: list[int]
    """Offsets at some timestamps, and at the end."""
    first_epoch: tuple[int, int]
    """The number of the first leader epoch, and its end offset."""


def read_broker_view(port: int, topic: str, now: int) -> BrokerView:
    with RawClient("127.0.0.1", port, timeout_s=PATIENCE_S) as client:
        asked = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
        (partition,) = client.request(asked, 0).topics[0].partitions
        epoch = OffsetForLeaderTopic(topic=topic, partitions=[OffsetForLeaderPartition(leader_epoch=0)])
        answer = client.request(OffsetForLeaderEpochRequest(topics=[epoch]), 4).topics[0].partitions[0]
        return BrokerView(
            sorted((each.producer_id, each.producer_epoch, each.last_sequence) for each in partition.active_producers),
            [list_offset(client, topic, at).offset for at in (0, now - 5_000, now, LATEST)],
            (answer.leader_epoch, answer.end_offset),
        )


def send_once(port: int, topic: str, once: Sent) -> int:
    """Send one batch of one producer. Returns its offset, which is the same however often it is sent."""
    assert once.value is not None
    batch = make_batch(
        once.value, timestamp=once.timestamp, producer_id=PRODUCER_ID, producer_epoch=3, base_sequence=SEQUENCE
    )
    with RawClient("127.0.0.1", port, timeout_s=PATIENCE_S) as client:
        result = produce_batch(client, topic, batch)
    assert result.error_code == 0, result
    return result.base_offset


def send_with_every_codec(bootstrap: str, topic: str, seed: int) -> list[Sent]:
    """Send records of every shape in every codec, from idempotent producers. They fill several segments."""
    sent = []
    now = int(time.time() * 1000)  # no broker remembers the producer of older records when it starts
    for number, codec in enumerate(CODECS):
        drawn = messages(Random(seed + number), 150, PARTITIONS, largest=30_000)
        part = [each._replace(timestamp=now + each.timestamp - drawn[0].timestamp) for each in drawn]
        confluent.send(bootstrap, topic, part, Delivery(codec, idempotent=True))
        sent += part
    return sent


def send_transactions(bootstrap: str) -> None:
    """Send two transactions that are committed, and between them one that is not."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "mover", "linger.ms": 0})
    producer.init_transactions(PATIENCE_S)
    for value, ending in (
        (b"one", producer.commit_transaction),
        (b"undone", producer.abort_transaction),
        (b"two", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce(TRANSACTIONS, value, partition=0)
        producer.flush(PATIENCE_S)
        ending(PATIENCE_S)


def committed(bootstrap: str, topic: str, count: int) -> list[str | bytes | None]:
    """The values of partition 0, as a read_committed consumer sees them."""
    with confluent.open_consumer(bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        return [message.value() for message in confluent.take_messages(consumer, count)]


def move(source: Path, target: Path, topic: str) -> None:
    """Copy everything in each partition's directory, except the file with the topic id, as the page says."""
    for index in range(PARTITIONS):
        name = f"{topic}-{index}"
        owner = (target / name / "partition.metadata").read_bytes()
        shutil.rmtree(target / name)
        shutil.copytree(source / name, target / name)
        (target / name / "partition.metadata").write_bytes(owner)
        assert topic == TRANSACTIONS or len(list((target / name).glob("*.log"))) > 1, "several segments"


def create(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = [NewTopic(topic, PARTITIONS, 1, config=SETTINGS) for topic in topics]
    for created in admin.create_topics(asked, operation_timeout=PATIENCE_S).values():
        created.result(PATIENCE_S)


def create_led(kafka: ApacheKafka, *topics: str) -> None:
    """Create a topic and wait until it has a leader: Apache Kafka answers a moment before it serves the topic."""
    create(kafka.bootstrap, *topics)
    with RawClient("127.0.0.1", kafka.port, timeout_s=PATIENCE_S) as client:
        for topic in topics:
            while list_offset(client, topic, LATEST).error_code:
                pass


class Journey(NamedTuple):
    """What was sent, and what each broker returned: the one it was sent to, and after the move the other one."""

    broker: LocalBroker
    closed: Path
    """The files that Kafka left after a clean stop."""
    kafkas_data: Path
    sent: dict[str, list[Sent]]
    before: dict[str, BrokerView]
    once: dict[str, int]
    ours_at_kafka: list[Sent]
    told_by_kafka: BrokerView
    once_at_kafka: int


@pytest.fixture(scope="module")
def journey(kafka_tools: None, tmp_path_factory: pytest.TempPathFactory, seed: int) -> Iterator[Journey]:
    """Moves our files to Kafka and Kafka's to us. Kafka runs twice: it ends once cleanly and once by kill -9."""
    kafka = ApacheKafka(tmp_path_factory.mktemp("kafka"), SMALL, BROKER_OPTIONS)
    aside = tmp_path_factory.mktemp("aside") / "data"
    data = kafka.directory / "data"
    sent: dict[str, list[Sent]] = {}
    before: dict[str, BrokerView] = {}
    once: dict[str, int] = {}
    with local_broker(process=True) as broker:

        def fill(topic: str, bootstrap: str, port: int, part_of_seed: int) -> None:
            sent[topic] = send_with_every_codec(bootstrap, topic, seed + part_of_seed)
            sent[topic].append(Sent(0, None, b"once", (), sent[topic][-1].timestamp))
            once[topic] = send_once(port, topic, sent[topic][-1])
            before[topic] = read_broker_view(port, topic, sent[topic][-1].timestamp)

        create(broker.bootstrap, OURS, THEIRS, KILLED, TRANSACTIONS)
        fill(OURS, broker.bootstrap, broker.port, 0)
        broker.stop()
        with kafka:
            create_led(kafka, OURS, THEIRS, KILLED, TRANSACTIONS)
            fill(THEIRS, kafka.bootstrap, kafka.port, 100)
            send_transactions(kafka.bootstrap)
            first_half = send_with_every_codec(kafka.bootstrap, KILLED, seed + 200)
        shutil.copytree(data, aside)
        move(Path(broker.directory), data, OURS)
        with kafka:
            ours_at_kafka = confluent.receive(kafka.bootstrap, OURS, PARTITIONS, len(sent[OURS]))
            told_by_kafka = read_broker_view(kafka.port, OURS, sent[OURS][-1].timestamp)
            once_at_kafka = send_once(kafka.port, OURS, sent[OURS][-1])
            fill(KILLED, kafka.bootstrap, kafka.port, 300)
            sent[KILLED] = first_half + sent[KILLED]
            os.kill(kafka.process_id, signal.SIGKILL)
        for topic in (THEIRS, TRANSACTIONS):
            move(aside, Path(broker.directory), topic)
        broker.restart()
        yield Journey(broker, aside, data, sent, before, once, ours_at_kafka, told_by_kafka, once_at_kafka)


def test_kafka_serves_our_files(journey: Journey) -> None:
    # Kafka returns keys, values, headers and times of every record, the same offsets by time, and the same end of our
    # epoch. It knows the same producers, so it recognises a batch that is sent again.
    assert group_by_partition(journey.ours_at_kafka) == group_by_partition(journey.sent[OURS])
    assert journey.told_by_kafka == journey.before[OURS]
    assert journey.once_at_kafka == journey.once[OURS]


def test_we_serve_kafkas_files(journey: Journey) -> None:
    # The same in the other direction.
    broker = journey.broker
    found = confluent.receive(broker.bootstrap, THEIRS, PARTITIONS, len(journey.sent[THEIRS]))
    assert group_by_partition(found) == group_by_partition(journey.sent[THEIRS])
    assert read_broker_view(broker.port, THEIRS, journey.sent[THEIRS][-1].timestamp) == journey.before[THEIRS]
    assert send_once(broker.port, THEIRS, journey.sent[THEIRS][-1]) == journey.once[THEIRS]


def test_what_kafka_aborted_stays_aborted(journey: Journey) -> None:
    # The index of aborted transactions is read: a read_committed consumer does not see the aborted value.
    assert committed(journey.broker.bootstrap, TRANSACTIONS, 2) == [b"one", b"two"]


def test_the_directory_of_a_killed_kafka_is_served_unchanged(journey: Journey) -> None:
    # Every topic is served without metadata of ours and without a recovery by Kafka, and no byte is changed.
    before = contents(journey.kafkas_data)
    with ottla_up(journey.kafkas_data, read_only=True) as broker:
        found = confluent.receive(broker.bootstrap, KILLED, PARTITIONS, len(journey.sent[KILLED]))
        assert group_by_partition(found) == group_by_partition(journey.sent[KILLED])
        assert read_broker_view(broker.port, KILLED, journey.sent[KILLED][-1].timestamp) == journey.before[KILLED]
        assert committed(broker.bootstrap, TRANSACTIONS, 2) == [b"one", b"two"]
        ours = confluent.receive(broker.bootstrap, OURS, PARTITIONS, len(journey.sent[OURS]))
        assert group_by_partition(ours) == group_by_partition(journey.sent[OURS])
    assert contents(journey.kafkas_data) == before


def test_nothing_is_wrong_with_kafkas_files(journey: Journey) -> None:
    # `ottla log verify` compares all files with the records, after a clean stop and after kill -9.
    report = Report()
    for data in (journey.closed, journey.kafkas_data):
        verify_path(RealDisk(), str(data), report, mend=False, on_problem=lambda problem: None)
    assert (report.problems, report.notices) == ([], [])
    assert sum(partition.records for partition in report.partitions) > len(journey.sent[OURS])


def test_we_recover_what_a_killed_kafka_left(journey: Journey) -> None:
    # The indexes have an unused tail, there is no snapshot of the end, and there are two leader epochs. Everything is
    # rebuilt from the log.
    broker = journey.broker
    broker.stop()
    move(journey.kafkas_data, Path(broker.directory), KILLED)
    (Path(broker.directory) / ".kafka_cleanshutdown").unlink()
    broker.restart()
    found = confluent.receive(broker.bootstrap, KILLED, PARTITIONS, len(journey.sent[KILLED]))
    assert group_by_partition(found) == group_by_partition(journey.sent[KILLED])
    assert read_broker_view(broker.port, KILLED, journey.sent[KILLED][-1].timestamp) == journey.before[KILLED]
    assert send_once(broker.port, KILLED, journey.sent[KILLED][-1]) == journey.once[KILLED]
