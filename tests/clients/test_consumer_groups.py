"""Groups of real clients that speak the consumer protocol (KIP-848), alone and beside the classic one."""

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from benchmarks.peers.apache_kafka import run_tool
from ottla.testing import LocalBroker
from tests.clients import logins
from tests.clients.group_member import SESSION_MS
from tests.clients.groups import TestedGroup
from tests.patience import PATIENCE_MS, PATIENCE_S

PARTITIONS = 6
RECORDS = 600
CONSUMER = "consumer"

_numbers = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with logins.run_broker(
        process=True,
        group_initial_rebalance_delay_ms=300,
        group_min_session_timeout_ms=1000,
        group_consumer_assignment_interval_ms=100,
        group_consumer_min_heartbeat_interval_ms=100,
        group_consumer_heartbeat_interval_ms=250,
        group_consumer_min_session_timeout_ms=1000,
        group_consumer_session_timeout_ms=SESSION_MS,
        group_consumer_max_session_timeout_ms=PATIENCE_MS,
    ) as running:
        yield running


@pytest.fixture
def group(broker: LocalBroker, tmp_path: Path) -> Iterator[TestedGroup]:
    """A group and a topic of its own."""
    name = f"group-{next(_numbers)}"
    broker.create_topic(name, PARTITIONS)
    with TestedGroup(tmp_path, broker.bootstrap, name, name, PARTITIONS) as tested:
        yield tested


def send(broker: LocalBroker, topic: str, count: int = RECORDS) -> None:
    producer = Producer({**logins.librdkafka(broker.bootstrap), "linger.ms": 5})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


def set_session(broker: LocalBroker, group: str, session_ms: int) -> None:
    setting = ConfigEntry("consumer.session.timeout.ms", str(session_ms), incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ResourceType.GROUP, group, incremental_configs=[setting])
    admin = AdminClient(logins.librdkafka(broker.bootstrap))
    admin.incremental_alter_configs([changed])[changed].result(PATIENCE_S)


