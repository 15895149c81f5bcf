"""Requests that need several rights: without any one of them they are refused, or show nothing of what it is about."""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.security import rights
from ottla.security.operations import CLUSTER_NAME, Operation, ResourceType
from ottla.security.rights import Right
from ottla.testing import LocalBroker
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.raw_client import RawClient
from tests.scenarios.access import add, guarded_broker, rule
from tests.scenarios.client_calls import find_topic_id
from tests.scenarios.every_request import ask_until_settled, errors_in
from tests.scenarios.group_requests import NOBODY
from tests.scenarios.test_access_walk import UNAUTHORIZED, all_rights, build, commit
from tests.scenarios.transactional_producer import TransactionalProducer

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
ALL_NEEDED: dict[tuple[str, int], tuple[Right, ...]] = {
    ("AddOffsetsToTxn", 3): (rights.WRITE_TRANSACTIONAL_ID, rights.READ_GROUP),
    ("AddPartitionsToTxn", 3): (rights.WRITE_TRANSACTIONAL_ID, rights.WRITE_TOPIC),
    ("TxnOffsetCommit", 3): (rights.WRITE_TRANSACTIONAL_ID, rights.READ_GROUP, rights.READ_TOPIC),
    ("OffsetCommit", 9): (rights.READ_GROUP, rights.READ_TOPIC),
    ("OffsetCommit", 10): (rights.READ_GROUP, rights.READ_TOPIC),
    ("OffsetFetch", 9): (rights.DESCRIBE_GROUP, rights.DESCRIBE_TOPIC),
    ("OffsetFetch", 10): (rights.DESCRIBE_GROUP, rights.DESCRIBE_TOPIC),
    ("OffsetDelete", 0): (rights.DELETE_GROUP, rights.READ_TOPIC),
    ("DeleteTopics", 6): (rights.DESCRIBE_TOPIC, rights.DELETE_TOPIC),
}
"""API and version -> the rights that it needs all of. DELETE includes DESCRIBE, so only DELETE is left out of those."""


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with guarded_broker() as running:
        running.create_topic("parts")
        yield running


CASES = [
    (api, version, missing)
    for (api, version), needed in ALL_NEEDED.items()
    for missing in needed
    if (api, missing) != ("DeleteTopics", rights.DESCRIBE_TOPIC)
]


@pytest.mark.parametrize(("api", "version", "missing"), CASES, ids=repr)
def test_one_right_is_missing(
    broker: LocalBroker, root: RawClient, alice: RawClient, api: str, version: int, missing: Right
) -> None:
    topic = f"{api}-{version}-{missing.resource_type.name}"
    broker.create_topic(topic)
    commit(root, NOBODY, topic)
    add(root, *[all_rights("alice", each) for each in ALL_NEEDED[api, version] if each is not missing])
    request = build(api, version, topic, find_topic_id(root, topic))
    found = set(errors_in(ask_until_settled(alice, request, version)))
    assert found & UNAUTHORIZED, found
    add(root, all_rights("alice", missing))
    assert not set(errors_in(ask_until_settled(alice, request, version))) & UNAUTHORIZED


