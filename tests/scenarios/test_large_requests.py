"""Requests that are too large for the log of a coordinator are refused, and no group is affected."""

import base64
from collections.abc import Iterator
from random import Random

import pytest

from ottla.errors import ErrorCode
from ottla.testing import LocalBroker
from ottla.testing import broker as local_broker
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.sync_group import SyncGroupRequest
from tests.patience import PATIENCE_MS
from tests.raw_client import RawClient

SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
MEMBER = "A" * 22
LIMIT = 100_000
MANY_NAMES = 1_000
"""More topic names than can be stored, in one subscription."""

_random = Random(6)


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with local_broker(
        offsets_topic_num_partitions=1,
        offset_metadata_max_bytes=LIMIT,
        message_max_bytes=LIMIT,
        group_consumer_assignment_interval_ms=0,
    ) as running:
        running.create_topic("t")
        running.create_topic("wide", partitions=10)
        yield running


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[RawClient]:
    with RawClient(broker.host, broker.port, "client") as connected:
        while connected.request(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators[0].error_code:
            pass
        yield connected


def make_noise(size: int) -> str:
    """Text that no codec compresses to less than three quarters of its size."""
    return base64.b64encode(_random.randbytes(size * 3 // 4)).decode()


def join_group(client: RawClient, group: str) -> HeartbeatRequest:
    """Join a classic group as its only member. Returns a heartbeat, which fails if the coordinator was loaded again."""
    joining = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=PATIENCE_MS,
        rebalance_timeout_ms=PATIENCE_MS,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )
    joining.member_id = client.request(joining, 9).member_id
    joined = client.request(joining, 9)
    syncing = SyncGroupRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
    assert client.request(syncing, 4).error_code == 0
    return HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)


def build_commit(group: str, metadata_size: int) -> OffsetCommitRequest:
    """A commit of ten partitions, each with this many bytes of metadata."""
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=1, committed_metadata=make_noise(metadata_size)
        )
        for index in range(10)
    ]
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name="wide", partitions=partitions)])


def build_subscription(group: str, names: list[str]) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=MEMBER,
        rebalance_timeout_ms=PATIENCE_MS,
        subscribed_topic_names=names,
        topic_partitions=[],
    )


def test_offsets_that_are_too_large(client: RawClient) -> None:
    # Metadata of twice the size of a batch is refused. Another group in the same partition keeps its coordinator.
    beating = join_group(client, "beside offsets")
    for _ in range(2):
        refused = client.request(build_commit("offsets", LIMIT // 5), 8)
        assert refused.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert client.request(beating, 4).error_code == 0
    assert client.request(build_commit("offsets", 10), 8).topics[0].partitions[0].error_code == 0


def test_a_subscription_of_a_new_group(client: RawClient) -> None:
    # The group does not exist afterwards, and the member can join with a smaller subscription.
    beating = join_group(client, "beside a new group")
    names = [make_noise(200) for _ in range(MANY_NAMES)]
    for _ in range(2):
        assert client.request(build_subscription("new", names), 1).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert client.request(beating, 4).error_code == 0
    assert "new" not in {group.group_id for group in client.request(ListGroupsRequest(), 5).groups}
    joined = client.request(build_subscription("new", ["t"]), 1)
    assert (joined.error_code, [each.partitions for each in joined.assignment.topic_partitions]) == (0, [[0]])


def test_a_subscription_that_would_convert_a_classic_group(client: RawClient) -> None:
    # The classic group stays as it is. A member with a smaller subscription converts it to a consumer group.
    beating = join_group(client, "taken")
    names = [make_noise(200) for _ in range(MANY_NAMES)]
    assert client.request(build_subscription("taken", names), 1).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert client.request(beating, 4).error_code == 0
    kinds = {group.group_id: group.group_type for group in client.request(ListGroupsRequest(), 5).groups}
    assert kinds["taken"] == "classic"
    assert client.request(build_subscription("taken", ["t"]), 1).error_code == 0
    kinds = {group.group_id: group.group_type for group in client.request(ListGroupsRequest(), 5).groups}
    assert kinds["taken"] == "consumer"


def test_a_change_of_a_members_subscription(broker: LocalBroker, client: RawClient) -> None:
    # The member keeps its assignment, and its next heartbeat sees a topic that was created meanwhile.
    joined = client.request(build_subscription("changing", ["t", "later"]), 1)
    broker.create_topic("later")
    greedy = build_subscription("changing", [make_noise(200) for _ in range(MANY_NAMES)])
    greedy.member_epoch = joined.member_epoch
    assert client.request(greedy, 1).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    calm = build_subscription("changing", ["t", "later"])
    calm.member_epoch = joined.member_epoch
    answer = client.request(calm, 1)
    assert (answer.error_code, answer.member_epoch) == (0, joined.member_epoch + 1)
