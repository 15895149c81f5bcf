"""KIP-227: which fetch belongs to which session, what is left out of an answer, and who gets a slot."""

from random import Random

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.replication.fetch_sessions import FetchSession, FetchSessions, RequestedPartition, next_epoch
from ottla.wire.fetch import FetchPartition, FetchRequest, ForgottenTopic, PartitionResult

ID = b"i" * 16


def key(index: int) -> RequestedPartition:
    return (ID, "", index)


def asked(*indexes: int) -> dict[RequestedPartition, FetchPartition]:
    return {key(index): FetchPartition(index, fetch_offset=7) for index in indexes}


def sessions(slots: int = 2) -> FetchSessions:
    return FetchSessions(slots, 120.0, Random(1))


def begin(cache: FetchSessions, *indexes: int, now: float = 0.0) -> FetchSession | None:
    return cache.open(FetchRequest(session_epoch=0), 13, now, asked(*indexes))[0]


def go_on(
    cache: FetchSessions,
    session: FetchSession,
    epoch: int,
    *indexes: int,
    now: float = 0.0,
    forget: tuple[int, ...] = (),
) -> dict[RequestedPartition, FetchPartition]:
    forgotten = [ForgottenTopic("", ID, list(forget))]
    request = FetchRequest(session_id=session.id, session_epoch=epoch, forgotten=forgotten)
    return cache.open(request, 13, now, asked(*indexes))[1]


def test_a_fetch_without_a_session_is_served_as_it_is() -> None:
    cache = sessions()
    session, wanted = cache.open(FetchRequest(session_epoch=-1), 13, 0.0, asked(1, 2))
    assert session is None and list(wanted) == [key(1), key(2)] and len(cache) == 0


def test_an_incremental_fetch_adds_changes_and_forgets_partitions() -> None:
    cache = sessions()
    session = begin(cache, 1, 2)
    assert session is not None
    assert list(go_on(cache, session, 1)) == [key(1), key(2)]
    assert list(go_on(cache, session, 2, 3, forget=(1,))) == [key(2), key(3)]
    moved = {key(2): FetchPartition(2, fetch_offset=99)}
    wanted = cache.open(FetchRequest(session_id=session.id, session_epoch=3), 13, 0.0, moved)[1]
    assert wanted[key(2)].fetch_offset == 99 and wanted[key(3)].fetch_offset == 7


def test_epochs_must_follow_each_other_and_wrap_to_one() -> None:
    cache = sessions()
    session = begin(cache, 1)
    assert session is not None
    for wrong in (2, 5):
        with pytest.raises(KafkaError) as refusal:
            go_on(cache, session, wrong)
        assert refusal.value.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    go_on(cache, session, 1)
    assert session.epoch == 2
    assert next_epoch(2**31 - 1) == 1


def test_unknown_sessions_and_mixed_ways_of_naming_topics_are_refused() -> None:
    cache = sessions()
    session = begin(cache, 1)
    assert session is not None
    with pytest.raises(KafkaError) as refusal:
        cache.open(FetchRequest(session_id=session.id + 1, session_epoch=1), 13, 0.0, {})
    assert refusal.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    with pytest.raises(KafkaError) as refusal:
        cache.open(FetchRequest(session_id=session.id, session_epoch=1), 12, 0.0, {})
    assert refusal.value.code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_final_epoch_ends_a_session() -> None:
    cache = sessions()
    session = begin(cache, 1)
    assert session is not None
    cache.open(FetchRequest(session_id=session.id, session_epoch=-1), 13, 0.0, {})
    assert len(cache) == 0


def test_a_flood_of_newcomers_leaves_those_who_were_here() -> None:
    # Slots are bounded, and a busy session keeps its own against any number of larger newcomers.
    cache = sessions(slots=2)
    mine = begin(cache, 1)
    begin(cache, 1, 2)
    assert mine is not None
    for _ in range(1000):
        assert begin(cache, 1, 2, 3, now=1.0) is None
    assert len(cache) == 2
    go_on(cache, mine, 1, now=2.0)


def test_an_idle_session_gives_up_its_slot_first() -> None:
    cache = sessions(slots=2)
    idle, busy = begin(cache, 1), begin(cache, 1)
    assert idle is not None and busy is not None
    go_on(cache, busy, 1, now=100.0)
    assert begin(cache, 1, now=130.0) is not None
    go_on(cache, busy, 2, now=131.0)
    with pytest.raises(KafkaError):
        go_on(cache, idle, 1, now=131.0)


def test_an_answer_leaves_out_what_the_client_knows() -> None:
    cache = sessions()
    session = begin(cache, 1)
    assert session is not None
    partition = session.partitions[key(1)]
    same = PartitionResult(1, 0, 10, 10, 0)
    assert partition.must_answer(same, has_records=False)
    assert not partition.must_answer(same, has_records=False)
    assert partition.must_answer(same, has_records=True)
    assert partition.must_answer(PartitionResult(1, 0, 11, 10, 0), has_records=False)
    assert partition.must_answer(PartitionResult(1, 3), has_records=False)
    assert partition.must_answer(PartitionResult(1, 0, 11, 10, 0), has_records=False)


def test_partitions_that_gave_records_go_to_the_end() -> None:
    cache = sessions()
    session = begin(cache, 1, 2, 3)
    assert session is not None
    session.move_to_end([key(1)])
    assert [index for _, _, index in session.partitions] == [2, 3, 1]
