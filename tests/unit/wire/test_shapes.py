"""Old forms of requests and responses, as clients of old versions write and read them."""

from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.wire import frames, schema, substitutes
from ottla.wire.message import Message
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.init_producer_id import InitProducerIdResponse
from ottla.wire.messages.join_group import JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest


def received(request: Any, version: int) -> Any:
    """The request as a handler sees it when a client sends it in that version."""
    encoded = schema.encode(type(request), version, request)
    return frames.decode_request(frames.find_api_of(request), version, encoded)


def answered(response: Any, version: int) -> Any:
    """The response as a client of that version reads it."""
    encoded = frames.encode_response(frames.find_api_of(response), version, response)
    return schema.decode(type(response), version, encoded)


def test_find_coordinator() -> None:
    """One key becomes a list of one, and its answer moves to the top level."""
    assert received(FindCoordinatorRequest(key="g", key_type=1), 3).coordinator_keys == ["g"]
    assert received(FindCoordinatorRequest(coordinator_keys=["a", "b"]), 4).coordinator_keys == ["a", "b"]
    coordinator = Coordinator(key="g", node_id=3, host="h", port=9, error_code=15, error_message="no")
    old = answered(FindCoordinatorResponse(coordinators=[coordinator]), 3)
    assert (old.node_id, old.host, old.port, old.error_code, old.error_message) == (3, "h", 9, 15, "no")
    assert answered(FindCoordinatorResponse(coordinators=[coordinator]), 4).coordinators == [coordinator]


def test_offset_fetch_request() -> None:
    """One group's topics become a list of one group; null, for all topics, stays null."""
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[1, 2])]
    request = received(OffsetFetchRequest(group_id="g", topics=topics), 7)
    same_topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[1, 2])]
    assert request.groups == [OffsetFetchRequestGroup(group_id="g", topics=same_topics)]
    assert received(OffsetFetchRequest(group_id="g", topics=None), 2).groups[0].topics is None


def offset_fetch_response(group_error: int) -> OffsetFetchResponse:
    partition = OffsetFetchResponsePartitions(partition_index=1, committed_offset=5, metadata="m")
    topic = OffsetFetchResponseTopics(name="t", partitions=[partition])
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic], error_code=group_error)])


def test_offset_fetch_response() -> None:
    """The group's topics and error move to the top level. Before version 2 the error goes to every partition."""
    partition = OffsetFetchResponsePartition(partition_index=1, committed_offset=5, metadata="m")
    old = answered(offset_fetch_response(0), 7)
    assert old.topics == [OffsetFetchResponseTopic(name="t", partitions=[partition])]
    assert answered(offset_fetch_response(16), 2).error_code == 16
    oldest = answered(offset_fetch_response(16), 1).topics[0].partitions[0]
    assert (oldest.error_code, oldest.committed_offset, oldest.metadata) == (16, -1, "")


def test_leave_group() -> None:
    """One member becomes a list of one, and its error moves to the top level unless there is one already."""
    assert received(LeaveGroupRequest(group_id="g", member_id="m"), 2).members == [MemberIdentity(member_id="m")]
    members = [MemberResponse(member_id="m", error_code=25)]
    assert answered(LeaveGroupResponse(members=list(members)), 2).error_code == 25
    assert answered(LeaveGroupResponse(members=list(members), error_code=16), 2).error_code == 16
    assert answered(LeaveGroupResponse(members=list(members)), 3).error_code == 0


def test_delete_topics() -> None:
    """Names become topics by name."""
    assert received(DeleteTopicsRequest(topic_names=["a"]), 5).topics == [DeleteTopicState(name="a")]
    by_id = [DeleteTopicState(name=None, topic_id=b"i" * 16)]
    assert received(DeleteTopicsRequest(topics=by_id), 6).topics == by_id


def test_add_partitions_to_txn() -> None:
    """One transaction becomes a list of one, and back."""
    topics = [AddPartitionsToTxnTopic(name="t", partitions=[1])]
    old = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=7,
        v3_and_below_producer_epoch=2,
        v3_and_below_topics=topics,
    )
    transaction = AddPartitionsToTxnTransaction(transactional_id="x", producer_id=7, producer_epoch=2, topics=topics)
    assert received(old, 3).transactions == [transaction]
    partition = AddPartitionsToTxnPartitionResult(partition_index=1, partition_error_code=3)
    results = [AddPartitionsToTxnTopicResult(name="t", results_by_partition=[partition])]
    new = AddPartitionsToTxnResponse(
        results_by_transaction=[AddPartitionsToTxnResult(transactional_id="x", topic_results=results)]
    )
    assert answered(new, 3).results_by_topic_v3_and_below == results


@pytest.mark.parametrize(("allow_downgrade", "upgrade_type"), [(False, 1), (True, 2)])
def test_update_features(allow_downgrade: bool, upgrade_type: int) -> None:
    """The old permission to downgrade is a safe downgrade."""
    update = FeatureUpdateKey(feature="f", max_version_level=1, allow_downgrade=allow_downgrade)
    request = received(UpdateFeaturesRequest(feature_updates=[update]), 0)
    assert request.feature_updates[0].upgrade_type == upgrade_type


def test_join_group_without_a_protocol() -> None:
    """Null for no protocol is an empty name in versions that have no null."""
    assert answered(JoinGroupResponse(protocol_name=None), 6).protocol_name == ""
    assert answered(JoinGroupResponse(protocol_name=None), 7).protocol_name is None


@pytest.mark.parametrize(
    ("response", "version", "expected"),
    [
        (InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED), 3, ErrorCode.INVALID_PRODUCER_EPOCH),
        (InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED), 4, ErrorCode.PRODUCER_FENCED),
        (InitProducerIdResponse(error_code=ErrorCode.NOT_COORDINATOR), 3, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_substitute_at_the_top(response: Message, version: int, expected: int) -> None:
    """Only the code that a version does not know is replaced, and only below the version that knows it."""
    assert answered(response, version).error_code == expected


def test_substitutes_at_any_depth() -> None:
    """The codes of partitions and of topics are replaced too."""
    partition = ListOffsetsPartitionResponse(error_code=ErrorCode.OFFSET_NOT_AVAILABLE)
    response = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[partition])])
    assert answered(response, 5).topics[0].partitions[0].error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert answered(response, 4).topics[0].partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    deleted = DeletableTopicResult(name="t", error_code=ErrorCode.TOPIC_DELETION_DISABLED)
    assert answered(DeleteTopicsResponse(responses=[deleted]), 2).responses[0].error_code == ErrorCode.INVALID_REQUEST
    result = AddPartitionsToTxnPartitionResult(partition_index=1, partition_error_code=ErrorCode.PRODUCER_FENCED)
    topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=[result])
    added = AddPartitionsToTxnResponse(results_by_transaction=[AddPartitionsToTxnResult(topic_results=[topic])])
    old = answered(added, 1).results_by_topic_v3_and_below[0].results_by_partition[0]
    assert old.partition_error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_substitute_of_one_code() -> None:
    """The hand-written codecs ask for one code at a time."""
    storage, not_leader = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert substitutes.substitute("FetchResponse", 5, storage) == not_leader
    assert substitutes.substitute("FetchResponse", 6, storage) == storage
    assert substitutes.substitute("ProduceResponse", 3, storage) == not_leader
    assert substitutes.substitute("HeartbeatResponse", 0, storage) == storage
