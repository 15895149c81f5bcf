"""Leaders change the ISR of their partitions: what is accepted, and Kafka's error code for what is not."""

from dataclasses import replace

import pytest

from ottla.cluster.changes import ChangePartition
from ottla.cluster.image import Image
from ottla.cluster.isr_changes import AT_ONCE_MAX, IsrChange, change_isr, leave_isr
from ottla.errors import ErrorCode, KafkaError
from tests.unit.cluster.clusters import (
    TOPIC_ID,
    cluster,
    code_of,
    decide,
    fenced,
    partition,
    started,
    step,
    stopping,
    with_isr,
)


def proposal(image: Image, isr: tuple[int, ...], index: int = 0, **other: object) -> IsrChange:
    state = partition(image, index)
    members = tuple((member, broker.epoch if (broker := image.broker(member)) else -1) for member in isr)
    values: dict[str, object] = {
        "topic_id": TOPIC_ID,
        "partition": index,
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "isr": members,
    }
    return IsrChange(**(values | other))  # type: ignore[arg-type]


def propose(image: Image, *proposals: IsrChange, leader: int = 1) -> tuple[Image, list[ErrorCode | None]]:
    decision = change_isr(image, leader, image.brokers[leader].epoch, proposals)
    return decide(image, decision), [None if error is None else error.code for error in decision.result]


def test_a_leader_shrinks_and_expands() -> None:
    """The partition epoch rises, the leader epoch does not."""
    image = cluster()
    image, errors = propose(image, proposal(image, (1, 3)))
    assert (errors, partition(image).isr, partition(image).partition_epoch) == ([None], (1, 3), 1)
    image, errors = propose(image, proposal(image, (1, 3, 2)))
    assert (errors, partition(image).isr, partition(image).leader_epoch) == ([None], (1, 3, 2), 0)


def test_an_isr_that_is_in_force_already_needs_no_entry() -> None:
    """A proposal may be repeated after its answer was lost."""
    image = cluster()
    after, errors = propose(image, proposal(image, (3, 1, 2)))
    assert errors == [None]
    assert after is image


def test_each_proposal_has_its_own_answer() -> None:
    """A wrong one does not take the others with it, and none is lost."""
    image = cluster(partitions=4)
    wrong = (proposal(image, (1,), 1, leader_epoch=-1), proposal(image, (2,), 2))
    image, errors = propose(image, proposal(image, (1,), 0), *wrong, proposal(image, (1, 2), 3))
    assert errors == [None, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_REQUEST, None]
    assert [partition(image, index).isr for index in range(4)] == [(1,), (1, 2, 3), (1, 2, 3), (1, 2)]


def test_what_leaders_may_not_propose() -> None:
    """The codes of Kafka's AlterPartition."""
    image = step(cluster(), ChangePartition(TOPIC_ID, 0, 0, leader=2))
    image = step(image, ChangePartition(TOPIC_ID, 0, 1, leader=1))
    cases = {
        ErrorCode.UNKNOWN_TOPIC_ID: proposal(image, (1,), topic_id=b"?" * 16),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: proposal(image, (1,), partition=1),
        ErrorCode.NOT_CONTROLLER: proposal(image, (1,), partition_epoch=3),
        ErrorCode.FENCED_LEADER_EPOCH: proposal(image, (1,), leader_epoch=1),
        ErrorCode.INVALID_UPDATE_VERSION: proposal(image, (1,), partition_epoch=1),
        ErrorCode.INVALID_REQUEST: proposal(image, (1, 9)),
    }
    assert propose(image, *cases.values())[1] == list(cases)
    for isr in ((2, 3), (1, 2, 2), ()):
        assert propose(image, proposal(image, isr))[1] == [ErrorCode.INVALID_REQUEST]
    assert propose(image, proposal(image, (1, 2)), leader=2)[1] == [ErrorCode.INVALID_REQUEST], "not the leader"
    twice = (proposal(image, (1, 2)), proposal(image, (1, 3)))
    assert propose(image, *twice)[1] == [None, ErrorCode.INVALID_REQUEST]


def test_a_process_that_was_replaced_or_fenced_proposes_nothing() -> None:
    """Whatever it proposes, all of it is refused."""
    image = cluster()
    epoch = image.brokers[1].epoch
    again = started(image, 1)
    assert code_of(lambda: change_isr(again, 1, epoch, [proposal(image, (1,))])) is ErrorCode.STALE_BROKER_EPOCH
    gone = fenced(image, 1)
    assert code_of(lambda: change_isr(gone, 1, epoch, [proposal(image, (1,))])) is ErrorCode.STALE_BROKER_EPOCH
    assert code_of(lambda: change_isr(image, 9, 1, [])) is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_members_must_serve_at_the_epoch_at_which_they_were_in_sync() -> None:
    """A follower that crashed and came back since may lack what its predecessor had (KIP-903)."""
    image = with_isr(cluster(), (1,))
    seen = proposal(image, (1, 2))
    restarted = started(image, 2)
    assert propose(restarted, seen)[1] == [ErrorCode.INELIGIBLE_REPLICA]
    assert propose(restarted, proposal(restarted, (1, 2)))[1] == [None]
    unchecked = replace(seen, isr=((1, -1), (2, -1)))
    assert propose(restarted, unchecked)[1] == [None]
    for unable in (fenced(image, 2), stopping(image, 2)):
        assert propose(unable, proposal(unable, (1, 2)))[1] == [ErrorCode.INELIGIBLE_REPLICA]


