"""What is too large for a coordinator's log: it is refused, and neither its group nor any other notices."""

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
from tests.raw_client import RawClient

SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
MEMBER = "A" * 22
LIMIT = 100_000
MANY_NAMES = 1_000
"""So many cannot be stored, and one member may ask for so many."""

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


def noise(size: int) -> str:
    """Text that cannot be packed to less than three quarters of its size."""
    return base64.b64encode(_random.randbytes(size * 3 // 4)).decode()


def member_of(client: RawClient, group: str) -> HeartbeatRequest:
    """A classic group of one; its heartbeat fails as soon as its coordinator begins again."""
    joining = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )
    joining.member_id = client.request(joining, 9).member_id
    joined = client.request(joining, 9)
    syncing = SyncGroupRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
    assert client.request(syncing, 4).error_code == 0
    return HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)


def committing(group: str, metadata_size: int) -> OffsetCommitRequest:
    """Ten partitions, each with so many bytes of metadata."""
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata=noise(metadata_size))
        for index in range(10)
    ]
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name="wide", partitions=partitions)])


def subscribing(group: str, names: list[str]) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=MEMBER,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=names,
        topic_partitions=[],
    )


def test_offsets(client: RawClient) -> None:
    # Metadata of twice the size of a batch finds no room; a neighbour of the same partition keeps its coordinator.
    beating = member_of(client, "beside offsets")
    for _ in range(2):
        refused = client.request(committing("offsets", LIMIT // 5), 8)
        assert refused.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert client.request(beating, 4).error_code == 0
    assert client.request(committing("offsets", 10), 8).topics[0].partitions[0].error_code == 0


def test_a_subscription_of_a_new_group(client: RawClient) -> None:
    # There is no such group afterwards, and the same member is welcome when it wants less.
    beating = member_of(client, "beside a new group")
    names = [noise(200) for _ in range(MANY_NAMES)]
    for _ in range(2):
        assert client.request(subscribing("new", names), 1).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert client.request(beating, 4).error_code == 0
    assert "new" not in {group.group_id for group in client.request(ListGroupsRequest(), 5).groups}
    joined = client.request(subscribing("new", ["t"]), 1)
    assert (joined.error_code, [each.partitions for each in joined.assignment.topic_partitions]) == (0, [[0]])


def test_a_subscription_that_would_take_a_group_over(client: RawClient) -> None:
    # A classic group stays one, and its member does not notice; one who wants less turns it into a consumer group.
    beating = member_of(client, "taken")
    names = [noise(200) for _ in range(MANY_NAMES)]
    assert client.request(subscribing("taken", names), 1).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert client.request(beating, 4).error_code == 0
    kinds = {group.group_id: group.group_type for group in client.request(ListGroupsRequest(), 5).groups}
    assert kinds["taken"] == "classic"
    assert client.request(subscribing("taken", ["t"]), 1).error_code == 0
    kinds = {group.group_id: group.group_type for group in client.request(ListGroupsRequest(), 5).groups}
    assert kinds["taken"] == "consumer"


def test_a_change_of_a_members_subscription(broker: LocalBroker, client: RawClient) -> None:
    # It keeps what it has, and the next heartbeat sees the topic that has come since the last one that was not refused.
    joined = client.request(subscribing("changing", ["t", "later"]), 1)
    broker.create_topic("later")
    greedy = subscribing("changing", [noise(200) for _ in range(MANY_NAMES)])
    greedy.member_epoch = joined.member_epoch
    assert client.request(greedy, 1).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    calm = subscribing("changing", ["t", "later"])
    calm.member_epoch = joined.member_epoch
    answer = client.request(calm, 1)
    assert (answer.error_code, answer.member_epoch) == (0, joined.member_epoch + 1)