def ends(count: int) -> dict[int, int]:
    return dict.fromkeys(range(PARTITIONS), count // PARTITIONS)


def test_members_come_and_go(broker: LocalBroker, group: TestedGroup) -> None:
    # Two members share the partitions. One is killed, and the other owns everything after the session of the first. One
    # ends in order, and a third takes over at once. Every record is read, and no committed record is read again.
    first, second = group.start("confluent", CONSUMER), group.start("confluent", CONSUMER)
    group.await_shares(3, 3)
    send(broker, group.topic)
    group.await_committed(RECORDS)
    first.kill()
    group.await_shares(6)
    send(broker, group.topic)
    group.await_committed(2 * RECORDS)
    third = group.start("confluent", CONSUMER)
    group.await_shares(3, 3)
    second.terminate()
    group.await_shares(6)
    send(broker, group.topic)
    group.await_committed(3 * RECORDS)
    third.terminate()
    assert group.check(ends(3 * RECORDS)) == 0


def test_a_static_member_restarts(broker: LocalBroker, group: TestedGroup) -> None:
    # The member leaves for a while and gets its partitions back within its session. The other member does not notice.
    set_session(broker, group.topic, PATIENCE_MS)
    first, second = group.start("confluent", CONSUMER, "one"), group.start("confluent", CONSUMER, "two")
    group.await_shares(3, 3)
    had, events = set(second.assigned), len(group.events)
    second.terminate()
    second = group.start("confluent", CONSUMER, "two")
    group.await_shares(3, 3)
    assert second.assigned == had
    assert [event.name for event in group.events[events:] if event.member == first.number] == []
    send(broker, group.topic)
    group.await_committed(RECORDS)
    assert group.check(ends(RECORDS)) == 0


def test_members_continue_after_a_restart_of_the_broker(broker: LocalBroker, group: TestedGroup) -> None:
    # After kill -9 of the broker the group is loaded again with its epochs, and its members continue.
    for _ in range(2):
        group.start("confluent", CONSUMER)
    group.await_shares(3, 3)
    send(broker, group.topic)
    group.await_committed(RECORDS)
    broker.kill()
    broker.restart()
    send(broker, group.topic)
    group.await_committed(2 * RECORDS)
    group.check(ends(2 * RECORDS))


def test_a_group_is_converted_to_the_consumer_protocol_and_back(broker: LocalBroker, group: TestedGroup) -> None:
    # Members are restarted one by one, first with the new protocol, then with the old one, and every record is read.
    # The old members have been through a rebalance, so librdkafka's assignments carry user data.
    old = [group.start("confluent", "cooperative-sticky")]
    group.await_shares(6)
    old.append(group.start("confluent", "cooperative-sticky"))
    group.await_shares(3, 3)
    send(broker, group.topic)
    new = [group.start("confluent", CONSUMER)]
    group.await_shares(2, 2, 2)
    send(broker, group.topic)
    group.await_committed(2 * RECORDS)
    old.pop().terminate()
    new.append(group.start("confluent", CONSUMER))
    group.await_shares(2, 2, 2)
    old.pop().terminate()
    group.await_shares(3, 3)
    send(broker, group.topic)
    group.await_committed(3 * RECORDS)
    old = [group.start("confluent", "cooperative-sticky")]
    group.await_shares(2, 2, 2)
    for member in new:
        member.terminate()
    group.await_shares(6)
    send(broker, group.topic)
    group.await_committed(4 * RECORDS)
    group.check(ends(4 * RECORDS))


@pytest.mark.usefixtures("kafka_tools")
def test_java_members_share_a_group(broker: LocalBroker, group: TestedGroup) -> None:
    # Kafka's own VerifiableConsumer runs beside librdkafka, as a static member. When it is killed, the other member
    # takes over its partitions.
    java, other = group.start("java", CONSUMER, "java"), group.start("confluent", CONSUMER)
    group.await_shares(3, 3)
    send(broker, group.topic)
    group.await_committed(RECORDS)
    shown = describe(broker, group.topic, "--members", "--verbose")
    assert re.search(r"\bjava\b", shown) and len(re.findall(r"/127\.0\.0\.1", shown)) == 2, shown
    assert re.search(r"uniform +Stable +2", describe(broker, group.topic, "--state")), shown
    java.kill()
    group.await_shares(6)
    send(broker, group.topic)
    group.await_committed(2 * RECORDS)
    other.terminate()
    assert group.check(ends(2 * RECORDS)) == 0


@pytest.mark.usefixtures("kafka_tools")
def test_a_java_group_is_converted_to_the_consumer_protocol(broker: LocalBroker, group: TestedGroup) -> None:
    # The classic member is Java's: its heartbeats tell it to rejoin, and it continues with fewer partitions.
    java = group.start("java", "range")
    group.await_shares(6)
    send(broker, group.topic)
    group.start("confluent", CONSUMER)
    group.await_shares(3, 3)
    send(broker, group.topic)
    group.await_committed(2 * RECORDS)
    java.terminate()
    group.await_shares(6)
    group.check(ends(2 * RECORDS))


def describe(broker: LocalBroker, group: str, *words: str) -> str:
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    return run_tool(tool, *logins.tool(broker.bootstrap), "--describe", "--group", group, *words)


def test_a_pattern_finds_topics_that_come_later(broker: LocalBroker) -> None:
    # The broker matches whole names with RE2. A topic that is created later is read from its beginning.
    name = f"pattern-{next(_numbers)}"
    for topic in (f"{name}-a", f"not-{name}-a"):
        broker.create_topic(topic, 2)
    consumer = Consumer(
        {
            **logins.librdkafka(broker.bootstrap),
            "group.id": name,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe([f"^{name}-[ab]"])
    try:
        await_assigned(consumer, {(f"{name}-a", 0), (f"{name}-a", 1)})
        broker.create_topic(f"{name}-b", 1)
        await_assigned(consumer, {(f"{name}-a", 0), (f"{name}-a", 1), (f"{name}-b", 0)})
    finally:
        consumer.close()


def await_assigned(consumer: Consumer, expected: set[tuple[str, int]]) -> None:
    """Poll until the consumer has these partitions."""
    found: set[Any] = set()
    for _ in range(int(PATIENCE_S / 0.1)):
        consumer.poll(0.1)
        found = {(each.topic, each.partition) for each in consumer.assignment()}
        if found == expected:
            return
    raise AssertionError(f"{found} is not {expected}")
