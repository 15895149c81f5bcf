"""Finds the members of a consumer group by member id and instance id, and checks their epochs."""

from dataclasses import replace

from ottla.coordinators.consumer.assignors import Partitions
from ottla.coordinators.consumer.members import Member, MemberState
from ottla.coordinators.consumer.state import GroupChange, GroupState
from ottla.errors import ErrorCode, KafkaError


def find_member(state: GroupState, member_id: str) -> Member:
    member = state.members.get(member_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {state.id!r} has no member {member_id!r}")
    return member


def find_static_member(state: GroupState, instance_id: str) -> Member:
    member = state.find_instance(instance_id)
    if member is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"group {state.id!r} has no member with the instance id {instance_id!r}"
        )
    return member


def find_identified_member(state: GroupState, member_id: str, instance_id: str | None) -> Member:
    """The member with this id and, if one is named, this instance id."""
    if instance_id is None:
        return find_member(state, member_id)
    member = find_static_member(state, instance_id)
    if member.id != member_id:
        message = f"member {member.id!r} has joined with the instance id {instance_id!r}"
        raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, message)
    return member


def replace_member(change: GroupChange, static: Member, member_id: str) -> Member:
    """Replace a static member that was restarted, under its new id."""
    group_id, target = change.state.id, change.state.target(static.id)
    member = replace(static, id=member_id, epoch=0, previous_epoch=0)
    change.store(*static.tombstones(group_id))
    change.store(member.metadata_record(group_id))
    change.store(member.target_record(group_id, target), member.current_assignment_record(group_id))
    return member


def check_room(state: GroupState, member_id: str, instance_id: str | None, limit: int) -> None:
    """GROUP_MAX_SIZE_REACHED if a new member does not fit. A restarted static member replaces itself."""
    is_known = member_id in state.members or instance_id in state.instances
    if len(state.members) >= limit and not is_known:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {limit} members already (group.consumer.max.size)"
        )


def check_epoch(member: Member, epoch: int, owned: Partitions | None) -> None:
    """FENCED_MEMBER_EPOCH, unless the member sends its epoch, or its previous one because it missed a response. A
    member that joins again sends 0."""
    if member.state is MemberState.UNKNOWN and (owned is None or owned):
        message = "the member is in a state that this broker does not know; it must give up its partitions and rejoin"
        raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, message)
    if epoch in (0, member.epoch):
        return
    if epoch == member.previous_epoch and epoch < member.epoch and owned is not None and _has_all(member, owned):
        return
    message = f"the member is at epoch {member.epoch}, not {epoch}; it must give up its partitions and rejoin"
    raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, message)


def _has_all(member: Member, owned: Partitions) -> bool:
    return all(numbers <= member.assigned.get(topic, {}).keys() for topic, numbers in owned.items())
