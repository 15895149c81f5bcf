"""Consumer groups: joining, giving up and getting partitions, leaving, failing. Scripts have the expected events
beside."""

import pytest

from ottla.cluster import changes
from ottla.cluster.changes import ConfigResource
from ottla.coordinators.formats import (
    GROUP_FORMAT,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
)
from ottla.coordinators.machine import Caller, StoredRecord
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from tests.unit.coordinators.consumer_scripts import Stage, play, topic_id

TWO_MEMBERS = """
    a joins topics=t        | [Stable]; a: epoch 2, reads t0 t1 t2 t3
    b joins topics=t        | [Reconciling]; b: epoch 3, reads nothing
    a beats                 | a: epoch 2, reads t0 t1
    a beats                 | a: epoch 3
    b beats                 | [Stable]; b: epoch 3, reads t2 t3
"""


def test_a_second_member_gets_its_share_when_the_first_has_given_it_back() -> None:
    # The first member is told to give up partitions, and confirms it. Only then the second one gets them.
    play(
        TWO_MEMBERS
        + """
        a beats             | a: epoch 3
        b beats             | b: epoch 3
        """
    )


def test_a_partition_that_is_not_given_up_is_not_assigned_again() -> None:
    # However many heartbeats come. A heartbeat that does not list the member's partitions confirms nothing.
    play("""
        a joins topics=t    | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        b joins topics=t    | [Reconciling]; b: epoch 3, reads nothing
        a holds on          | a: epoch 2, reads t0 t1
        a holds on          | a: epoch 2
        b beats             | b: epoch 3
        a pings             | a: epoch 2
        b beats             | b: epoch 3
        a beats             | a: epoch 3
        b beats             | [Stable]; b: epoch 3, reads t2 t3
    """)


def test_a_member_that_does_not_give_back_in_time_is_fenced() -> None:
    # The rebalance time-out counts, although the member sends heartbeats. Then others get everything.
    play("""
        a joins topics=t timeout=8000 | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        b joins topics=t    | [Reconciling]; b: epoch 3, reads nothing
        a holds on          | a: epoch 2, reads t0 t1
        4000 ms pass        |
        a holds on          | a: epoch 2
        4000 ms pass        | [Assigning]
        a holds on          | a: UNKNOWN_MEMBER_ID
        b beats             | [Stable]; b: epoch 4, reads t0 t1 t2 t3
    """)


def test_a_silent_member_is_removed_when_its_session_ends() -> None:
    # A member that sends heartbeats stays.
    play(
        TWO_MEMBERS
        + """
        44000 ms pass       |
        a beats             | a: epoch 3
        1000 ms pass        | [Assigning]
        a beats             | [Stable]; a: epoch 4, reads t0 t1 t2 t3
        b beats             | b: UNKNOWN_MEMBER_ID
        45000 ms pass       | [Empty]
        """
    )


def test_partitions_of_a_member_that_leaves_go_to_the_others() -> None:
    play(
        TWO_MEMBERS
        + """
        a leaves            | [Assigning]; a: epoch -1
        b beats             | [Stable]; b: epoch 4, reads t0 t1 t2 t3
        b leaves            | [Empty]; b: epoch -1
        """
    )


def test_wrong_member_epochs_are_fenced() -> None:
    # A member epoch that is ahead, or too far behind, is fenced. One behind, with no new partitions, means a lost
    # answer.
    play(
        TWO_MEMBERS
        + """
        a holds epoch=4     | a: FENCED_MEMBER_EPOCH
        a joins             | a: epoch 3, reads t0 t1
        a beats             | a: epoch 3
        a holds epoch=2     | a: epoch 3
        a holds epoch=1     | a: FENCED_MEMBER_EPOCH
        c beats epoch=3     | c: UNKNOWN_MEMBER_ID
        """
    )


def test_a_lost_answer_is_sent_again() -> None:
    # The client did not get the answer with epoch 3, and sends all its fields once more.
    stage = play(TWO_MEMBERS)
    a = stage.client("a")
    request = ConsumerGroupHeartbeatRequest(
        group_id="group",
        member_id="a",
        member_epoch=2,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id("t"), partitions=[0, 1])],
    )
    beat = stage.groups.consumer_group_heartbeat
    stage.run(a, lambda turn: beat(request, Caller("a", "/127.0.0.1"), turn))
    assert stage.told() == ["a: epoch 3, reads t0 t1"]
    request.topic_partitions = [
        ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id("t"), partitions=[0, 1, 2])
    ]
    stage.run(a, lambda turn: beat(request, Caller("a", "/127.0.0.1"), turn))
    assert stage.told() == ["a: FENCED_MEMBER_EPOCH"]


def test_requests_for_an_unknown_group() -> None:
    # Only a joining member creates a group.
    play("a beats epoch=3       | a: GROUP_ID_NOT_FOUND")


def test_a_full_group_refuses_members() -> None:
    # Its members stay, and may join again.
    play(
        """
        a joins topics=t    | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        b joins topics=t    | b: GROUP_MAX_SIZE_REACHED
        a joins             | a: epoch 2, reads t0 t1 t2 t3
        """,
        group_consumer_max_size=1,
    )


