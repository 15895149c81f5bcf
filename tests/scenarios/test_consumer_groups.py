"""Consumer groups (KIP-848) over the wire: ids, switches, descriptions, offsets, deletion, a restart."""

from typing import Any

import pytest

import ottla.testing
from ottla.errors import ErrorCode
from ottla.security import operations
from ottla.testing import LocalBroker
from ottla.wire.messages import offset_commit, offset_fetch
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.raw_client import RawClient
from tests.scenarios.client_calls import connect, create_topic

SAFE_DOWNGRADE = 2


def beat(client: RawClient, group: str, member_id: str, epoch: int, version: int = 1, **fields: Any) -> Any:
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **fields)
    response = client.request(request, version)
    assert isinstance(response, ConsumerGroupHeartbeatResponse)
    return response


def join(client: RawClient, group: str, topic: str, member_id: str = "m", version: int = 1) -> Any:
    joining: dict[str, Any] = {"rebalance_timeout_ms": 10_000, "topic_partitions": []}
    return beat(client, group, member_id, 0, version, subscribed_topic_names=[topic], **joining)


def describe(client: RawClient, group: str, version: int = 1, operations: bool = False) -> Any:
    asked = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=operations)
    (described,) = client.request(asked, version).groups
    return described


def test_before_version_1_members_are_given_an_id(client: RawClient, topic: str) -> None:
    # The id has the length of Kafka's. From version 1 on a member has to send an id of its own.
    joined = join(client, topic, topic, member_id="", version=0)
    assert (joined.error_code, len(joined.member_id), joined.heartbeat_interval_ms) == (0, 22, 5000)
    assert joined.assignment.topic_partitions[0].partitions == [0]
    assert beat(client, topic, joined.member_id, joined.member_epoch, 0).error_code == 0
    assert join(client, topic, topic, member_id="", version=1).error_code == ErrorCode.INVALID_REQUEST


def test_groups_are_described(client: RawClient, topic: str) -> None:
    # ConsumerGroupDescribe of a group, with authorized operations, and of an unknown one, with an error message.
    join(client, topic, topic)
    told = describe(client, topic, operations=True)
    assert (told.group_state, told.authorized_operations) == ("Stable", operations.ON_GROUP)
    (member,) = told.members
    assert (member.client_id, member.member_type) == ("raw", 1)
    assert describe(client, topic, version=0).members[0].member_type == -1
    missing = describe(client, "no such group")
    assert (missing.error_code, bool(missing.error_message)) == (ErrorCode.GROUP_ID_NOT_FOUND, True)
    assert describe(client, "").error_code == ErrorCode.INVALID_GROUP_ID
    listed = client.request(ListGroupsRequest(types_filter=["Consumer"], states_filter=["stable"]), 5).groups
    assert [each.group_type for each in listed if each.group_id == topic] == ["consumer"]


def test_offsets_need_the_members_epoch(client: RawClient, topic: str) -> None:
    # A commit of an unknown member, or with an old member epoch, is never stored.
    epoch = join(client, topic, topic).member_epoch
    for member_id, at, code in (
        ("m", epoch, ErrorCode.NONE),
        ("m", epoch + 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("m", epoch - 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", epoch, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert commit(client, topic, member_id, at, 10 if not code else 99) == code
    assert fetch_offset(client, topic, "m", epoch) == (ErrorCode.NONE, 10)
    assert fetch_offset(client, topic, None, -1) == (ErrorCode.NONE, 10)
    assert fetch_offset(client, topic, "m", epoch + 1)[0] == ErrorCode.STALE_MEMBER_EPOCH
    assert fetch_offset(client, topic, "x", epoch)[0] == ErrorCode.UNKNOWN_MEMBER_ID


def commit(client: RawClient, topic: str, member_id: str, epoch: int, offset: int) -> int:
    partition = offset_commit.OffsetCommitRequestPartition(committed_offset=offset)
    request = offset_commit.OffsetCommitRequest(
        group_id=topic,
        member_id=member_id,
        generation_id_or_member_epoch=epoch,
        topics=[offset_commit.OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    code: int = client.request(request, 9).topics[0].partitions[0].error_code
    return code


def fetch_offset(client: RawClient, topic: str, member_id: str | None, epoch: int) -> tuple[int, int | None]:
    asked = offset_fetch.OffsetFetchRequestGroup(
        group_id=topic,
        member_id=member_id,
        member_epoch=epoch,
        topics=[offset_fetch.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])],
    )
    (group,) = client.request(offset_fetch.OffsetFetchRequest(groups=[asked]), 9).groups
    return group.error_code, None if group.error_code else group.topics[0].partitions[0].committed_offset


def test_only_an_empty_group_can_be_deleted(client: RawClient, topic: str) -> None:
    # A group with members cannot be deleted. A deleted group leaves nothing behind.
    join(client, topic, topic)
    request = DeleteGroupsRequest(groups_names=[topic])
    assert client.request(request, 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    assert beat(client, topic, "m", -1).member_epoch == -1
    assert client.request(request, 2).results[0].error_code == 0
    assert describe(client, topic).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert beat(client, topic, "m", 3).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_restart_keeps_members_and_epochs() -> None:
    # After kill -9 the group is restored from its log: members keep their epochs and assignments.
    with ottla.testing.broker(process=True) as broker:
        with connect(broker) as client:
            create_topic(client, "t", 3)
            epoch = join(client, "g", "t").member_epoch
            before = describe(client, "g")
        broker.kill()
        broker.restart()
        with connect(broker) as client:
            while (after := describe(client, "g")).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                pass
            assert after == before
            again = beat(client, "g", "m", epoch)
            assert (again.error_code, again.member_epoch, again.assignment) == (0, epoch, None)


@pytest.fixture
def own_broker() -> Any:
    with ottla.testing.broker() as broker:
        yield broker


def test_the_feature_can_be_switched_off(own_broker: LocalBroker) -> None:
    # With group.version 0 a consumer group cannot be created, and the error says why.
    with connect(own_broker) as client:
        create_topic(client, "t")
        assert join(client, "g", "t").error_code == 0
        update = FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=SAFE_DOWNGRADE)
        assert client.request(UpdateFeaturesRequest(feature_updates=[update]), 1).error_code == 0
        refused = join(client, "g", "t")
        assert (refused.error_code, bool(refused.error_message)) == (ErrorCode.UNSUPPORTED_VERSION, True)


def test_the_protocol_can_be_switched_off() -> None:
    # group.coordinator.rebalance.protocols leaves only the classic protocol, as in Kafka.
    with ottla.testing.broker(group_coordinator_rebalance_protocols="classic") as broker, connect(broker) as client:
        assert join(client, "g", "t").error_code == ErrorCode.UNSUPPORTED_VERSION
