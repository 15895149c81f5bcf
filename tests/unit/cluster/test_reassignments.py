"""Moving partitions: Kafka's checks, the steps of a reassignment, and how it is changed, cancelled and finished."""

from collections.abc import Sequence
from random import Random

import pytest

from ottla.cluster import changes as change
from ottla.cluster import encoding
from ottla.cluster.changes import NO_LEADER, ConfigResource
from ottla.cluster.image import Image
from ottla.cluster.reassignments import (
    REPLICAS_MAX,
    alter_reassignments,
    finish_reassignments,
    list_reassignments,
)
from ottla.errors import ErrorCode
from ottla.topic_partition import TopicPartition
from tests.unit.cluster.clusters import cluster, configured, decide, fenced, partition, started, step, with_isr

FIRST = TopicPartition("orders", 0)
Members = tuple[int, ...]


def alter(
    image: Image, target: Sequence[int] | None, where: TopicPartition = FIRST, *, allow: bool = True
) -> tuple[Image, ErrorCode | None]:
    decision = alter_reassignments(image, [(where, target)], allow_replication_factor_change=allow)
    (error,) = decision.result
    return decide(image, decision), None if error is None else error.code


def moving(image: Image, target: Sequence[int]) -> Image:
    image, error = alter(image, target)
    assert error is None
    return image


def parts(image: Image) -> tuple[Members, Members, Members, Members]:
    state = partition(image)
    return state.replicas, state.isr, state.adding, state.removing


def finished(image: Image) -> Image:
    decision = finish_reassignments(image)
    assert decision.result == len(decision.changes)
    return decide(image, decision)


def test_a_partition_moves_in_two_steps() -> None:
    """The old replicas stay until every new one is in sync; the leader moves if it is removed."""
    image = moving(cluster(5, (1, 2)), (3, 4))
    assert parts(image) == ((3, 4, 1, 2), (1, 2), (3, 4), (1, 2))
    assert (partition(image).leader, partition(image).leader_epoch) == (1, 0)
    assert finish_reassignments(with_isr(image, (1, 2, 3))).result == 0
    image = finished(with_isr(image, (1, 2, 3, 4)))
    assert parts(image) == ((3, 4), (3, 4), (), ())
    assert (partition(image).leader, partition(image).leader_epoch) == (3, 1)
    assert finish_reassignments(image).result == 0


def test_the_leader_stays_if_it_can() -> None:
    """The leader epoch rises all the same, because a replica is gone."""
    image = finished(with_isr(moving(cluster(3, (1, 2)), (3, 1)), (1, 2, 3)))
    assert (partition(image).leader, partition(image).leader_epoch) == (1, 1)
    assert parts(image)[:2] == ((3, 1), (1, 3))


def test_what_needs_no_waiting_is_done_at_once() -> None:
    """Another order, fewer replicas that are all in sync, or nothing at all."""
    image = cluster()
    assert parts(moving(image, (3, 1, 2))) == ((3, 1, 2), (1, 2, 3), (), ())
    assert parts(moving(image, (2,))) == ((2,), (2,), (), ())
    assert partition(moving(image, (2,))).leader == 2
    assert moving(image, (1, 2, 3)) is image


def test_a_replica_that_stays_must_be_in_sync_before_others_go() -> None:
    """Or the partition would be left without enough complete replicas."""
    image = moving(with_isr(cluster(), (1,)), (2, 3))
    assert parts(image) == ((2, 3, 1), (1,), (), (1,))
    assert finish_reassignments(with_isr(image, (1, 2))).result == 0
    assert parts(finished(with_isr(image, (1, 2, 3)))) == ((2, 3), (2, 3), (), ())


def test_what_cannot_be_asked_for() -> None:
    """Kafka's codes."""
    image = cluster(4)
    for target in ((), (1, 1), (1, 9), tuple(range(REPLICAS_MAX + 1))):
        assert alter(image, target)[1] is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    for where in (TopicPartition("orders", 1), TopicPartition("orders", -1), TopicPartition("other", 0)):
        assert alter(image, (1,), where)[1] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(image, None)[1] is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert alter(fenced(image, 4), (4, 1, 2))[1] is None, "a broker that is away for now can be a target"


