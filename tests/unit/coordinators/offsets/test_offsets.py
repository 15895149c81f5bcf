"""Committed offsets: what is stored, for whom, for how long, and what a reader gets."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.cluster.changes import CreateTopic, DeleteTopic
from ottla.coordinators.formats import GROUP_FORMAT, OffsetCommitValue
from ottla.coordinators.machine import ProducerIdentity
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.offset_fetch import OffsetFetchRequestTopics
from ottla.wire.schema import encode
from tests.unit.coordinators.offset_desk import DAY_MS, HOUR_MS, Desk, topic_id_of

PRODUCER = ProducerIdentity(7, 0)
OTHER = ProducerIdentity(8, 3)


def refusal(action: Callable[..., Any], *arguments: Any, **fields: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        action(*arguments, **fields)
    return caught.value.code


# --- committing and reading ---


def test_metadata_and_leader_epoch_come_back() -> None:
    """A client gets what it stored with an offset, also from the next coordinator."""
    desk = Desk()
    assert desk.commit(41, metadata="my state", leader_epoch=6) == 0
    for _ in range(2):
        found = desk.fetch()
        assert (found.committed_offset, found.metadata, found.committed_leader_epoch) == (41, "my state", 6)
        desk.reload()


def test_the_last_commit_counts() -> None:
    """Offsets may go back: a client that seeks commits what it wants."""
    desk = Desk()
    desk.commit(41)
    desk.commit(3)
    assert desk.offset() == 3
    desk.reload()
    assert desk.offset() == 3


def test_a_partition_without_a_commit() -> None:
    """The answer is offset -1 without an error, if the group, the topic or the partition is not known."""
    desk = Desk()
    desk.commit(1)
    assert desk.offset(group="h") == desk.offset("u") == desk.offset(partition=1) == desk.offset("nowhere") == -1
    assert desk.fetch(group="h").metadata == ""


def test_no_metadata_is_empty_metadata() -> None:
    """It is null on the wire, and an empty text in the log."""
    desk = Desk()
    desk.commit(1, metadata=None)
    assert desk.fetch().metadata == ""


def test_metadata_has_a_limit() -> None:
    """A partition with longer metadata is refused, the others of the request are not, and nothing of it is stored."""
    desk = Desk(offset_metadata_max_bytes=10)
    assert desk.commit(1, metadata="x" * 10) == 0
    assert desk.commit(2, metadata="x" * 11) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert desk.offset() == 1


def test_offsets_of_unknown_topics_are_not_stored() -> None:
    """They are refused by name and by id, each with its own error."""
    desk = Desk()
    assert desk.commit(1, topic="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert desk.commit(1, topic="nowhere", version=10) == ErrorCode.UNKNOWN_TOPIC_ID
    assert not desk.log


def test_topics_by_id() -> None:
    """From version 10 on requests name topics by id; what is stored is the same."""
    desk = Desk()
    assert desk.commit(5, topic="u", version=10) == 0
    assert desk.offset("u") == 5
    asked = [OffsetFetchRequestTopics(topic_id=topic_id_of(name), partition_indexes=[0]) for name in ("u", "x")]
    known, unknown = desk.fetch_group(asked, version=10).topics
    assert known.partitions[0].committed_offset == 5
    assert unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    (everything,) = desk.fetch_group(None, version=10).topics
    assert everything.topic_id == topic_id_of("u")


def test_all_topics_of_a_group() -> None:
    """The answer has every partition with an offset, and no other."""
    desk = Desk()
    desk.commit(1, topic="t", partition=0)
    desk.commit(2, topic="t", partition=2)
    desk.commit(3, topic="u", partition=1)
    desk.commit(4, group="h")
    found = {topic.name: {each.partition_index for each in topic.partitions} for topic in desk.fetch_group(None).topics}
    assert found == {"t": {0, 2}, "u": {1}}


def test_a_new_topic_has_no_offsets_of_an_old_one() -> None:
    """The topic was deleted while the group had no coordinator. An offset of another topic id does not count."""
    desk = Desk()
    desk.commit(5)
    new = CreateTopic(topic_id_of("new t"), "t")
    desk.image = desk.image.replay(2, [DeleteTopic(topic_id_of("t")), new])
    assert desk.offset() == -1


# --- who may commit ---


def test_only_members_commit() -> None:
    """A commit of an old generation, of an unknown member or of one that has left stores nothing."""
    desk = Desk()
    desk.join("m")
    assert desk.commit(1, member_id="m", generation_id_or_member_epoch=1) == 0
    assert refusal(desk.commit, 2, member_id="m", generation_id_or_member_epoch=0) == ErrorCode.ILLEGAL_GENERATION
    assert refusal(desk.commit, 2, member_id="x", generation_id_or_member_epoch=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(desk.commit, 2) == ErrorCode.UNKNOWN_MEMBER_ID
    desk.leave("m")
    assert refusal(desk.commit, 2, member_id="m", generation_id_or_member_epoch=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.offset() == 1
    desk.reload()
    assert desk.offset() == 1


def test_a_member_of_an_unknown_group() -> None:
    """Old clients are told to join again, new ones that the group is gone."""
    desk = Desk()
    member = {"member_id": "m", "generation_id_or_member_epoch": 1}
    assert refusal(desk.commit, 1, version=8, **member) == ErrorCode.ILLEGAL_GENERATION
    assert refusal(desk.commit, 1, version=9, **member) == ErrorCode.GROUP_ID_NOT_FOUND
    assert not desk.groups.groups


def test_any_client_may_commit_to_an_empty_group() -> None:
    """Administrators and consumers that assign themselves commit without being members."""
    desk = Desk()
    assert desk.commit(1) == 0
    assert desk.listed() == ["g Empty classic ''"]
    desk.join()
    desk.leave()
    assert desk.commit(2) == 0


# --- transactions ---


def test_offsets_are_pending_until_the_marker() -> None:
    """A reader that wants stable offsets waits; another one gets the offset from before."""
    desk = Desk()
    desk.commit(1)
    assert desk.commit_in_transaction(9, PRODUCER) == 0
    for _ in range(2):
        assert desk.offset() == 1
        assert desk.offset(stable=True) == "UNSTABLE_OFFSET_COMMIT"
        assert desk.offset(partition=1, stable=True) == -1
        desk.reload()
    desk.end_transaction(PRODUCER, committed=True)
    for _ in range(2):
        assert desk.offset() == desk.offset(stable=True) == 9
        desk.reload()


def test_an_aborted_transaction_leaves_nothing() -> None:
    """The offset is what it was, and nobody waits any more."""
    desk = Desk()
    desk.commit(1)
    desk.commit_in_transaction(9, PRODUCER)
    desk.end_transaction(PRODUCER, committed=False)
    for _ in range(2):
        assert desk.offset(stable=True) == 1
        desk.reload()


def test_transactions_do_not_mix() -> None:
    """Two producers commit one partition: each marker ends its own transaction, and the later offset in the log
    counts."""
    desk = Desk()
    desk.commit_in_transaction(5, PRODUCER)
    desk.commit_in_transaction(6, OTHER)
    desk.end_transaction(OTHER, committed=True)
    assert desk.offset() == 6
    assert desk.offset(stable=True) == "UNSTABLE_OFFSET_COMMIT"
    desk.end_transaction(PRODUCER, committed=True)
    for _ in range(2):
        assert desk.offset(stable=True) == 6
        desk.reload()


def test_a_later_commit_overtakes_a_transaction() -> None:
    """The order of the log decides, not that of the markers."""
    desk = Desk()
    desk.commit_in_transaction(5, PRODUCER)
    desk.commit(7)
    desk.end_transaction(PRODUCER, committed=True)
    for _ in range(2):
        assert desk.offset(stable=True) == 7
        desk.reload()


def test_a_marker_of_a_higher_epoch_ends_it_too() -> None:
    """Transactions v2 end each transaction with a raised epoch."""
    desk = Desk()
    desk.commit_in_transaction(5, ProducerIdentity(7, 0))
    desk.end_transaction(ProducerIdentity(7, 1), committed=True)
    assert desk.offset(stable=True) == 5


def test_an_unknown_member_cannot_commit_in_a_transaction() -> None:
    """An unknown member cannot commit in a transaction either. A commit that names no member can."""
    desk = Desk()
    desk.join("m")
    wrong = {"member_id": "m", "generation_id": 0}
    assert refusal(desk.commit_in_transaction, 1, PRODUCER, **wrong) == ErrorCode.ILLEGAL_GENERATION
    unknown = {"member_id": "x", "generation_id": 1}
    assert refusal(desk.commit_in_transaction, 1, PRODUCER, **unknown) == ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.commit_in_transaction(1, PRODUCER) == 0
    assert desk.commit_in_transaction(1, PRODUCER, topic="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- deleting ---


def test_offsets_are_deleted_one_by_one() -> None:
    """Unless the topic is unknown. Deleting an offset that was never committed succeeds."""
    desk = Desk()
    desk.commit(1, topic="t")
    desk.commit(2, topic="u")
    assert desk.delete_offsets("t", "nowhere") == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert desk.delete_offsets("t") == [0]
    for _ in range(2):
        assert (desk.offset("t"), desk.offset("u")) == (-1, 2)
        desk.reload()
    assert refusal(desk.delete_offsets, "t", group="h") == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_in_use_are_not_deleted() -> None:
    """Of a group with members only offsets that its subscription does not need can be deleted. Groups of other
    protocols do not say which those are."""
    desk = Desk()
    desk.join(protocol_type="other")
    assert refusal(desk.delete_offsets, "t") == ErrorCode.NON_EMPTY_GROUP
    desk.leave()
    assert desk.delete_offsets("t") == [0]
    desk = Desk()
    subscribed = encode(ConsumerProtocolSubscription, 0, ConsumerProtocolSubscription(topics=["t"]))
    desk.join(protocol_type="consumer", metadata=b"\0\0" + subscribed)
    assert desk.delete_offsets("t", "u") == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0]


def test_a_group_is_deleted_with_its_offsets() -> None:
    """Nothing of the group is left, not even pending offsets of a transaction."""
    desk = Desk()
    desk.commit(1)
    desk.commit_in_transaction(5, PRODUCER, topic="u")
    desk.delete_group()
    desk.end_transaction(PRODUCER, committed=True)
    for _ in range(2):
        assert desk.listed() == []
        assert desk.offset("t") == desk.offset("u") == -1
        desk.reload()
    assert refusal(desk.delete_group) == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_with_members_is_not_deleted() -> None:
    desk = Desk()
    desk.join()
    assert refusal(desk.delete_group) == ErrorCode.NON_EMPTY_GROUP
    desk.leave()
    desk.delete_group()
    assert desk.listed() == []


def test_the_offsets_of_a_deleted_topic_are_deleted() -> None:
    """Offsets of all groups are removed, pending ones too. Those of other topics stay."""
    desk = Desk()
    desk.commit(1, topic="t")
    desk.commit(2, topic="u")
    desk.commit(3, topic="t", group="h")
    desk.commit_in_transaction(5, PRODUCER, topic="t")
    desk.delete_topic("t")
    desk.end_transaction(PRODUCER, committed=True)
    for _ in range(2):
        assert (desk.offset("t"), desk.offset("t", group="h"), desk.offset("u")) == (-1, -1, 2)
        desk.reload()


# --- expiry ---


def test_offsets_expire_when_the_group_is_empty() -> None:
    """Offsets never expire while there is a member. They expire some time after the last one left, and the group with
    them."""
    desk = Desk(offsets_retention_minutes=60, group_max_session_timeout_ms=DAY_MS)
    desk.join(session_timeout_ms=DAY_MS)
    desk.commit(1, member_id="m", generation_id_or_member_epoch=1)
    desk.passes(10 * HOUR_MS)
    assert desk.offset() == 1
    desk.leave()
    desk.passes(HOUR_MS - 1)
    assert desk.offset() == 1
    desk.passes(HOUR_MS // 2)
    for _ in range(2):
        assert desk.offset() == -1
        assert desk.listed() == []
        desk.reload()


def test_offsets_of_a_simple_group_expire_one_by_one() -> None:
    """Such a group has no members that could leave, so each offset counts from its own commit."""
    desk = Desk()
    desk.commit(1, topic="t")
    desk.passes(3 * DAY_MS)
    desk.commit(2, topic="u")
    desk.passes(4 * DAY_MS + HOUR_MS)
    assert (desk.offset("t"), desk.offset("u")) == (-1, 2)
    desk.passes(3 * DAY_MS)
    assert desk.listed() == []


def test_an_offset_may_have_its_own_retention() -> None:
    """Clients before 2.1 may set how long an offset is kept. The record is the one that Kafka would write."""
    desk = Desk()
    assert desk.commit(1, version=4, retention_time_ms=2 * HOUR_MS) == 0
    key, value = desk.log[-1][:2]
    assert isinstance(key, bytes)
    stored = GROUP_FORMAT.decode(key, value)  # type: ignore[arg-type]
    assert stored is not None and isinstance(stored.value, OffsetCommitValue)
    assert stored.value.expire_timestamp == desk.now_ms + 2 * HOUR_MS
    desk.passes(HOUR_MS)
    assert desk.offset() == 1
    desk.reload()
    desk.passes(2 * HOUR_MS)
    assert desk.offset() == -1


def test_pending_offsets_do_not_expire() -> None:
    """The transaction may still commit: neither the offset nor the group expires before its marker."""
    desk = Desk()
    desk.commit(1)
    desk.commit_in_transaction(5, PRODUCER)
    desk.passes(30 * DAY_MS)
    assert desk.offset() == 1
    desk.end_transaction(PRODUCER, committed=True)
    assert desk.offset() == 5
    desk.passes(HOUR_MS)
    assert desk.listed() == []


def test_a_group_without_members_and_offsets_is_deleted() -> None:
    """A group without members and offsets is deleted at the next check."""
    desk = Desk()
    desk.join()
    desk.leave()
    assert desk.listed() == ["g Empty classic 'other'"]
    desk.passes(HOUR_MS)
    for _ in range(2):
        assert desk.listed() == []
        desk.reload()


def test_many_expire_a_few_at_a_time() -> None:
    """A turn writes a limited number of tombstones. In the end all offsets are gone."""
    desk = Desk()
    for number in range(1500):
        desk.commit(1, group=f"g{number}")
    largest = 0
    desk.now_ms += 8 * DAY_MS
    while (wake_at := desk.groups.wake_at) is not None and wake_at <= desk.now_ms:
        before = len(desk.log)
        desk._turn(desk.groups.wake)
        largest = max(largest, len(desk.log) - before)
    assert desk.listed() == []
    assert largest <= 1002


# --- listing ---


def test_groups_are_listed_by_state_and_type() -> None:
    """Without a filter all groups are listed. The case of letters does not matter, and unknown words match nothing."""
    desk = Desk()
    desk.join()
    desk.commit(1, group="h")
    both = ["g Stable classic 'other'", "h Empty classic ''"]
    assert desk.listed() == desk.listed(["stable", "EMPTY"], ["Classic"]) == both
    assert desk.listed(["Stable"]) == both[:1]
    assert desk.listed([], ["consumer"]) == desk.listed(["Nonsense"]) == []
