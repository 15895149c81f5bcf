"""Elections on request: Kafka's ElectLeaders, and the return to preferred leaders."""

import pytest

from ottla.cluster import changes as change
from ottla.cluster import elections, encoding
from ottla.cluster.changes import NO_LEADER
from ottla.cluster.controller import elect_unclean_leaders
from ottla.cluster.elections import ElectionType, elect_leaders, restore_preferred_leaders
from ottla.cluster.image import Image
from ottla.cluster.offline import take_replicas_offline
from ottla.errors import ErrorCode
from ottla.topic_partition import TopicPartition
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

PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN
FIRST = TopicPartition("orders", 0)


def elect(image: Image, election_type: int, *partitions: TopicPartition) -> tuple[Image, list[ErrorCode | None]]:
    decision = elect_leaders(image, election_type, partitions or None)
    return decide(image, decision), [None if error is None else error.code for error in decision.result.values()]


def moved_away(partitions: int = 1) -> Image:
    """Broker 2 leads after a restart of broker 1, which is back in sync."""
    image = started(fenced(cluster(partitions=partitions), 1), 1)
    for index in range(partitions):
        image = with_isr(image, (2, 3, 1), index)
    return image


def test_the_preferred_leader_leads_again() -> None:
    """The first replica, if it is in sync; the leader epoch rises."""
    image, errors = elect(moved_away(), PREFERRED, FIRST)
    assert (errors, partition(image).leader, partition(image).leader_epoch) == ([None], 1, 2)
    assert partition(image).isr == (2, 3, 1)


def test_why_there_is_no_election() -> None:
    """Kafka's codes."""
    image = cluster()
    assert elect(image, PREFERRED, FIRST)[1] == [ErrorCode.ELECTION_NOT_NEEDED]
    assert elect(image, UNCLEAN, FIRST)[1] == [ErrorCode.ELECTION_NOT_NEEDED]
    for led in (moved_away(), fenced(image, 1)):
        assert elect(led, UNCLEAN, FIRST) == (led, [ErrorCode.ELECTION_NOT_NEEDED])
    unknown = (TopicPartition("orders", 1), TopicPartition("orders", -1), TopicPartition("other", 0))
    assert elect(image, PREFERRED, *unknown)[1] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3
    for behind in (fenced(image, 1), started(fenced(image, 1), 1), stopping(moved_away(), 1)):
        assert elect(behind, PREFERRED, FIRST)[1] == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    assert elect(fenced(image, 1, 2, 3), UNCLEAN, FIRST)[1] == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]
    assert code_of(lambda: elect_leaders(image, 2, None)) is ErrorCode.INVALID_REQUEST


def test_an_unclean_election_takes_a_replica_that_runs() -> None:
    """What the others had no longer counts: they copy from the new leader when they are back."""
    image = started(fenced(cluster(min_isr=2), 2, 3, 1), 2)
    assert partition(image).leader == NO_LEADER
    image, errors = elect(image, UNCLEAN, FIRST)
    state = partition(image)
    assert (errors, state.leader, state.isr, state.elr) == ([None], 2, (2,), ())
    assert state.recovering
    assert partition(started(image, 3)).leader == 2


def test_an_unclean_election_avoids_failed_directories() -> None:
    """The broker runs, the replica does not."""
    image = started(fenced(cluster(3, (1, 2), min_isr=2), 2, 1), 2)
    decision = take_replicas_offline(image, 2, image.brokers[2].epoch, [(TOPIC_ID, 0)])
    image = decide(image, decision)
    assert elect(image, UNCLEAN, FIRST)[1] == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]


def test_a_lost_log_leads_after_an_unclean_election() -> None:
    """The only way back for a partition whose last replica was replaced."""
    image = started(cluster(1, (1,)), 1, directories=[b"new" + bytes(13)])
    assert partition(image).leader == NO_LEADER
    image, errors = elect(image, UNCLEAN, FIRST)
    assert (errors, partition(image).leader, partition(image).isr) == ([None], 1, (1,))


def test_all_partitions_without_those_that_need_nothing() -> None:
    """As Kafka answers a request that names none."""
    image = moved_away(partitions=3)
    image, errors = elect(image, PREFERRED, TopicPartition("orders", 1))
    image, errors = elect(image, PREFERRED)
    assert errors == [None, None]
    assert [partition(image, index).leader for index in range(3)] == [1, 1, 1]
    assert elect(image, PREFERRED)[1] == []


def test_a_partition_that_is_named_twice_is_elected_once() -> None:
    """A second change of the same partition would not fit the first."""
    assert elect(moved_away(), PREFERRED, FIRST, FIRST)[1] == [None]


def test_a_call_has_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is Kafka's. The rest is answered, not forgotten."""
    assert elections.AT_ONCE_MAX == 10_000
    monkeypatch.setattr(elections, "AT_ONCE_MAX", 100)
    decision = elect_leaders(started(fenced(cluster(2, (1, 2), partitions=103), 1), 1), PREFERRED, None)
    codes = [error.code for error in decision.result.values() if error is not None]
    assert set(codes) == {ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    image = fenced(cluster(2, (1, 2), min_isr=2, partitions=103), 2, 1)
    decision = elect_leaders(started(image, 2, clean=False), UNCLEAN, None)
    codes = [error.code for error in decision.result.values() if error is not None]
    assert (len(decision.changes), codes) == (100, [ErrorCode.OPERATION_NOT_ATTEMPTED] * 3)


def test_a_call_takes_what_fits_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is answered, and the others get their leaders."""
    monkeypatch.setattr(encoding, "ENTRY_BYTES_MAX", 5_000)
    image = moved_away(partitions=3000)
    decision = elect_leaders(image, PREFERRED, None)
    elected = len(decision.changes)
    assert 4_000 < len(encoding.encode(decision.changes)) <= 5_000 and elected < 3000
    codes = [error and error.code for error in decision.result.values()]
    assert codes == [None] * elected + [ErrorCode.OPERATION_NOT_ATTEMPTED] * (3000 - elected)


@pytest.mark.parametrize("limit", [2, 10])
def test_preferred_leaders_are_restored_step_by_step(limit: int) -> None:
    """Only where they are in sync and serve; nothing is done twice."""
    image = moved_away(partitions=3)
    image = with_isr(image, (2, 3), 1)
    decision = restore_preferred_leaders(image, limit)
    image = decide(image, decision)
    assert decision.result == 2
    assert [partition(image, index).leader for index in range(3)] == [1, 2, 1]
    assert restore_preferred_leaders(image, limit).result == 0
    assert restore_preferred_leaders(stopping(moved_away(), 1), limit).result == 0


def test_partitions_that_nobody_can_lead_do_not_hold_up_unclean_elections_of_others() -> None:
    """The controller elects so many at a time. Those of a broker that is gone must not take their places."""
    image = fenced(cluster(2, (1, 2), unclean=True), 2)
    waiting = [change.CreatePartition(TOPIC_ID, index, (member,), (), -1) for index, member in ((1, 2), (2, 1))]
    image = step(image, *waiting)
    decision = elect_unclean_leaders(image, 1)
    assert decision.result == 1 and partition(decide(image, decision), 2).leader == 1
