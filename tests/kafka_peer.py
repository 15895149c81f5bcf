"""Apache Kafka for the tests: its tools, and one broker of it for all tests of a process, beside one of ours.

Both brokers have the same settings, and a test that compares them does everything to both: so they also list the same.
Each module finds them without groups and topics. A test that stops Kafka or reads its files starts one of its own.

All of it runs where there is Java, and the jars: from OTTLA_KAFKA_JARS, from the project's cache, or brought into it by
Maven within a minute, once. Otherwise the tests that need it are skipped, with the reason.
"""

import functools
import time
from collections.abc import Iterator
from typing import Any

import pytest

import ottla.testing
from benchmarks.peers import apache_kafka as peer
from benchmarks.peers.apache_kafka import ApacheKafka, Unavailable
from benchmarks.peers.broker_process import HOST
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.metadata import MetadataRequest
from tests.needs import skip_without
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient

Addresses = tuple[tuple[str, int], tuple[str, int]]
"""Kafka's and ours."""
Clients = tuple[RawClient, RawClient]

FETCH_S = 60
BROKER_OPTIONS = (*peer.SHORT_LIVED_JVM, "-Xmx512M")
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "300",
    "group.min.session.timeout.ms": "500",
    "group.max.size": "3",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.max.size": "3",
    "log.retention.check.interval.ms": "86400000",
    "log.initial.task.delay.ms": "86400000",
}
"""What lets members and sessions end within a test. The internal topics have few partitions, to be there at once; no
old record is deleted in the background, at different times on both."""


@functools.cache
def missing() -> str:
    """Why Apache Kafka cannot run here; empty if it can."""
    try:
        peer.find_executable("java")
        peer.find_jars(FETCH_S)
    except Unavailable as reason:
        return str(reason)
    return ""


@pytest.fixture(scope="session")
def kafka_tools() -> Iterator[None]:
    """Java and the jars are there: `benchmarks.peers.apache_kafka.run_tool` works."""
    if reason := missing():
        skip_without("Apache Kafka", reason)
    with peer.share_one_jvm():
        yield


@pytest.fixture(scope="session")
def apache_kafka(kafka_tools: None) -> Iterator[ApacheKafka]:
    with ApacheKafka(settings=SETTINGS, options=BROKER_OPTIONS) as running:
        yield running


@pytest.fixture(scope="session")
def both_brokers(apache_kafka: ApacheKafka) -> Iterator[Addresses]:
    """Their coordinators are at work."""
    given: dict[str, Any] = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
    with ottla.testing.broker(**given) as broker:
        found = (HOST, apache_kafka.port), (broker.host, broker.port)
        for address in found:
            with RawClient(*address, timeout_s=PATIENCE_S) as client:
                await_coordinators(client)
        yield found


@pytest.fixture(scope="module")
def both_addresses(both_brokers: Addresses) -> Addresses:
    """Brokers without groups, and with no topics but their own, whatever was done to one of them before."""
    for address in both_brokers:
        with RawClient(*address, timeout_s=PATIENCE_S) as client:
            delete_groups(client)
            delete_topics(client)
    return both_brokers


@pytest.fixture(scope="module")
def both_clients(both_addresses: Addresses) -> Iterator[Clients]:
    theirs, ours = (RawClient(*address, timeout_s=PATIENCE_S) for address in both_addresses)
    with theirs, ours:
        yield theirs, ours


def await_coordinators(client: RawClient) -> None:
    deadline = time.monotonic() + PATIENCE_S
    for kind in (0, 1):
        asked = FindCoordinatorRequest(coordinator_keys=["any"], key_type=kind)
        while code := client.request(asked, 4).coordinators[0].error_code:
            assert time.monotonic() < deadline, code


def delete_groups(client: RawClient) -> None:
    """Classic members are made to leave; those of a consumer group are gone after their session."""
    deadline = time.monotonic() + PATIENCE_S
    while names := [group.group_id for group in client.request(ListGroupsRequest(), 5).groups]:
        assert time.monotonic() < deadline, names
        for group in client.request(DescribeGroupsRequest(groups=names), 5).groups:
            members = [MemberIdentity(member_id=member.member_id) for member in group.members]
            client.request(LeaveGroupRequest(group_id=group.group_id, members=members), 5)
        client.request(DeleteGroupsRequest(groups_names=names), 2)


def delete_topics(client: RawClient) -> None:
    """All but the internal ones; nothing of them is seen any more when this returns."""
    deadline = time.monotonic() + PATIENCE_S
    while names := user_topics(client):
        assert time.monotonic() < deadline, names
        topics = [DeleteTopicState(name=name) for name in names]
        client.request(DeleteTopicsRequest(topics=topics, timeout_ms=PATIENCE_S * 1000), 6)


def user_topics(client: RawClient) -> list[str]:
    described = client.request(MetadataRequest(topics=None), 12).topics
    return [topic.name for topic in described if not topic.is_internal]