def test_the_guard_of_the_replication_factor() -> None:
    """It compares with what the partition will have, also while it is being moved (KIP-860)."""
    image = cluster(5, (1, 2, 3))
    assert alter(image, (1, 2), allow=False)[1] is ErrorCode.INVALID_REPLICATION_FACTOR
    assert alter(image, (1, 2, 3, 4), allow=False)[1] is ErrorCode.INVALID_REPLICATION_FACTOR
    assert alter(image, (1, 2, 4), allow=False)[1] is None
    image = moving(image, (4, 5))
    assert alter(image, (1, 2, 4), allow=False)[1] is ErrorCode.INVALID_REPLICATION_FACTOR
    assert alter(image, (1, 5), allow=False)[1] is None
    assert alter(image, None, allow=False)[1] is None


def test_cancelling_goes_back() -> None:
    """New replicas are dropped, also from the ISR; if one of them led, another leads."""
    image = with_isr(moving(cluster(4, (1, 2)), (3, 4)), (1, 2, 3))
    image, error = alter(image, None)
    assert error is None
    assert parts(image) == ((1, 2), (1, 2), (), ())
    assert (partition(image).leader, partition(image).leader_epoch) == (1, 1)
    image = fenced(with_isr(moving(cluster(3, (1, 2)), (3,)), (1, 2, 3)), 1)
    assert partition(image).leader == 3
    image, error = alter(image, None)
    assert (error, partition(image).leader, parts(image)[:2]) == (None, 2, ((1, 2), (2,)))


def test_cancelling_never_loses_records_by_itself() -> None:
    """Only the new replica is complete: it cannot be dropped, unless the topic allows an unclean election."""
    image = fenced(with_isr(moving(cluster(2, (1,)), (2,)), (1,)), 1)
    image = fenced(with_isr(moving(cluster(3, (1, 2)), (1, 2, 3)), (1, 3)), 1)
    assert parts(image)[1] == (3,)
    assert alter(image, None)[1] is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    image, error = alter(configured(image, "unclean.leader.election.enable", "true"), None)
    assert (error, partition(image).leader, partition(image).recovering) == (None, 2, True)
    assert parts(image) == ((1, 2), (2,), (), ())


def test_cancelling_keeps_an_eligible_replica() -> None:
    """Old replicas that are away have every committed record: the partition waits for them."""
    image = with_isr(moving(cluster(3, (1, 2), min_isr=3), (1, 2, 3)), (1, 2, 3))
    image = finished(image)
    image = fenced(moving(cluster(3, (1, 2), min_isr=2), (3, 1)), 1, 2)
    assert (partition(image).isr, partition(image).elr) == ((), (1, 2))
    image, error = alter(image, None)
    assert (error, partition(image).leader, partition(image).elr) == (None, NO_LEADER, (1, 2))
    assert partition(started(image, 1)).leader == 1


def test_a_reassignment_can_be_changed() -> None:
    """What an earlier request added and this one does not want is removed at the end, and by cancelling."""
    image = with_isr(moving(cluster(5, (1, 2)), (3, 4)), (1, 2, 3))
    image = moving(image, (5, 2))
    assert parts(image) == ((5, 2, 1, 3, 4), (1, 2, 3), (3, 4, 5), (1, 3, 4))
    assert moving(image, (5, 2)) is image, "the same again"
    assert parts(finished(with_isr(image, (1, 2, 3, 5)))) == ((5, 2), (2, 5), (), ())
    image, error = alter(image, None)
    assert (error, parts(image)) == (None, ((2, 1), (1, 2), (), ()))


def test_reassigning_back_to_the_beginning_is_cancelling() -> None:
    """By naming the old replicas."""
    image = moving(moving(cluster(4, (1, 2)), (3, 4)), (1, 2))
    assert parts(image) == ((1, 2), (1, 2), (), ())