def test_a_stopping_leader_may_let_others_in() -> None:
    """Nobody could take over from it; the newcomer leads at once."""
    image = stopping(with_isr(cluster(2, (1, 2)), (1,)), 1)
    image, errors = propose(image, proposal(image, (1, 2)))
    assert (errors, partition(image).leader, partition(image).isr) == ([None], 2, (2,))


def test_a_call_has_its_limit() -> None:
    """The leader proposes the rest again."""
    image = cluster(1, (1,), partitions=AT_ONCE_MAX + 2)
    proposals = [proposal(image, (1,), index) for index in range(AT_ONCE_MAX + 2)]
    assert propose(image, *proposals)[1] == [None] * len(proposals), "nothing to change"
    image = cluster(2, (1, 2), partitions=AT_ONCE_MAX + 2)
    proposals = [proposal(image, (1,), index) for index in range(AT_ONCE_MAX + 2)]
    decision = change_isr(image, 1, image.brokers[1].epoch, proposals)
    refused = [error for error in decision.result if error is not None]
    assert (len(decision.changes), len(refused)) == (AT_ONCE_MAX, 2)
    assert {error.code for error in refused} == {ErrorCode.OPERATION_NOT_ATTEMPTED}


@pytest.mark.parametrize(("target", "leader", "error"), [((1, 3), 1, None), ((3,), 3, ErrorCode.NEW_LEADER_ELECTED)])
def test_the_last_new_replica_in_sync_ends_the_reassignment(
    target: tuple[int, ...], leader: int, error: ErrorCode | None
) -> None:
    """In the same entry, also if the leader itself is to go."""
    image = cluster(3, (1, 2))
    removing = tuple(member for member in (1, 2) if member not in target)
    image = step(image, ChangePartition(TOPIC_ID, 0, 0, replicas=target + removing, adding=(3,), removing=removing))
    image, errors = propose(image, proposal(image, (1, 2, 3)))
    state = partition(image)
    assert errors == [error]
    assert (state.replicas, set(state.isr), state.leader) == (target, set(target), leader)
    assert (state.adding, state.removing, state.leader_epoch) == ((), (), 1)


def test_errors_say_what_is_wrong() -> None:
    """They go to a log, not to a client."""
    image = fenced(with_isr(cluster(), (1,)), 2)
    (error,) = change_isr(image, 1, image.brokers[1].epoch, [proposal(image, (1, 2))]).result
    assert isinstance(error, KafkaError)
    assert error.message == "broker 2 is fenced"


def leave(image: Image, broker_id: int, *indexes: int) -> tuple[Image, int]:
    decision = leave_isr(image, broker_id, image.brokers[broker_id].epoch, [(TOPIC_ID, index) for index in indexes])
    return decide(image, decision), decision.result


def test_a_leader_that_leaves_the_isr_is_replaced() -> None:
    image, count = leave(cluster(), 1, 0)
    state = partition(image)
    assert (count, state.isr, state.leader, state.leader_epoch) == (1, (2, 3), 2, 1)


def test_a_follower_leaves_the_isr_alone() -> None:
    """Its leader stays, in the same epoch. With too few in sync, the follower is eligible (KIP-966)."""
    image, count = leave(with_isr(cluster(min_isr=2), (1, 3)), 3, 0)
    state = partition(image)
    assert (count, state.isr, state.leader, state.leader_epoch, state.elr) == (1, (1,), 1, 0, (3,))


def test_nobody_leaves_an_isr_that_no_other_can_lead() -> None:
    alone = with_isr(cluster(), (1,))
    assert leave(alone, 1, 0) == (alone, 0)
    stopped = stopping(cluster(replicas=(1, 2)), 2)
    assert leave(stopped, 1, 0) == (stopped, 0)


def test_only_partitions_that_exist_and_are_in_sync_are_left() -> None:
    image = with_isr(cluster(partitions=2), (1, 2), index=1)
    image, count = leave(image, 3, 0, 1, 7)
    assert (count, partition(image, 0).isr, partition(image, 1).isr) == (1, (1, 2), (1, 2))
    assert leave_isr(image, 3, image.brokers[3].epoch, [(b"?" * 16, 0)]).result == 0
    assert code_of(lambda: leave_isr(image, 3, 99, [(TOPIC_ID, 0)])) == ErrorCode.STALE_BROKER_EPOCH