def test_which_member_epochs_may_commit() -> None:
    # At its current epoch a member may commit any partition; at an older one those that it had then and still has
    # (Kafka 4.3).
    stage = play(
        TWO_MEMBERS
        + """
        a commits places=t0,t3         | a: commits
        a commits epoch=4 places=t0    | a: STALE_MEMBER_EPOCH
        a commits epoch=2 places=t0,t1 | a: commits
        a commits epoch=2 places=t0,t2 | a: STALE_MEMBER_EPOCH
        b commits epoch=2 places=t2    | b: STALE_MEMBER_EPOCH
        c commits epoch=3 places=t0    | c: UNKNOWN_MEMBER_ID
        c joins topics=t               | [Reconciling]; c: epoch 4, reads nothing
        a holds on                     | a: epoch 4
        b holds on                     | b: epoch 3, reads t2
        b commits epoch=3 places=t3    | b: commits
        b commits epoch=2 places=t3    | b: STALE_MEMBER_EPOCH
        """
    )
    group, turn = stage.group, stage.turn()
    with pytest.raises(KafkaError) as refused:
        group.check_commit("a", None, 4, turn, api_version=8)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert group.check_transactional_commit("", None, -1, turn) is None
    with pytest.raises(KafkaError) as refused:
        group.check_transactional_commit("a", None, 5, turn)
    assert refused.value.code is ErrorCode.ILLEGAL_GENERATION


def test_revoked_partitions_may_still_be_committed() -> None:
    # The commit may have any epoch since the member got the partition.
    play(
        TWO_MEMBERS
        + """
        c joins topics=t    | [Reconciling]; c: epoch 4, reads nothing
        a beats             | a: epoch 4
        d joins topics=t    | d: epoch 5, reads nothing
        a holds on          | a: epoch 4, reads t0
        a commits epoch=2 places=t1 | a: commits
        a commits epoch=1 places=t1 | a: STALE_MEMBER_EPOCH
        """
    )


