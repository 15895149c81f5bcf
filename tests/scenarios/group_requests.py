"""One request of each API of groups and transactions, for tests that go through all versions.

Every request is the only one on its connection. Joining a group takes two, so the sender is no member and owns no
transaction, and most answers say so.
"""

from collections.abc import Callable

from ottla.wire.message import Message
from ottla.wire.messages import (
    add_partitions_to_txn,
    join_group,
    leave_group,
    offset_commit,
    offset_delete,
    offset_fetch,
    txn_offset_commit,
    write_txn_markers,
)
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.list_transactions import ListTransactionsRequest
from ottla.wire.messages.sync_group import SyncGroupRequest

MEMBER, NOBODY, TRANSACTION = "a member", "nobody's group", "nobody's transaction"
NO_PRODUCER = 777_000


def group_of(topic: str) -> str:
    """The group that commits offsets of a topic."""
    return f"group of {topic}"


def join(version: int, topic: str) -> Message:
    protocols = [join_group.JoinGroupRequestProtocol(name="range", metadata=b"")]
    return join_group.JoinGroupRequest(
        group_id=NOBODY,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=MEMBER,
        protocol_type="consumer",
        protocols=protocols,
    )


def leave(version: int, topic: str) -> Message:
    if version < 3:
        return leave_group.LeaveGroupRequest(group_id=NOBODY, member_id=MEMBER)
    return leave_group.LeaveGroupRequest(group_id=NOBODY, members=[leave_group.MemberIdentity(member_id=MEMBER)])


def commit(version: int, topic: str) -> Message:
    """A commit without membership, as a consumer with manually assigned partitions sends it."""
    partition = offset_commit.OffsetCommitRequestPartition(committed_offset=1, committed_metadata="here")
    asked = offset_commit.OffsetCommitRequestTopic(name=topic, partitions=[partition])
    return offset_commit.OffsetCommitRequest(group_id=group_of(topic), topics=[asked])


def committed(version: int, topic: str) -> Message:
    if version < 8:
        of_one = [offset_fetch.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
        return offset_fetch.OffsetFetchRequest(group_id=group_of(topic), topics=of_one)
    topics = [offset_fetch.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    asked = offset_fetch.OffsetFetchRequestGroup(group_id=group_of(topic), topics=topics)
    return offset_fetch.OffsetFetchRequest(groups=[asked])


def forget(version: int, topic: str) -> Message:
    partition = offset_delete.OffsetDeleteRequestPartition(partition_index=0)
    asked = offset_delete.OffsetDeleteRequestTopic(name=topic, partitions=[partition])
    return offset_delete.OffsetDeleteRequest(group_id=NOBODY, topics=[asked])


def add_partitions(version: int, topic: str) -> Message:
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(name=topic, partitions=[0])]
    if version < 4:
        return add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTION, v3_and_below_producer_id=NO_PRODUCER, v3_and_below_topics=topics
        )
    transaction = add_partitions_to_txn.AddPartitionsToTxnTransaction(
        transactional_id=TRANSACTION, producer_id=NO_PRODUCER, topics=topics
    )
    return add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[transaction])


def commit_in_transaction(version: int, topic: str) -> Message:
    partition = txn_offset_commit.TxnOffsetCommitRequestPartition(committed_offset=1)
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=TRANSACTION,
        group_id=NOBODY,
        producer_id=NO_PRODUCER,
        generation_id=3,
        member_id=MEMBER,
        topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )


def write_markers(version: int, topic: str) -> Message:
    asked = write_txn_markers.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])
    marker = write_txn_markers.WritableTxnMarker(producer_id=NO_PRODUCER, topics=[asked])
    return write_txn_markers.WriteTxnMarkersRequest(markers=[marker])


GROUP_REQUESTS: dict[str, Callable[[int, str], Message]] = {
    "AddOffsetsToTxn": lambda version, topic: AddOffsetsToTxnRequest(
        transactional_id=TRANSACTION, producer_id=NO_PRODUCER, group_id=NOBODY
    ),
    "AddPartitionsToTxn": add_partitions,
    "ConsumerGroupDescribe": lambda version, topic: ConsumerGroupDescribeRequest(group_ids=[NOBODY]),
    "ConsumerGroupHeartbeat": lambda version, topic: ConsumerGroupHeartbeatRequest(
        group_id=NOBODY, member_id=MEMBER, member_epoch=-1
    ),
    "DeleteGroups": lambda version, topic: DeleteGroupsRequest(groups_names=[NOBODY]),
    "DescribeGroups": lambda version, topic: DescribeGroupsRequest(groups=[NOBODY]),
    "DescribeTransactions": lambda version, topic: DescribeTransactionsRequest(transactional_ids=[TRANSACTION]),
    "EndTxn": lambda version, topic: EndTxnRequest(transactional_id=TRANSACTION, producer_id=NO_PRODUCER),
    "Heartbeat": lambda version, topic: HeartbeatRequest(group_id=NOBODY, member_id=MEMBER),
    "JoinGroup": join,
    "LeaveGroup": leave,
    "ListGroups": lambda version, topic: ListGroupsRequest(),
    "ListTransactions": lambda version, topic: ListTransactionsRequest(producer_id_filters=[NO_PRODUCER]),
    "OffsetCommit": commit,
    "OffsetDelete": forget,
    "OffsetFetch": committed,
    "SyncGroup": lambda version, topic: SyncGroupRequest(
        group_id=NOBODY, member_id=MEMBER, protocol_type="consumer", protocol_name="range"
    ),
    "TxnOffsetCommit": commit_in_transaction,
    "WriteTxnMarkers": write_markers,
}
