"""Transactions with real clients: the Java client speaks version 2 of them, the others version 1.

OTTLA_KILLS=50     how often something dies in the chain of copies; `make broker-chaos` sets it
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from time import monotonic

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka import KafkaProducer

from benchmarks.peers.apache_kafka import SHORT_LIVED_JVM, java_command, run_tool
from ottla.testing import LocalBroker
from tests.clients import logins
from tests.clients.child import HOST, SOURCE, OttlaUp, ottla_up
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient
from tests.scenarios.client_calls import create_topic

KILLS = int(os.environ.get("OTTLA_KILLS", "4"))
TOOLS = "org.apache.kafka.tools"
RECORDS = 400


def committed_values(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """The first `count` records that a read_committed consumer gets, and all others that come with them."""
    consumer = Consumer(
        {
            **logins.librdkafka(bootstrap),
            "log_level": 0,
            "fetch.wait.max.ms": 50,
            "enable.auto.commit": False,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found: list[bytes] = []
        deadline = monotonic() + PATIENCE_S
        while len(found) < count and monotonic() < deadline:
            found += [message.value() or b"" for message in consumer.consume(500, 0.2) if message.error() is None]
        return found + [message.value() or b"" for message in consumer.consume(500, 0.3) if message.error() is None]
    finally:
        consumer.close()


def test_librdkafka_commits_and_aborts_and_is_fenced(broker: LocalBroker, topic: str) -> None:
    broker.create_topic(topic)
    settings = {**logins.librdkafka(broker.bootstrap), "transactional.id": topic, "log_level": 0}
    first = Producer(settings)
    first.init_transactions(PATIENCE_S)
    for number in range(10):
        first.begin_transaction()
        first.produce(topic, b"%d" % number)
        (first.abort_transaction if number % 3 == 0 else first.commit_transaction)(PATIENCE_S)
    first.begin_transaction()
    first.produce(topic, b"of a zombie")
    first.flush(PATIENCE_S)
    second = Producer(settings)
    second.init_transactions(PATIENCE_S)  # aborts the open transaction of the first producer
    with pytest.raises(KafkaException) as fenced:
        first.commit_transaction(PATIENCE_S)
    assert fenced.value.args[0].fatal()
    second.begin_transaction()
    second.produce(topic, b"last")
    second.commit_transaction(PATIENCE_S)
    assert committed_values(broker.bootstrap, topic, 7) == [b"1", b"2", b"4", b"5", b"7", b"8", b"last"]


def test_aiokafka_commits_and_aborts(broker: LocalBroker, topic: str) -> None:
    broker.create_topic(topic)

    async def produce() -> None:
        async with (
            asyncio.timeout(PATIENCE_S),
            AIOKafkaProducer(**logins.aiokafka(broker.bootstrap), transactional_id=topic) as producer,
        ):
            for number in range(6):
                await producer.begin_transaction()
                await producer.send(topic, b"%d" % number)
                await (producer.abort_transaction() if number % 3 == 0 else producer.commit_transaction())

    asyncio.run(produce())
    assert committed_values(broker.bootstrap, topic, 4) == [b"1", b"2", b"4", b"5"]


def test_kafka_python_commits_and_aborts(broker: LocalBroker, topic: str) -> None:
    broker.create_topic(topic)
    producer = KafkaProducer(**logins.kafka_python(broker.bootstrap), transactional_id=topic)
    try:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number)
            (producer.abort_transaction if number % 3 == 0 else producer.commit_transaction)()
    finally:
        producer.close()
    assert committed_values(broker.bootstrap, topic, 4) == [b"1", b"2", b"4", b"5"]


def test_aiokafka_commits_offsets_with_what_it_wrote(broker: LocalBroker, topic: str) -> None:
    # After an abort the group stays where it was; after a commit it is where the transaction says.
    broker.create_topic(topic)
    place = AioPartition(topic, 0)

    async def work() -> list[int | None]:
        found = []
        async with (
            asyncio.timeout(PATIENCE_S),
            AIOKafkaProducer(**logins.aiokafka(broker.bootstrap), transactional_id=topic) as producer,
            AIOKafkaConsumer(**logins.aiokafka(broker.bootstrap), group_id=topic, enable_auto_commit=False) as consumer,
        ):
            for offset, committed in ((3, True), (5, False), (7, True)):
                await producer.begin_transaction()
                await producer.send(topic, b"x")
                await producer.send_offsets_to_transaction({place: offset}, topic)
                await (producer.commit_transaction() if committed else producer.abort_transaction())
                found.append(await consumer.committed(place))
        return found

    assert asyncio.run(work()) == [3, 3, 7]


# Chains of copies


def test_a_chain_of_copies_survives_kill_9_of_all_parts(tmp_path: Path, seed: int) -> None:
    # Two copiers in a row and the broker die at any moment. The last topic has every record once, in order.
    random = Random(seed)
    with ottla_up(tmp_path / "data") as broker:
        create_topics(broker, "first", "middle", "last")
        values = fill(broker.bootstrap, "first", RECORDS * max(1, KILLS // 4))
        places = [("first", "middle"), ("middle", "last")]
        copiers = [start_copier(broker, *place) for place in places]
        try:
            for _ in range(KILLS):
                wait_for_progress(broker.bootstrap, random)
                victim = random.randrange(3)
                if victim == 2:
                    broker.kill()
                    broker.start()
                else:
                    copiers[victim].kill()
                    copiers[victim].wait(PATIENCE_S)
                    copiers[victim] = start_copier(broker, *places[victim])
            found = committed_values(broker.bootstrap, "last", len(values))
        finally:
            for copier in copiers:
                copier.kill()
                copier.wait(PATIENCE_S)
        assert found == values


def create_topics(broker: OttlaUp, *topics: str) -> None:
    with RawClient(HOST, broker.port) as client:
        for topic in topics:
            assert create_topic(client, topic).error_code == 0


def fill(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """Send this many numbered records."""
    producer = Producer({**logins.librdkafka(bootstrap), "linger.ms": 5})
    values = [b"%d" % number for number in range(count)]
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    return values


def start_copier(broker: OttlaUp, source: str, target: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.clients.copier", broker.bootstrap, source, target]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(SOURCE.parent)])}
    return subprocess.Popen(command, env=environment, cwd=SOURCE.parent, stderr=subprocess.DEVNULL)


def wait_for_progress(bootstrap: str, random: Random) -> None:
    """Wait until the topic in the middle has more records than before."""
    consumer = Consumer({**logins.librdkafka(bootstrap), "group.id": "unused", "log_level": 0})
    place = TopicPartition("middle", 0)
    try:
        _, before = consumer.get_watermark_offsets(place, PATIENCE_S)
        deadline = monotonic() + 3
        while monotonic() < deadline:
            _, now = consumer.get_watermark_offsets(place, PATIENCE_S)
            if now - before >= random.randrange(1, 60):
                return
    finally:
        consumer.close()


@pytest.mark.usefixtures("kafka_tools")
@pytest.mark.long
def test_kafkas_own_message_copier_survives_kill_9(tmp_path: Path) -> None:
    # The copier uses transactions v2, and aborts some on purpose. By turns the broker and the copier itself die.
    with ottla_up(tmp_path / "data") as broker:
        create_topics(broker, "input", "output")
        values = fill(broker.bootstrap, "input", 1_500)
        for turn in range(max(2, KILLS // 2)):
            with java_copier(broker) as (copier, progress):
                next(progress, None)
                if turn % 2:
                    copier.kill()
                    continue
                broker.kill()
                broker.start()
                for _ in range(3):
                    next(progress, None)
                copier.kill()
        with java_copier(broker) as (copier, progress):
            for _ in progress:
                pass
            assert copier.wait(PATIENCE_S) == 0
        assert committed_values(broker.bootstrap, "output", len(values)) == values


@contextmanager
def java_copier(broker: OttlaUp) -> Iterator[tuple[subprocess.Popen[str], Iterator[str]]]:
    """Start the copier. Returns the process and the lines in which it reports each transaction."""
    command = [
        *java_command(f"{TOOLS}.TransactionalMessageCopier", options=SHORT_LIVED_JVM),
        "--broker-list",
        broker.bootstrap,
        "--input-topic",
        "input",
        "--input-partition",
        "0",
        "--output-topic",
        "output",
        "--consumer-group",
        "copiers",
        "--transactional-id",
        "copier",
        "--transaction-size",
        "50",
        "--enable-random-aborts",
        "--use-group-metadata",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as copier:
        assert copier.stdout is not None
        try:
            yield copier, (line for line in copier.stdout if line.startswith("{"))
        finally:
            copier.kill()


@pytest.mark.usefixtures("kafka_tools")
def test_kafkas_own_tools_show_and_abort_transactions(broker: LocalBroker, topic: str) -> None:
    # kafka-transactions: list, describe, find-hanging, abort.
    broker.create_topic(topic)
    producer = Producer({**logins.librdkafka(broker.bootstrap), "transactional.id": topic, "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(PATIENCE_S)

    def transactions(*arguments: str) -> str:
        return run_tool(f"{TOOLS}.TransactionsCommand", *logins.tool(broker.bootstrap), *arguments)

    shown = transactions("describe", "--transactional-id", topic)
    assert "Ongoing" in shown and f"{topic}-0" in shown
    shown = transactions("abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    assert committed_values(broker.bootstrap, topic, 0) == []
    admin, partition = AdminClient(logins.librdkafka(broker.bootstrap)), TopicPartition(topic, 0)
    for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        ends = admin.list_offsets({partition: OffsetSpec.latest()}, isolation_level=level)
        assert ends[partition].result(PATIENCE_S).offset == 2