def test_reading_offsets_needs_the_members_epoch() -> None:
    stage = play(TWO_MEMBERS)
    group, turn = stage.group, stage.turn()
    group.check_fetch("", -1, turn)
    group.check_fetch("a", 3, turn)
    for member_id, epoch, code in (
        ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 4, ErrorCode.STALE_MEMBER_EPOCH),
        ("c", 3, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(KafkaError) as refused:
            group.check_fetch(member_id, epoch, turn)
        assert refused.value.code is code


def test_topics_get_partitions_and_are_deleted_and_created_again() -> None:
    # New partitions are assigned, and those of deleted topics removed. A new topic of an old name is another topic.
    stage = play(
        """
        a joins topics=t,u  | [Stable]; a: epoch 2, reads t0 t1
        topics t=3          |
        a beats             | a: epoch 3, reads t0 t1 t2
        topics t=3 u=1      |
        a beats             | a: epoch 4, reads t0 t1 t2 u0
        topics u=1          |
        a beats             | [Reconciling]; a: epoch 4, reads u0
        a beats             | [Stable]; a: epoch 5
        topics v=1 u=1      |
        a beats             | a: epoch 5
        """,
        {"t": 2},
    )
    stage.change_topics({"u": 2}, generation=1)
    stage.play("a beats             | a: epoch 6, reads u0 u1")


def test_a_member_subscribes_to_something_else() -> None:
    # The member gives up topics that it no longer subscribes to. Others are disturbed as little as possible.
    play(
        """
        a joins topics=t        | [Stable]; a: epoch 2, reads t0 t1
        b joins topics=t,u      | [Reconciling]; b: epoch 3, reads u0 u1
        a beats topics=t,u      | a: epoch 4
        b beats topics=u        | b: epoch 5
        """,
        {"t": 2, "u": 2},
    )


def test_assignments_have_an_interval() -> None:
    # Members that join right after an assignment wait for the next one. A clock that is set back does not extend the
    # wait.
    stage = play(
        """
        a joins topics=t    | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        b joins topics=t    | [Assigning]; b: epoch 2, reads nothing
        999 ms pass         |
        a beats             | a: epoch 2
        1 ms pass           |
        a beats             | [Reconciling]; a: epoch 2, reads t0 t1
        c joins topics=t    | [Assigning]; c: epoch 3, reads nothing
        """,
        group_consumer_assignment_interval_ms=1000,
    )
    stage.wall_ahead_ms -= 3_600_000
    stage.play("c beats             | [Reconciling]; c: epoch 4")


def test_groups_have_settings_of_their_own() -> None:
    # A session time-out that was set for the group counts, within the limits of the broker.
    stage = Stage({"t": 1}, {})
    stage.image = stage.image.replay(
        2, [changes.SetConfig(ConfigResource.GROUP, "group", "consumer.session.timeout.ms", "50000")]
    )
    stage.play("""
        a joins topics=t    | [Stable]; a: epoch 2, reads t0
        49999 ms pass       |
        1 ms pass           | [Empty]
    """)
    stage.config = stage.config.with_changes({"group.consumer.max.session.timeout.ms": "46000"})
    stage.play("""
        a joins topics=t    | [Stable]; a: epoch 4, reads t0
        46000 ms pass       | [Empty]
    """)


def test_the_assignor_that_most_members_want_is_used() -> None:
    # If no member names one, it is the broker's first.
    play(
        """
        a joins topics=t,u assignor=range | [Stable]; a: epoch 2, reads t0 t1 t2 u0
        b joins topics=t,u assignor=range | [Reconciling]; b: epoch 3, reads nothing
        a beats             | a: epoch 2, reads t0 t1 u0
        a beats             | a: epoch 3
        b beats             | [Stable]; b: epoch 3, reads t2
        """,
        {"t": 3, "u": 1},
    )


def test_a_reloaded_group_continues() -> None:
    # Members keep their epochs and partitions. Sessions and rebalance time-outs start again.
    play("""
        a joins topics=t timeout=8000 | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        b joins topics=t    | [Reconciling]; b: epoch 3, reads nothing
        a beats             | a: epoch 2, reads t0 t1
        7000 ms pass        |
        reload              |
        7000 ms pass        |
        a beats             | a: epoch 3
        b beats             | [Stable]; b: epoch 3, reads t2 t3
        reload              |
        44000 ms pass       |
        a beats             | a: epoch 3
        1000 ms pass        | [Assigning]
    """)


def test_an_empty_group_is_deleted_to_the_last_record() -> None:
    # In the end every key that the group wrote has a tombstone.
    stage = play(
        TWO_MEMBERS
        + """
        a beats topics= pattern=t.* | [Reconciling]; a: epoch 4
        a leaves            | [Assigning]; a: epoch -1
        b leaves            | [Empty]; b: epoch -1
        """
    )
    with pytest.raises(KafkaError):
        play(TWO_MEMBERS).group.check_delete()
    stage.group.check_delete()
    tombstones = stage.group.tombstones()
    left = {}
    for record in [*stage.log, *tombstones]:
        left[GROUP_FORMAT.encode(record)[0]] = record.value
        stage.groups.replay(record, 0, None)
    assert set(left.values()) == {None}
    assert "group" not in stage.groups.groups


def test_a_group_is_described() -> None:
    # Partitions that a member has not given up yet count as assigned. Its target is what it will have.
    stage = play("""
        a joins topics=t    | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        b joins topics=t    | [Reconciling]; b: epoch 3, reads nothing
        a holds on          | a: epoch 2, reads t0 t1
    """)
    told = stage.group.describe(stage.turn())
    assert (told.group_state, told.group_epoch, told.assignment_epoch) == ("Reconciling", 3, 3)
    assert told.assignor_name == "uniform"
    a, b = told.members
    assert (a.member_id, a.member_epoch, a.client_host, a.member_type) == ("a", 2, "/127.0.0.1", 1)
    assert a.assignment.topic_partitions[0].partitions == [0, 1, 2, 3]
    assert a.target_assignment.topic_partitions[0].partitions == [0, 1]
    assert (b.member_epoch, b.assignment.topic_partitions) == (3, [])
    assert b.target_assignment.topic_partitions[0].partitions == [2, 3]
    assert a.subscribed_topic_names == ["t"]


def test_a_state_of_a_later_release() -> None:
    # A member in a state that this broker does not know must join without partitions. Then it continues.
    stage = play(TWO_MEMBERS)
    record = stage.group.state.members["a"].current_assignment_record("group")
    assert isinstance(record.value, ConsumerGroupCurrentMemberAssignmentValue)
    record.value.state = 9
    stage.groups.replay(record, 0, None)
    stage.play("""
        a beats             | a: FENCED_MEMBER_EPOCH
        a joins             | a: epoch 3, reads t0 t1
    """)


def test_a_record_of_an_earlier_release_is_deleted() -> None:
    # Kafka kept the topics of a group in a record of their own before 4.1.
    stage = play("a joins topics=t        | [Stable]; a: epoch 2, reads t0 t1 t2 t3")
    key = ConsumerGroupPartitionMetadataKey(group_id="group")
    stage.groups.replay(StoredRecord(key, ConsumerGroupPartitionMetadataValue()), 0, None)
    stage.play("b joins topics=t        | [Reconciling]; b: epoch 3, reads nothing")
    assert StoredRecord(key, None) in stage.log
    assert not stage.group.state.has_partition_metadata


def test_members_have_racks_and_topics_are_hashed_with_theirs() -> None:
    # A broker that moves to another rack causes a new assignment, as in Kafka.
    stage = Stage({"t": 2}, {})
    stage.image = stage.image.replay(2, [registered("one")])
    stage.play("a joins topics=t        | [Stable]; a: epoch 2, reads t0 t1")
    stage.image = stage.image.replay(3, [registered("one")])
    stage.play("a beats                 | a: epoch 2")
    stage.image = stage.image.replay(4, [registered("two")])
    stage.play("a beats                 | a: epoch 3")


def registered(rack: str) -> changes.RegisterBroker:
    return changes.RegisterBroker(1, (bytes(16),), (), rack, True)
