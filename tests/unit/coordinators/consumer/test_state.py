"""The state of a consumer group, replayed from logs in which records of the past are missing."""

from ottla.coordinators.consumer.members import Holding, Member
from ottla.coordinators.consumer.state import GroupState


def with_current_assignment(state: GroupState, id: str, assigned: Holding) -> GroupState:
    return state.replay(Member(id, epoch=3, assigned=assigned).current_assignment_record("group"))


def test_a_partition_that_went_to_another_stays_theirs() -> None:
    # The record with which the first one gave it back was compacted away; its next one comes after the second's.
    state = with_current_assignment(GroupState("group"), "a", {b"t" * 16: {0: 2, 1: 2}})
    state = with_current_assignment(state, "b", {b"t" * 16: {1: 3}})
    assert dict(state.owners) == {(b"t" * 16, 0): "a", (b"t" * 16, 1): "b"}
    state = with_current_assignment(state, "a", {b"t" * 16: {0: 2}})
    assert dict(state.owners) == {(b"t" * 16, 0): "a", (b"t" * 16, 1): "b"}


def test_an_instance_id_that_went_to_another_stays_theirs() -> None:
    # Whatever is deleted of the one who had it before.
    state = GroupState("group")
    for id in ("old", "new"):
        state = state.replay(Member(id, instance_id="i", topic_names=frozenset("t")).metadata_record("group"))
    for record in Member("old").tombstones("group"):
        state = state.replay(record)
    assert dict(state.instances) == {"i": "new"}
    assert dict(state.names) == {"t": 1}


def test_what_is_deleted_twice_is_gone() -> None:
    # Tombstones of members, targets and patterns that nobody knows change nothing.
    empty = GroupState("group")
    for record in [*Member("a").tombstones("group"), empty.resolution_record("t.*", None)]:
        assert empty.replay(record) == empty