def test_a_topic_that_may_not_be_deleted_by_id_has_no_name(root: RawClient, alice: RawClient) -> None:
    """Only who may describe it is told which topic the id was of."""
    topic_id = find_topic_id(root, "parts")
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=20_000)
    (refused,) = alice.request(request, 6).responses
    assert (refused.error_code, refused.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    add(root, rule("alice", Operation.DESCRIBE, TOPIC, "parts"))
    (refused,) = alice.request(request, 6).responses
    assert (refused.error_code, refused.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "parts")


@pytest.mark.parametrize(
    ("resource_type", "name", "of", "refusal"),
    [
        (2, "parts", (TOPIC, "parts"), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (32, "some group", (GROUP, "some group"), ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (4, "1", (CLUSTER, CLUSTER_NAME), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (8, "1", (CLUSTER, CLUSTER_NAME), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (16, "metrics", (CLUSTER, CLUSTER_NAME), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_settings_of_every_kind_of_resource(
    root: RawClient,
    alice: RawClient,
    resource_type: int,
    name: str,
    of: tuple[ResourceType, str],
    refusal: ErrorCode,
) -> None:
    """Topics, groups, brokers, loggers and client metrics: to describe and to alter them are rights of their own."""
    asked = DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=None)
    config = AlterableConfig(name="nonsense", config_operation=0, value="1")
    altered = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=[config])

    def ask() -> list[Any]:
        described = alice.request(DescribeConfigsRequest(resources=[asked]), 4).results[0]
        answer = alice.request(IncrementalAlterConfigsRequest(resources=[altered]), 1).responses[0]
        return [described.error_code, answer.error_code]

    assert ask() == [refusal, refusal]
    add(root, rule("alice", Operation.DESCRIBE_CONFIGS, *of))
    assert ask() == [0, refusal]
    add(root, rule("alice", Operation.ALTER_CONFIGS, *of))
    assert refusal not in ask()


def test_all_topics_are_those_that_the_client_may_see(broker: LocalBroker, root: RawClient, alice: RawClient) -> None:
    broker.create_topic("seen")
    add(root, rule("alice", Operation.DESCRIBE, TOPIC, "seen"))
    everything = alice.request(DescribeTopicPartitionsRequest(topics=[]), 0)
    assert [topic.name for topic in everything.topics] == ["seen"]


@pytest.mark.parametrize("version", [2, 7, 9, 10])
def test_all_offsets_of_a_group_are_those_of_topics_that_the_client_may_see(
    broker: LocalBroker, root: RawClient, alice: RawClient, version: int
) -> None:
    """Other topics are left out, without an error that would show that they are there."""
    group, names = f"of all {version}", [f"{each}-{version}" for each in ("seen", "unseen")]
    for name in names:
        broker.create_topic(name)
        commit(root, group, name)
    add(root, rule("alice", Operation.DESCRIBE, GROUP, group))
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    if version < 8:
        request = OffsetFetchRequest(group_id=group, topics=None)

    def ask() -> list[Any]:
        answer = alice.request(request, version)
        assert errors_in(answer) == []
        topics = answer.topics if version < 8 else answer.groups[0].topics
        return [topic.topic_id if version >= 10 else topic.name for topic in topics]

    assert ask() == []
    add(root, rule("alice", Operation.DESCRIBE, TOPIC, names[0]))
    assert ask() == [find_topic_id(root, names[0]) if version >= 10 else names[0]]


def test_a_group_is_described_to_who_may_see_its_topics(root: RawClient, alice: RawClient) -> None:
    joined = ConsumerGroupHeartbeatRequest(
        group_id="of parts",
        member_id="m" * 22,
        member_epoch=0,
        rebalance_timeout_ms=300_000,
        topic_partitions=[],
        subscribed_topic_names=["parts"],
    )
    assert ask_until_settled(root, joined, 1).error_code == 0
    add(root, rule("alice", Operation.DESCRIBE, GROUP, "of parts"))
    asked = ConsumerGroupDescribeRequest(group_ids=["of parts"])
    (refused,) = alice.request(asked, 1).groups
    assert (refused.error_code, refused.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    add(root, rule("alice", Operation.DESCRIBE, TOPIC, "parts"))
    (shown,) = alice.request(asked, 1).groups
    assert (shown.error_code, len(shown.members)) == (0, 1)


def test_a_transaction_shows_the_topics_that_the_client_may_see(
    broker: LocalBroker, root: RawClient, alice: RawClient
) -> None:
    ask_until_settled(root, FindCoordinatorRequest(coordinator_keys=["a transaction"], key_type=1), 4)
    producer = TransactionalProducer(root, "a transaction")
    while producer.init() is not ErrorCode.NONE:
        pass
    assert producer.add("parts", 0) == [ErrorCode.NONE]
    add(root, rule("alice", Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "a transaction"))
    asked = DescribeTransactionsRequest(transactional_ids=["a transaction"])
    (state,) = alice.request(asked, 0).transaction_states
    assert (state.error_code, state.topics) == (0, [])
    add(root, rule("alice", Operation.DESCRIBE, TOPIC, "parts"))
    (state,) = alice.request(asked, 0).transaction_states
    assert [topic.topic for topic in state.topics] == ["parts"]
