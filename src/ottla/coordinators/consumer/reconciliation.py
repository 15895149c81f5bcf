"""How a member comes from what it reads to what it is to read (KIP-848), one step at each heartbeat.

First it gives back what it is to lose; when it has, it goes on to the epoch of the target and gets what is free at
once, the rest when others have given it back. So nobody is ever given a partition that somebody else still reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from ottla.coordinators.consumer.assignors import Partitions
from ottla.coordinators.consumer.members import NOTHING_HELD, Holding, Member, MemberState

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
"""From where to where a heartbeat may bring a member."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a member is to come to, and what stands in its way."""

    epoch: int
    target: Partitions
    subscribed: frozenset[bytes]
    """Topics that the member subscribes to now; a target that was computed before may name others."""
    taken: Mapping[tuple[bytes, int], str]
    """Who has a partition, or has not given it back yet."""


def reconcile(member: Member, goal: Goal, owned: Partitions | None, subscription_changed: bool) -> Member:
    """The member after one step. `owned` is what it says that it reads, None if it did not say."""
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
    """The next target is not there yet: until then the member stops reading what it no longer subscribes to."""
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
    """A member that does not say what it reads may still read everything."""
    if owned is None:
        return True
    return any(not numbers.isdisjoint(given_up.get(topic, ())) for topic, numbers in owned.items())
