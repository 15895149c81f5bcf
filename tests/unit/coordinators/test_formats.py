"""Records of the internal topics, byte for byte as Apache Kafka 4.3 writes them."""

import pytest

from ottla.coordinators.formats import (
    GROUP_FORMAT,
    TRANSACTION_FORMAT,
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentPartitions,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    RecordFormat,
    TargetPartitions,
    TransactionLogKey,
    TransactionLogValue,
    TransactionPartitions,
)
from ottla.coordinators.machine import StoredRecord
from ottla.wire.malformed import Malformed
from ottla.wire.message import Message

TOPIC_ID = bytes(range(1, 17))

# The bytes that Kafka's own serializers write for the same values.
WRITTEN_BY_KAFKA: list[tuple[RecordFormat, Message, Message, str, str]] = [
    (
        GROUP_FORMAT,
        OffsetCommitKey(group_id="gruppe", topic="t", partition=3),
        OffsetCommitValue(offset=77, leader_epoch=5, metadata="m", commit_timestamp=1000, topic_id=TOPIC_ID),
        "0001000667727570706500017400000003",
        "0004000000000000004d00000005026d00000000000003e80100100102030405060708090a0b0c0d0e0f10",
    ),
    (
        GROUP_FORMAT,
        OffsetCommitKey(group_id="g", topic="t", partition=3),
        OffsetCommitValue(offset=77, metadata="m", commit_timestamp=1000, expire_timestamp=2000),
        "000100016700017400000003",
        "0001000000000000004d00016d00000000000003e800000000000007d0",
    ),
    (
        GROUP_FORMAT,
        GroupMetadataKey(group_id="g"),
        GroupMetadataValue(
            protocol_type="consumer",
            generation=4,
            protocol="range",
            leader="m1",
            current_state_timestamp=9,
            members=[
                MemberMetadata(
                    member_id="m1",
                    group_instance_id="i",
                    client_id="c",
                    client_host="/h",
                    rebalance_timeout=5,
                    session_timeout=6,
                    subscription=b"\1",
                    assignment=b"\2\3",
                )
            ],
        ),
        "0002000167",
        "00030008636f6e73756d657200000004000572616e676500026d3100000000000000090000000100026d3100016900016300022f68"
        "00000005000000060000000101000000020203",
    ),
    (
        GROUP_FORMAT,
        ConsumerGroupMetadataKey(group_id="g"),
        ConsumerGroupMetadataValue(epoch=7, metadata_hash=8),
        "0003000167",
        "0000000000070100080000000000000008",
    ),
    (
        GROUP_FORMAT,
        ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
        ConsumerGroupMemberMetadataValue(
            rack_id="r",
            client_id="c",
            client_host="/h",
            subscribed_topic_names=["a", "b"],
            subscribed_topic_regex="x.*",
            rebalance_timeout_ms=9,
            server_assignor="uniform",
        ),
        "000500016700016d",
        "00000002720263032f68030261026204782e2a0000000908756e69666f726d01000100",
    ),
    (
        GROUP_FORMAT,
        ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
        ConsumerGroupMemberMetadataValue(
            client_id="c",
            client_host="/h",
            classic_member_metadata=ClassicMemberMetadata(
                session_timeout_ms=3, supported_protocols=[ClassicProtocol(name="range", metadata=b"\4")]
            ),
        ),
        "000500016700016d",
        "000000000263032f680100ffffffff000100100100000003020672616e676502040000",
    ),
    (
        GROUP_FORMAT,
        ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=2, assignment_timestamp=5),
        "0006000167",
        "0000000000020100080000000000000005",
    ),
    (
        GROUP_FORMAT,
        ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[TargetPartitions(topic_id=TOPIC_ID, partitions=[1, 2])]
        ),
        "000700016700016d",
        "0000020102030405060708090a0b0c0d0e0f100300000001000000020000",
    ),
    (
        GROUP_FORMAT,
        ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=3,
            previous_member_epoch=2,
            state=1,
            assigned_partitions=[CurrentPartitions(topic_id=TOPIC_ID, partitions=[1], assignment_epochs=[3])],
            partitions_pending_revocation=[CurrentPartitions(topic_id=TOPIC_ID, partitions=[2])],
        ),
        "000800016700016d",
        "0000000000030000000201020102030405060708090a0b0c0d0e0f1002000000010100050200000003020102030405060708090a0b"
        "0c0d0e0f1002000000020000",
    ),
    (
        GROUP_FORMAT,
        ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="a.*"),
        ConsumerGroupRegularExpressionValue(topics=["a1"], version=5, timestamp=6),
        "00100001670003612e2a",
        "0000020361310000000000000005000000000000000600",
    ),
    (
        TRANSACTION_FORMAT,
        TransactionLogKey(transactional_id="tx"),
        TransactionLogValue(
            producer_id=1,
            producer_epoch=2,
            transaction_timeout_ms=3,
            transaction_status=1,
            transaction_partitions=[TransactionPartitions(topic="t", partition_ids=[0, 1])],
            transaction_last_update_timestamp_ms=4,
            transaction_start_timestamp_ms=5,
            previous_producer_id=6,
            next_producer_id=7,
            client_transaction_version=2,
            next_producer_epoch=8,
        ),
        "000000027478",
        "00010000000000000001000200000003010202740300000000000000010000000000000000040000000000000005040008000000000"
        "0000006010800000000000000070202000203020008",
    ),
]


@pytest.mark.parametrize(("form", "key", "value", "key_hex", "value_hex"), WRITTEN_BY_KAFKA)
def test_same_bytes_as_kafka(form: RecordFormat, key: Message, value: Message, key_hex: str, value_hex: str) -> None:
    """A record is encoded to the bytes that Kafka writes, and they are decoded to the same record."""
    record = StoredRecord(key, value)
    encoded = form.encode(record)
    assert (encoded[0].hex(), (encoded[1] or b"").hex()) == (key_hex, value_hex)
    assert form.decode(bytes.fromhex(key_hex), bytes.fromhex(value_hex)) == record


def test_tombstone() -> None:
    """A record that deletes has a key and no value, in both directions."""
    record = StoredRecord(GroupMetadataKey(group_id="g"), None)
    assert GROUP_FORMAT.encode(record) == (bytes.fromhex("0002000167"), None)
    assert GROUP_FORMAT.decode(bytes.fromhex("0002000167"), None) == record


def test_unknown_type_is_passed_over() -> None:
    """A record type of a newer broker, or of share groups, cannot be replayed."""
    assert GROUP_FORMAT.decode(bytes.fromhex("000b000167"), b"\0\0") is None


def test_oldest_offsets_are_read() -> None:
    """Kafka before 0.9 wrote offsets with another version. They are read like any others."""
    record = GROUP_FORMAT.decode(
        bytes.fromhex("000000016700017400000003"), bytes.fromhex("0000000000000000004d00016d00000000000003e8")
    )
    key = OffsetCommitKey(group_id="g", topic="t", partition=3)
    assert record == StoredRecord(key, OffsetCommitValue(offset=77, metadata="m", commit_timestamp=1000))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"", b""),
        (b"\0", b""),
        (bytes.fromhex("0002000967"), None),
        (bytes.fromhex("0002000167"), b""),
        (bytes.fromhex("0002000167"), bytes.fromhex("0009")),
        (bytes.fromhex("0002000167"), bytes.fromhex("000300ff")),
    ],
)
def test_damaged_records(key: bytes | None, value: bytes | None) -> None:
    """Any bytes in the topic raise Malformed and nothing else, so that loading can pass over them."""
    with pytest.raises(Malformed):
        GROUP_FORMAT.decode(key, value)
