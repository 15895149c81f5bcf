"""Committed offsets over the wire: every version of the requests, restarts, crashes, deletion, expiry by the clock."""

from collections.abc import Iterator
from typing import Any

import pytest

import ottla.testing
from ottla.errors import ErrorCode
from ottla.testing import LocalBroker
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.raw_client import RawClient
from tests.scenarios.client_calls import connect, create_topic, delete_topic, describe_topic, find_topic_id

GROUP, TRANSACTION, SHARE = 0, 1, 2


@pytest.fixture
def own_broker() -> Iterator[LocalBroker]:
    with ottla.testing.broker() as broker:
        broker.create_topic("t")
        yield broker


def commit(client: RawClient, group: str, offset: int, *, topic: str = "t", version: int = 9, **fields: Any) -> int:
    partition = OffsetCommitRequestPartition(
        committed_offset=offset, committed_leader_epoch=3, committed_metadata=fields.pop("metadata", "note")
    )
    asked = OffsetCommitRequestTopic(name=topic, partitions=[partition])
    if version >= 10:
        asked.topic_id = find_topic_id(client, topic)
    answer = client.request(OffsetCommitRequest(group_id=group, topics=[asked], **fields), version)
    (result,) = answer.topics
    assert result.topic_id == asked.topic_id if version >= 10 else result.name == topic
    code: int = result.partitions[0].error_code
    return code


def fetch(client: RawClient, group: str, *, topic: str = "t", version: int = 9) -> tuple[int, int, str | None, int]:
    """Fetch the committed offset of a partition. Returns offset, leader epoch, metadata and error code."""
    if version < 8:
        asked = OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
        answer = client.request(OffsetFetchRequest(group_id=group, topics=[asked]), version)
        partition = answer.topics[0].partitions[0]
    else:
        wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
        if version >= 10:
            wanted.topic_id = find_topic_id(client, topic)
        asked_group = OffsetFetchRequestGroup(group_id=group, topics=[wanted])
        answer = client.request(OffsetFetchRequest(groups=[asked_group]), version)
        partition = answer.groups[0].topics[0].partitions[0]
    return partition.committed_offset, partition.committed_leader_epoch, partition.metadata, partition.error_code


def offset(client: RawClient, group: str, **options: Any) -> int:
    return fetch(client, group, **options)[0]


@pytest.mark.parametrize("version", range(2, 11))
def test_every_version_commits(shared_broker: LocalBroker, version: int) -> None:
    """OffsetCommit in every version. The oldest versions have no leader epoch."""
    with connect(shared_broker) as client:
        topic, group = f"commits-{version}", f"committers-{version}"
        create_topic(client, topic)
        assert commit(client, group, 40 + version, topic=topic, version=version) == 0
        assert fetch(client, group, topic=topic) == (40 + version, 3 if version >= 6 else -1, "note", 0)
        unknown = OffsetCommitRequestTopic(name="unknown", topic_id=bytes(15) + b"x")
        unknown.partitions = [OffsetCommitRequestPartition()]
        answer = client.request(OffsetCommitRequest(group_id=group, topics=[unknown]), version)
        code = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answer.topics[0].partitions[0].error_code == code
        wrong = OffsetCommitRequest(
            group_id="no-such-group", member_id="m", generation_id_or_member_epoch=1, topics=[unknown]
        )
        code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
        assert client.request(wrong, version).topics[0].partitions[0].error_code == code


@pytest.mark.parametrize("version", range(1, 11))
def test_every_version_fetches(shared_broker: LocalBroker, version: int) -> None:
    """OffsetFetch of a partition, of one without an offset and, in versions that can, of all partitions."""
    with connect(shared_broker) as client:
        topic, group = f"fetches-{version}", f"fetchers-{version}"
        create_topic(client, topic)
        commit(client, group, 7, topic=topic)
        assert fetch(client, group, topic=topic, version=version) == (7, 3 if version >= 5 else -1, "note", 0)
        assert fetch(client, f"{group}-unknown", topic=topic, version=version) == (-1, -1, "", 0)
        if version < 2:
            return
        if version < 8:
            answer = client.request(OffsetFetchRequest(group_id=group, topics=None), version)
            (found,) = answer.topics
        else:
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
            (found,) = client.request(request, version).groups[0].topics
        assert found.partitions[0].committed_offset == 7
        assert version < 10 or found.topic_id == find_topic_id(client, topic)


