"""One member's step towards its target assignment: every state, its transitions, and what must never happen."""

import hypothesis.strategies as st
from hypothesis import given, settings

from ottla.coordinators.consumer.assignors import Partitions
from ottla.coordinators.consumer.members import Holding, Member, MemberState
from ottla.coordinators.consumer.reconciliation import TRANSITIONS, Goal, reconcile

PLACES = [(topic, number) for topic in (b"t", b"u") for number in range(3)]


def holding(places: dict[tuple[bytes, int], int]) -> Holding:
    found: dict[bytes, dict[int, int]] = {}
    for (topic, number), epoch in places.items():
        found.setdefault(topic, {})[number] = epoch
    return found


def partitions(places: frozenset[tuple[bytes, int]]) -> Partitions:
    return {
        topic: frozenset(number for name, number in places if name == topic) for topic in {topic for topic, _ in places}
    }


def places(held: Holding | Partitions) -> set[tuple[bytes, int]]:
    return {(topic, number) for topic, numbers in held.items() for number in numbers}


some_places = st.frozensets(st.sampled_from(PLACES))


@st.composite
def steps(draw: st.DrawFn) -> tuple[Member, Goal, Partitions | None, bool]:
    """A member in any possible state, and the partitions of others."""
    mine = draw(some_places)
    others = draw(some_places) - mine
    state = draw(st.sampled_from(list(MemberState)))
    revoking = draw(some_places) & mine if state is MemberState.UNREVOKED_PARTITIONS else frozenset[tuple[bytes, int]]()
    epoch = draw(st.integers(1, 4))
    member = Member(
        "m",
        epoch=epoch,
        state=state,
        assigned=holding(dict.fromkeys(mine - revoking, epoch)),
        revoking=holding(dict.fromkeys(revoking, epoch)),
    )
    taken = {**dict.fromkeys(mine, "m"), **dict.fromkeys(others, "other")}
    subscribed = draw(st.frozensets(st.sampled_from((b"t", b"u"))))
    goal = Goal(draw(st.integers(epoch, 5)), partitions(draw(some_places)), subscribed, taken)
    owned = draw(st.none() | some_places.map(partitions))
    return member, goal, owned, draw(st.booleans())


@given(steps())
@settings(max_examples=150)
def test_a_step_keeps_all_rules(step: tuple[Member, Goal, Partitions | None, bool]) -> None:
    member, goal, owned, changed = step
    after = reconcile(member, goal, owned, changed)
    # The table allows the transition, and an epoch never goes back.
    assert after.state in TRANSITIONS[member.state] or after == member
    assert member.epoch <= after.epoch <= goal.epoch
    # The member gets no partition that another has, and no new one without the target's epoch.
    assert not {place for place in places(after.assigned) if goal.taken.get(place, "m") != "m"}
    fresh = places(after.assigned) - places(member.assigned)
    assert fresh <= places(goal.target)
    assert not fresh or after.epoch == goal.epoch
    # A partition that the member may still read is not released: it is assigned or being revoked.
    reads = places(member.assigned) | places(member.revoking)
    if owned is not None:
        reads &= places(owned)
    assert reads <= places(after.assigned) | places(after.revoking)
    assert places(after.assigned).isdisjoint(places(after.revoking))
    # A stable member has its target, as far as it subscribes to it.
    if after.state is MemberState.STABLE and after.epoch == goal.epoch and after is not member:
        target = {(topic, number) for topic, number in places(goal.target) if topic in goal.subscribed}
        assert member.is_reconciled_to(goal.epoch) or places(after.assigned) == target


@given(steps())
@settings(max_examples=40)
def test_a_member_that_follows_the_protocol_reaches_its_target(
    step: tuple[Member, Goal, Partitions | None, bool],
) -> None:
    # It takes three heartbeats, if no other member holds its partitions.
    member, goal, _, _ = step
    goal = Goal(goal.epoch, goal.target, goal.subscribed, {place: id for place, id in goal.taken.items() if id == "m"})
    for _ in range(3):
        owned = {topic: frozenset(numbers) for topic, numbers in member.assigned.items()}
        member = reconcile(member, goal, owned, False)
        goal = Goal(goal.epoch, goal.target, goal.subscribed, dict.fromkeys(places(member.assigned), "m"))
    assert member.is_reconciled_to(goal.epoch)