def test_replicas_that_come_and_go_are_in_the_order_of_their_ids() -> None:
    """As in Kafka; the target keeps its order, because its first replica is the preferred leader."""
    image = moving(cluster(6, (3, 1, 2)), (6, 5, 4))
    assert parts(image) == ((6, 5, 4, 1, 2, 3), (3, 1, 2), (4, 5, 6), (1, 2, 3))
    assert parts(moving(cluster(6, (3, 1, 2)), (6, 2, 5))) == ((6, 2, 5, 1, 3), (3, 1, 2), (5, 6), (1, 3))


def test_a_partition_that_is_there_twice() -> None:
    """As in Kafka, each target is judged by the state before the request, and the last change counts."""
    image = cluster(5, (1, 2))
    decision = alter_reassignments(image, [(FIRST, (3, 4)), (FIRST, None), (FIRST, (5, 1)), (FIRST, (9,))])
    assert [error and error.code for error in decision.result] == [
        None,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        None,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ]
    assert parts(decide(image, decision)) == ((5, 1, 2), (1, 2), (5,), (2,))
    unchanged = alter_reassignments(image, [(FIRST, (3, 4)), (FIRST, (1, 2))])
    assert unchanged.result == [None, None]
    assert parts(decide(image, unchanged))[0] == (3, 4, 1, 2), "the second target needs no change"


def test_listing() -> None:
    """All that are being moved, or those of a list that are."""
    image = cluster(4, (1, 2), partitions=3)
    second = TopicPartition("orders", 1)
    image, _ = alter(image, (3, 4), second)
    assert list(list_reassignments(image)) == [second]
    assert list_reassignments(image, [FIRST, second, TopicPartition("x", 0)]) == {second: partition(image, 1)}
    assert list_reassignments(image, []) == {}


def test_a_call_has_its_limit() -> None:
    """It is Kafka's. And finishing goes on with the next call."""
    count = 10_000 + 2
    image = cluster(2, (1,), partitions=count)
    targets = [(TopicPartition("orders", index), (2, 1)) for index in range(count)]
    decision = alter_reassignments(image, targets)
    refused = [error.code for error in decision.result if error is not None]
    assert (len(decision.changes), refused) == (10_000, [ErrorCode.OPERATION_NOT_ATTEMPTED] * 2)
    image = moving(cluster(2, (1, 2), partitions=3), (2,))
    for index in (1, 2):
        image, _ = alter(with_isr(image, (1,), index), (2,), TopicPartition("orders", index))
        image = with_isr(image, (1, 2), index)
    assert finish_reassignments(image, 1).result == 1
    assert finish_reassignments(image).result == 2


def test_a_call_takes_what_fits_an_entry(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With very many replicas 10,000 changes would not: the rest is answered, and the others are moved."""
    monkeypatch.setattr(encoding, "ENTRY_BYTES_MAX", 50_000)
    random, count = Random(seed), 1000
    image = cluster(60, range(1, 21), partitions=count)
    targets = [(TopicPartition("orders", index), random.sample(range(1, 61), 20)) for index in range(count)]
    decision = alter_reassignments(image, targets)
    moved = len(decision.changes)
    assert 40_000 < len(encoding.encode(decision.changes)) <= 50_000
    codes = [error and error.code for error in decision.result]
    assert codes == [None] * moved + [ErrorCode.OPERATION_NOT_ATTEMPTED] * (count - moved)


def test_a_cordoned_broker_keeps_its_replicas_and_gets_no_more() -> None:
    image = cluster(3, (1, 2))
    for broker, error in ((2, None), (3, ErrorCode.INVALID_REPLICA_ASSIGNMENT)):
        image = step(image, change.SetConfig(ConfigResource.BROKER, str(broker), "cordoned.log.dirs", "*"))
        assert alter(image, (2, 3))[1] == error
    assert alter(image, (2, 1))[1] is None