def test_many_groups_at_once(shared_broker: LocalBroker) -> None:
    """Each group has its own answer, also an unknown one."""
    with connect(shared_broker) as client:
        create_topic(client, "batched")
        for number in range(20):
            commit(client, f"batched-{number}", number, topic="batched")
        groups = [OffsetFetchRequestGroup(group_id=f"batched-{number}", topics=None) for number in range(21)]
        answer = client.request(OffsetFetchRequest(groups=groups), 8).groups
        assert [group.group_id for group in answer] == [f"batched-{number}" for number in range(21)]
        offsets = [[each.committed_offset for topic in group.topics for each in topic.partitions] for group in answer]
        assert offsets == [*([number] for number in range(20)), []]


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_committed_offsets_survive_a_restart(own_broker: LocalBroker, ending: str) -> None:
    """Offsets of many groups in many partitions are kept, with metadata and leader epoch."""
    with connect(own_broker) as client:
        for number in range(200):
            assert commit(client, f"group-{number}", number, metadata=f"m{number}") == 0
    if ending == "stop":
        own_broker.stop()
    else:
        own_broker.kill()
    own_broker.restart()
    with connect(own_broker) as client:
        wait_until_loaded(client)
        for number in range(200):
            assert fetch(client, f"group-{number}") == (number, 3, f"m{number}", 0)


def wait_until_loaded(client: RawClient) -> None:
    while client.request(ListGroupsRequest(), 4).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        pass


def test_the_internal_topic_is_created_as_in_kafka(own_broker: LocalBroker) -> None:
    """The first FindCoordinator creates __consumer_offsets, with 50 partitions, as an internal topic."""
    with connect(own_broker) as client:
        assert describe_topic(client, "__consumer_offsets").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        asked = FindCoordinatorRequest(coordinator_keys=["a", "b"], key_type=GROUP)
        assert [each.error_code for each in client.request(asked, 4).coordinators] == [0, 0]
        topic = describe_topic(client, "__consumer_offsets")
        assert (len(topic.partitions), topic.is_internal) == (50, True)


@pytest.mark.parametrize("version", range(0, 7))
def test_finding_a_coordinator(shared_broker: LocalBroker, version: int) -> None:
    """The answer is this broker, at the address that the client used. Keys without a coordinator have an error each."""
    with connect(shared_broker) as client:
        request = FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"], key_type=GROUP)
        answer = client.request(request, version)
        found = answer.coordinators if version >= 4 else [answer]
        assert [(each.error_code, each.host, each.port) for each in found] == [
            (0, shared_broker.host, shared_broker.port)
        ] * (2 if version >= 4 else 1)
        if version >= 1:
            request.key_type = SHARE
            answer = client.request(request, version)
            found = answer.coordinators if version >= 4 else [answer]
            assert {(each.error_code, each.node_id) for each in found} == {(ErrorCode.INVALID_REQUEST, -1)}


def test_groups_are_listed_and_deleted(own_broker: LocalBroker) -> None:
    """Each deletion has its own result. A deleted group has no offsets."""
    with connect(own_broker) as client:
        assert client.request(ListGroupsRequest(), 5).groups == []
        commit(client, "g", 1)
        commit(client, "h", 2)
        listed = client.request(ListGroupsRequest(states_filter=["Empty"], types_filter=["classic"]), 5).groups
        assert sorted((group.group_id, group.group_state) for group in listed) == [("g", "Empty"), ("h", "Empty")]
        assert client.request(ListGroupsRequest(states_filter=["Stable"]), 4).groups == []
        results = client.request(DeleteGroupsRequest(groups_names=["g", "nope"]), 2).results
        assert {each.group_id: each.error_code for each in results} == {"g": 0, "nope": ErrorCode.GROUP_ID_NOT_FOUND}
        assert offset(client, "g") == -1
        assert offset(client, "h") == 2


def test_offsets_are_deleted(own_broker: LocalBroker) -> None:
    """The offsets of one group for a topic are deleted. Offsets of the group without a name cannot be."""
    with connect(own_broker) as client:
        commit(client, "g", 1)
        topic = OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        answer = client.request(OffsetDeleteRequest(group_id="g", topics=[topic]), 0)
        assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 0)
        assert offset(client, "g") == -1
        codes = [
            client.request(OffsetDeleteRequest(group_id=group, topics=[topic]), 0).error_code for group in ("", "nope")
        ]
        assert codes == [ErrorCode.INVALID_GROUP_ID, ErrorCode.GROUP_ID_NOT_FOUND]


def test_a_deleted_topic_takes_its_offsets_along(own_broker: LocalBroker) -> None:
    """A new topic of the same name begins without any."""
    with connect(own_broker) as client:
        create_topic(client, "doomed")
        commit(client, "g", 9, topic="doomed")
        commit(client, "g", 1)
        assert delete_topic(client, "doomed") == 0
        create_topic(client, "doomed")
        assert (offset(client, "g", topic="doomed"), offset(client, "g")) == (-1, 1)


def test_offsets_expire_by_the_clock(own_broker: LocalBroker) -> None:
    """Eight days later the offsets of an empty group are gone, and the group with them."""
    with connect(own_broker) as client:
        commit(client, "g", 1)
        own_broker.advance(days=8)
        while client.request(ListGroupsRequest(), 4).groups:
            own_broker.advance(minutes=11)
        assert offset(client, "g") == -1
