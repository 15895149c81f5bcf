"""The state of a consumer group, replayed from logs in which earlier records were compacted away."""

from ottla.coordinators.consumer.members import Holding, Member
from ottla.coordinators.consumer.state import GroupState


def with_current_assignment(state: GroupState, id: str, assigned: Holding) -> GroupState:
    return state.replay(Member(id, epoch=3, assigned=assigned).current_assignment_record("group"))


def test_a_partition_stays_with_its_last_owner() -> None:
    # The record with which the first member gave it up was compacted away. Its next record comes after the second
    # member's.
    state = with_current_assignment(GroupState("group"), "a", {b"t" * 16: {0: 2, 1: 2}})
    state = with_current_assignment(state, "b", {b"t" * 16: {1: 3}})
    assert dict(state.owners) == {(b"t" * 16, 0): "a", (b"t" * 16, 1): "b"}
    state = with_current_assignment(state, "a", {b"t" * 16: {0: 2}})
    assert dict(state.owners) == {(b"t" * 16, 0): "a", (b"t" * 16, 1): "b"}


def test_an_instance_id_stays_with_its_last_owner() -> None:
    # Whatever records of its former owner are deleted.
    state = GroupState("group")
    for id in ("old", "new"):
        state = state.replay(Member(id, instance_id="i", topic_names=frozenset("t")).metadata_record("group"))
    for record in Member("old").tombstones("group"):
        state = state.replay(record)
    assert dict(state.instances) == {"i": "new"}
    assert dict(state.names) == {"t": 1}


def test_repeated_deletions_change_nothing() -> None:
    # Tombstones of unknown members, targets and patterns change nothing.
    empty = GroupState("group")
    for record in [*Member("a").tombstones("group"), empty.resolution_record("t.*", None)]:
        assert empty.replay(record) == empty
