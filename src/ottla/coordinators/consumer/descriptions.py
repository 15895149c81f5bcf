"""The state of a consumer group, and its description for ConsumerGroupDescribe."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from ottla.cluster.image import Image
from ottla.coordinators.consumer.members import Member
from ottla.coordinators.consumer.rebalance import choose_assignor
from ottla.coordinators.consumer.state import GroupState
from ottla.coordinators.machine import Turn
from ottla.wire.messages.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    TopicPartitions,
)
from ottla.wire.messages.consumer_group_describe import Member as DescribedMember

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


class State(StrEnum):
    """The state of a consumer group, with the name that Kafka shows to clients."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The target assignment is older than the group's epoch."""
    RECONCILING = "Reconciling"
    """Not every member has reached its target assignment."""
    STABLE = "Stable"
    DEAD = "Dead"


_EMPTIED: Final = "the last member is gone"
_CHANGED: Final = "a member came, went or subscribed to something else; or its topics changed"
_CONVERTED: Final = "becomes a classic group"

TRANSITIONS: Final[Mapping[State, Mapping[State, str]]] = {
    State.EMPTY: {
        State.ASSIGNING: "a first member joins, too soon for another assignment",
        State.RECONCILING: "a first member joins, and has to give something back",
        State.STABLE: "a first member joins",
        State.DEAD: "deleted or expired",
    },
    State.ASSIGNING: {
        State.RECONCILING: "the assignor has computed targets",
        State.STABLE: "the assignor has computed targets, and everybody is there already",
        State.EMPTY: _EMPTIED,
        State.DEAD: _CONVERTED,
    },
    State.RECONCILING: {
        State.STABLE: "every member has come to its target",
        State.ASSIGNING: _CHANGED,
        State.EMPTY: _EMPTIED,
        State.DEAD: _CONVERTED,
    },
    State.STABLE: {
        State.ASSIGNING: _CHANGED,
        State.RECONCILING: "the assignor has computed other targets",
        State.EMPTY: _EMPTIED,
        State.DEAD: _CONVERTED,
    },
    State.DEAD: {},
}
"""The states that may follow each state, with the reason."""


def find_state(state: GroupState) -> State:
    """The state is not stored: it follows from the epochs."""
    if not state.members:
        return State.EMPTY
    if state.epoch > state.target_epoch:
        return State.ASSIGNING
    return State.STABLE if state.is_settled else State.RECONCILING


def describe(state: GroupState, turn: Turn) -> DescribedGroup:
    return DescribedGroup(
        group_id=state.id,
        group_state=find_state(state).value,
        group_epoch=state.epoch,
        assignment_epoch=state.target_epoch,
        assignor_name=choose_assignor(state, turn),
        members=[_describe_member(state, member, turn.image) for member in state.members_by_id()],
    )


def _describe_member(state: GroupState, member: Member, image: Image) -> DescribedMember:
    held = {topic: set(numbers) for topic, numbers in member.assigned.items()}
    for topic, numbers in member.revoking.items():
        held.setdefault(topic, set()).update(numbers)
    return DescribedMember(
        member_id=member.id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_pattern,
        assignment=_describe_assignment(held, image),
        target_assignment=_describe_assignment(state.target(member.id), image),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _describe_assignment(partitions: Mapping[bytes, frozenset[int] | set[int]], image: Image) -> Assignment:
    """Deleted topics are left out: they have no name any more."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=id, topic_name=topic.name, partitions=sorted(partitions[id]))
            for id in sorted(partitions)
            if (topic := image.topic_by_id(id)) is not None
        ]
    )
