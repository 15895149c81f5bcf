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


class ConsumerState(StrEnum):
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

TRANSITIONS: Final[Mapping[ConsumerState, Mapping[ConsumerState, str]]] = {
    ConsumerState.EMPTY: {
        ConsumerState.ASSIGNING: "a first member joins, too soon for another assignment",
        ConsumerState.RECONCILING: "a first member joins, and has to give something back",
        ConsumerState.STABLE: "a first member joins",
        ConsumerState.DEAD: "deleted or expired",
    },
    ConsumerState.ASSIGNING: {
        ConsumerState.RECONCILING: "the assignor has computed targets",
        ConsumerState.STABLE: "the assignor has computed targets, and everybody is there already",
        ConsumerState.EMPTY: _EMPTIED,
        ConsumerState.DEAD: _CONVERTED,
    },
    ConsumerState.RECONCILING: {
        ConsumerState.STABLE: "every member has come to its target",
        ConsumerState.ASSIGNING: _CHANGED,
        ConsumerState.EMPTY: _EMPTIED,
        ConsumerState.DEAD: _CONVERTED,
    },
    ConsumerState.STABLE: {
        ConsumerState.ASSIGNING: _CHANGED,
        ConsumerState.RECONCILING: "the assignor has computed other targets",
        ConsumerState.EMPTY: _EMPTIED,
        ConsumerState.DEAD: _CONVERTED,
    },
    ConsumerState.DEAD: {},
}
"""The states that may follow each state, with the reason."""


def find_state(state: GroupState) -> ConsumerState:
    """The state is not stored: it follows from the epochs."""
    if not state.members:
        return ConsumerState.EMPTY
    if state.epoch > state.target_epoch:
        return ConsumerState.ASSIGNING
    return ConsumerState.STABLE if state.is_settled else ConsumerState.RECONCILING


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
