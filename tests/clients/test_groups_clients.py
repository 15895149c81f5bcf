"""Groups of real clients: they share a topic, come and go, die and return, with every library and assignor."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from benchmarks.peers.apache_kafka import run_tool
from ottla.testing import LocalBroker
from tests.clients import logins
from tests.clients.groups import RESTART_MS, TestedGroup, run_at_once
from tests.patience import PATIENCE_MS, PATIENCE_S

PARTITIONS = 6
RECORDS = 600
RESTARTS = 3

_numbers = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    settings: dict[str, Any] = {"group_initial_rebalance_delay_ms": 300, "group_min_session_timeout_ms": 1000}
    with logins.run_broker(process=True, **settings) as running:
        yield running


@contextmanager
def new_group(broker: LocalBroker, directory: Path) -> Iterator[TestedGroup]:
    """Create a group and a topic of its own."""
    name = f"group-{next(_numbers)}"
    broker.create_topic(name, PARTITIONS)
    (directory / name).mkdir()
    with TestedGroup(directory / name, broker.bootstrap, name, name, PARTITIONS) as tested:
        yield tested


@pytest.fixture
def group(broker: LocalBroker, tmp_path: Path) -> Iterator[TestedGroup]:
    with new_group(broker, tmp_path) as tested:
        yield tested


def send(broker: LocalBroker, group: TestedGroup, count: int = RECORDS) -> None:
    producer = Producer({**logins.librdkafka(broker.bootstrap), "linger.ms": 5})
    for number in range(count):
        producer.produce(group.topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


def ends(count: int) -> dict[int, int]:
    return dict.fromkeys(range(PARTITIONS), count // PARTITIONS)


def test_members_come_and_go(broker: LocalBroker, tmp_path: Path) -> None:
    # Two members share the partitions. One is killed, and the other owns everything after the session of the first. One
    # ends in order, and a third takes over at once. Every record is read, and no committed record is read again. Four
    # such groups run at the same time.
    def come_and_go(library: str, assignor: str) -> None:
        with new_group(broker, tmp_path) as group:
            first, second = group.start(library, assignor), group.start(library, assignor)
            group.await_shares(3, 3)
            send(broker, group)
            group.await_committed(RECORDS)
            first.kill()
            group.await_shares(6)
            send(broker, group)
            group.await_committed(2 * RECORDS)
            third = group.start(library, assignor)
            group.await_shares(3, 3)
            second.terminate()
            group.await_shares(6)
            send(broker, group)
            group.await_committed(3 * RECORDS)
            third.terminate()
            assert group.check(ends(3 * RECORDS)) == 0

    run_at_once(
        partial(come_and_go, "confluent", "range"),
        partial(come_and_go, "confluent", "cooperative-sticky"),
        partial(come_and_go, "aiokafka", "sticky"),
        partial(come_and_go, "kafka_python", "range"),
    )


def test_libraries_share_a_group(broker: LocalBroker, group: TestedGroup) -> None:
    # All libraries know the assignor `range`, and their formats are the same.
    members = [group.start(library) for library in ("confluent", "aiokafka", "kafka_python")]
    group.await_shares(2, 2, 2)
    send(broker, group)
    group.await_committed(RECORDS)
    members[0].kill()
    group.await_shares(3, 3)
    send(broker, group)
    group.await_committed(2 * RECORDS)
    assert group.check(ends(2 * RECORDS)) == 0


@pytest.mark.parametrize("library", ["confluent", "aiokafka", "kafka_python"])
def test_a_static_member_restarts(library: str, broker: LocalBroker, group: TestedGroup) -> None:
    # The member gets its partitions back within its session, and nobody else has to rejoin. A client may rejoin by
    # itself soon after it has joined, when it hears more of the topic's metadata: then the member is restarted again.
    first = group.start(library, instance="one", session_ms=RESTART_MS)
    second = group.start(library, instance="two", session_ms=RESTART_MS)
    group.await_shares(3, 3)
    for _ in range(RESTARTS):
        had, events = set(second.assigned), len(group.events)
        second.kill()
        second = group.start(library, instance="two", session_ms=RESTART_MS)
        group.await_shares(3, 3)
        disturbed = [event.name for event in group.events[events:] if event.member == first.number]
        if not disturbed:
            break
    assert (disturbed, second.assigned) == ([], had)
    send(broker, group)
    group.await_committed(RECORDS)
    assert group.check(ends(RECORDS)) == 0


def test_a_static_member_is_fenced_by_a_second_one_with_its_id(broker: LocalBroker, group: TestedGroup) -> None:
    # The earlier member may still read until its next heartbeat, but its commits are never stored.
    first = group.start("confluent", instance="one")
    group.await_shares(6)
    double = group.start("confluent", instance="one")
    group.await_news(lambda: double.assigned == set(range(PARTITIONS)), "the double has nothing")
    send(broker, group)
    group.await_committed(RECORDS)
    committers = {
        event.member for event in group.events if event.name == "offsets_committed" and event.details["success"]
    }
    assert committers == {double.number}
    first.kill()
    group.check(ends(RECORDS))


def test_members_continue_after_a_restart_of_the_broker(broker: LocalBroker, group: TestedGroup) -> None:
    # After kill -9 of the broker the group is loaded again, and its members continue, however each library reconnects.
    for library in ("confluent", "aiokafka", "kafka_python"):
        group.start(library)
    group.await_shares(2, 2, 2)
    send(broker, group)
    group.await_committed(RECORDS)
    broker.kill()
    broker.restart()
    send(broker, group)
    group.await_committed(2 * RECORDS)
    group.check(ends(2 * RECORDS))


@pytest.mark.usefixtures("kafka_tools")
def test_java_members_share_a_group(broker: LocalBroker, tmp_path: Path) -> None:
    # Kafka's own VerifiableConsumer runs beside librdkafka, and both have a share. When it is killed, the other takes
    # over.
    def leave_to_the_other(assignor: str) -> None:
        with new_group(broker, tmp_path) as group:
            killed, other = group.start("java", assignor), group.start("confluent", assignor)
            group.await_shares(3, 3)
            send(broker, group)
            group.await_committed(RECORDS)
            killed.kill()
            group.await_shares(6)
            send(broker, group)
            group.await_committed(2 * RECORDS)
            other.terminate()
            assert group.check(ends(2 * RECORDS)) == 0

    run_at_once(partial(leave_to_the_other, "range"), partial(leave_to_the_other, "cooperative-sticky"))


@pytest.mark.usefixtures("kafka_tools")
def test_a_java_member_restarts_and_the_broker_too(broker: LocalBroker, group: TestedGroup) -> None:
    # A static member gets its partitions back without a rebalance. After kill -9 of the broker both members continue.
    first = group.start("confluent", instance="one")
    second = group.start("java", instance="two", session_ms=RESTART_MS)
    group.await_shares(3, 3)
    had, events = set(second.assigned), len(group.events)
    second.kill()
    second = group.start("java", instance="two", session_ms=RESTART_MS)
    group.await_shares(3, 3)
    assert second.assigned == had
    assert [event.name for event in group.events[events:] if event.member == first.number] == []
    send(broker, group)
    group.await_committed(RECORDS)
    broker.kill()
    broker.restart()
    send(broker, group)
    group.await_committed(2 * RECORDS)
    group.check(ends(2 * RECORDS))


@pytest.mark.usefixtures("kafka_tools")
def test_the_console_consumer_continues_where_it_was(broker: LocalBroker, group: TestedGroup) -> None:
    # The console consumer reads a part and ends, and the next one of its group reads the rest.
    send(broker, group)
    read = []
    for part in (RECORDS // 3, RECORDS - RECORDS // 3):
        limits = ("--max-messages", str(part), "--timeout-ms", str(PATIENCE_MS))
        where = (*logins.tool(broker.bootstrap), "--topic", group.topic, "--group", group.topic)
        read += run_tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer", *where, *limits, "--from-beginning"
        ).splitlines()
    assert sorted(map(int, read)) == list(range(RECORDS))


@pytest.mark.usefixtures("kafka_tools")
def test_kafkas_own_command_describes_members(broker: LocalBroker, group: TestedGroup) -> None:
    # The command shows who is in the group, from which address, and what each member reads.
    group.start("aiokafka", instance="one")
    group.start("aiokafka", instance="two")
    group.await_shares(3, 3)
    command = (*logins.tool(broker.bootstrap), "--describe", "--group", group.topic, "--members", "--verbose")
    told = run_tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *command)
    lines = [line.split() for line in told.splitlines() if line.startswith(group.topic)]
    assert {(line[2], line[3]) for line in lines} == {("one", "/127.0.0.1"), ("two", "/127.0.0.1")}, told
    assert sorted(re.findall(rf"{group.topic}:([\d,]+)", told)) == ["0,1,2", "3,4,5"], told
