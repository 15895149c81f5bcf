"""Moves a member from its current to its target assignment (KIP-848), one step per heartbeat.

First the member gives up the partitions that it loses. Then it moves to the epoch of the target and gets the partitions
that are free, and later those that other members have to give up first. So no member gets a partition that another one
still reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from ottla.coordinators.consumer.assignors import Partitions
from ottla.coordinators.consumer.members import NOTHING_HELD, Holding, Member, MemberState
from ottla.topic_partition import TopicIdPartition

TRANSITIONS: Final[Mapping[MemberState, frozenset[MemberState]]] = {
    MemberState.STABLE: frozenset(
        {MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS}
    ),
    MemberState.UNREVOKED_PARTITIONS: frozenset(
        {MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS}
    ),
    MemberState.UNRELEASED_PARTITIONS: frozenset(
        {MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS}
    ),
    MemberState.UNKNOWN: frozenset(
        {MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS}
    ),
}
"""The states that may follow each state of a member."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The target of a member, and the partitions that other members still have."""

    epoch: int
    target: Partitions
    subscribed: frozenset[bytes]
    """The topics that the member subscribes to now. An older target may have others."""
    taken: Mapping[TopicIdPartition, str]
    """The member that has a partition, or has not given it up yet."""


def reconcile(member: Member, goal: Goal, owned: Partitions | None, subscription_changed: bool) -> Member:
    """The member after one step. `owned` has the partitions that it reports to read; None if it does not report any."""
    if member.state is MemberState.STABLE and member.epoch == goal.epoch:
        return _drop_unsubscribed(member, goal, owned) if subscription_changed else member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _still_reads(owned, member.revoking):
        return _drop_unsubscribed(member, goal, owned) if subscription_changed else member
    return _step(member, goal, owned)


def _step(member: Member, goal: Goal, owned: Partitions | None) -> Member:
    target = {topic: numbers for topic, numbers in goal.target.items() if topic in goal.subscribed}
    kept, lost = _split(member.assigned, target)
    if lost and _still_reads(owned, lost):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_epoch=member.epoch,
            assigned=kept,
            revoking=lost,
        )
    assigned = {topic: dict(numbers) for topic, numbers in kept.items()}
    waits = False
    for topic in sorted(target):
        for number in sorted(target[topic]):
            if number in kept.get(topic, NOTHING_HELD):
                continue
            if goal.taken.get((topic, number), member.id) == member.id:
                assigned.setdefault(topic, {})[number] = goal.epoch
            else:
                waits = True
    return replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE,
        epoch=goal.epoch,
        previous_epoch=member.epoch,
        assigned=assigned,
        revoking=NOTHING_HELD,
    )


def _drop_unsubscribed(member: Member, goal: Goal, owned: Partitions | None) -> Member:
    """Take topics from a member that no longer subscribes to them, while the next target is not computed yet."""
    kept = {topic: numbers for topic, numbers in member.assigned.items() if topic in goal.subscribed}
    if len(kept) == len(member.assigned):
        return member
    lost = {topic: dict(numbers) for topic, numbers in member.revoking.items()}
    for topic, numbers in member.assigned.items():
        if topic not in kept:
            lost.setdefault(topic, {}).update(numbers)
    if _still_reads(owned, lost):
        return replace(member, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=lost)
    return replace(member, assigned=kept)


def _split(assigned: Holding, target: Partitions) -> tuple[Holding, Holding]:
    kept: dict[bytes, Mapping[int, int]] = {}
    lost: dict[bytes, Mapping[int, int]] = {}
    for topic, numbers in assigned.items():
        wanted = target.get(topic, frozenset())
        if numbers.keys() <= wanted:
            kept[topic] = numbers
            continue
        lost[topic] = {number: epoch for number, epoch in numbers.items() if number not in wanted}
        if len(lost[topic]) < len(numbers):
            kept[topic] = {number: epoch for number, epoch in numbers.items() if number in wanted}
    return kept, lost


def _still_reads(owned: Partitions | None, given_up: Holding) -> bool:
    """Whether the member may still read one of the partitions. If it does not report what it reads, it may."""
    if owned is None:
        return True
    return any(not numbers.isdisjoint(given_up.get(topic, ())) for topic, numbers in owned.items())
