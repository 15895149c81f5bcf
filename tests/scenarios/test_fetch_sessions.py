"""Incremental fetch sessions (KIP-227): both sides send only changes, and the number of sessions is limited."""

from collections.abc import Iterator

import pytest

from ottla.errors import ErrorCode
from ottla.testing import LocalBroker
from ottla.testing import broker as local_broker
from ottla.wire.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from tests.raw_client import RawClient
from tests.scenarios.client_calls import (
    append,
    connect,
    create_topic,
    decode_records,
    decode_values,
    delete_topic,
    find_topic_id,
)

NEWEST = 18
SLOTS = 4


class Session:
    """The client's side of one session."""

    def __init__(self, client: RawClient, version: int = NEWEST) -> None:
        self.client = client
        self.version = version
        self.id = 0
        self.epoch = 0

    def fetch(
        self,
        partitions: dict[tuple[str | bytes, int], int] | None = None,
        forgotten: list[tuple[str | bytes, int]] | None = None,
        max_bytes: int = 2**20,
        max_wait_ms: int = 0,
    ) -> FetchResponse:
        """Send one request of the session: partitions to add or change, with their offsets, and partitions to
        forget."""
        answer = self.client.fetch_whole(
            FetchRequest(
                min_bytes=1,
                max_bytes=max_bytes,
                max_wait_ms=max_wait_ms,
                session_id=self.id,
                session_epoch=self.epoch,
                topics=[
                    FetchTopic(*named(topic), [FetchPartition(index, fetch_offset=offset, max_bytes=2**20)])
                    for (topic, index), offset in (partitions or {}).items()
                ],
                forgotten=[ForgottenTopic(*named(topic), [index]) for topic, index in forgotten or ()],
            ),
            self.version,
        )
        if not answer.error_code:
            self.id = answer.session_id
            self.epoch += 1
        return answer


def named(topic: str | bytes) -> tuple[str, bytes]:
    return (topic, bytes(16)) if isinstance(topic, str) else ("", topic)


def list_partitions(answer: FetchResponse) -> list[tuple[str | bytes, int]]:
    assert answer.error_code == 0
    return [(topic.name or topic.topic_id, each.index) for topic in answer.topics for each in topic.partitions]


@pytest.fixture(scope="module")
def small_cache() -> Iterator[LocalBroker]:
    with local_broker(max_incremental_fetch_session_cache_slots=SLOTS) as running:
        running.create_topic("one")
        running.create_topic("wide", 5)
        yield running


@pytest.mark.parametrize("version", (7, 12, 13, NEWEST))
def test_only_changes_are_returned(version: int, client: RawClient, topic: str) -> None:
    # The first answer has every partition; then nothing, until there are records, a new high watermark, or an error.
    target: str | bytes = find_topic_id(client, topic) if version >= 13 else topic
    session = Session(client, version)
    assert list_partitions(session.fetch({(target, 0): 0})) == [(target, 0)]
    assert session.id != 0
    assert list_partitions(session.fetch()) == []
    append(client, topic, b"one")
    answer = session.fetch()
    assert decode_values(answer.topics[0].partitions[0]) == [b"one"]
    assert list_partitions(session.fetch({(target, 0): 1})) == []
    assert list_partitions(session.fetch({(target, 0): 1})) == []


def test_a_partition_is_returned_again_until_the_client_moves_on(client: RawClient, topic: str) -> None:
    # Only the client moves its offset. As long as it does not, the same records come again.
    append(client, topic, b"one")
    session = Session(client)
    found_id = find_topic_id(client, topic)
    first: dict[tuple[str | bytes, int], int] = {(found_id, 0): 0}
    for partitions in (first, None, None):
        answer = session.fetch(partitions)
        assert decode_values(answer.topics[0].partitions[0]) == [b"one"]


def test_partitions_come_and_go(client: RawClient, shared_broker: LocalBroker, topic: str) -> None:
    # An added partition is in the next answer. A forgotten one is in no answer, even when it has new records.
    shared_broker.create_topic("session-second")
    first, second = find_topic_id(client, topic), find_topic_id(client, "session-second")
    session = Session(client)
    assert list_partitions(session.fetch({(first, 0): 0})) == [(first, 0)]
    assert list_partitions(session.fetch({(second, 0): 0})) == [(second, 0)]
    append(client, topic, b"for nobody")
    append(client, "session-second", b"for us")
    assert list_partitions(session.fetch(forgotten=[(first, 0)])) == [(second, 0)]
    append(client, topic, b"for nobody")
    assert list_partitions(session.fetch({(second, 0): 1})) == []


def test_a_fetch_of_no_partitions_creates_no_session(client: RawClient) -> None:
    # A full fetch of nothing needs no slot: session id 0.
    session = Session(client)
    assert list_partitions(session.fetch()) == []
    assert session.id == 0


def test_the_wrong_epoch_or_id_is_refused(client: RawClient, topic: str) -> None:
    # The session is unchanged: the next request with the right epoch succeeds.
    found_id = find_topic_id(client, topic)
    session = Session(client)
    session.fetch({(found_id, 0): 0})
    for epoch in (2, 5, 2**31 - 1):
        session.epoch = epoch
        assert session.fetch().error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    session.epoch = 1
    assert list_partitions(session.fetch()) == []
    session.id += 1
    assert session.fetch().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_epoch_minus_one_ends_a_session_and_is_answered_in_full(client: RawClient, topic: str) -> None:
    found_id = find_topic_id(client, topic)
    session = Session(client)
    session.fetch({(found_id, 0): 0})
    ended, session.epoch = session.id, -1
    answer = session.fetch({(found_id, 0): 0})
    assert (list_partitions(answer), answer.session_id) == ([(found_id, 0)], 0)
    session.id, session.epoch = ended, 1
    assert session.fetch().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_begins_again_with_epoch_zero(client: RawClient, topic: str) -> None:
    # Epoch 0 with the id of an old session: the client gets a new session, and the old one is closed.
    found_id = find_topic_id(client, topic)
    session = Session(client)
    session.fetch({(found_id, 0): 0})
    old, session.epoch = session.id, 0
    assert list_partitions(session.fetch({(found_id, 0): 0})) == [(found_id, 0)]
    assert session.id not in (0, old)
    session.id = old
    assert session.fetch().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_names_and_ids_do_not_mix_in_a_session(client: RawClient, topic: str) -> None:
    # A session that began with topic names cannot go on with topic ids, or the other way round (KIP-516).
    by_name = Session(client, 12)
    by_name.fetch({(topic, 0): 0})
    by_name.version = 13
    assert by_name.fetch().error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    by_id = Session(client, 13)
    by_id.fetch({(find_topic_id(client, topic), 0): 0})
    by_id.version = 12
    assert by_id.fetch().error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_deleted_topic_is_an_error_in_every_answer(client: RawClient, topic: str) -> None:
    # Errors are in every answer, not only in the first. A new topic of the same name has another id.
    found_id = find_topic_id(client, topic)
    session = Session(client)
    session.fetch({(found_id, 0): 0})
    assert delete_topic(client, topic) == 0
    assert create_topic(client, topic).error_code == 0
    append(client, topic, b"another topic")
    for _ in range(2):
        (answered,) = session.fetch().topics
        assert answered.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert list_partitions(session.fetch(forgotten=[(found_id, 0)])) == []


def test_a_busy_partition_does_not_starve_the_others(shared_broker: LocalBroker, client: RawClient) -> None:
    # The answer has room for one partition. A partition that returned records moves to the end, so all have their turn.
    shared_broker.create_topic("busy", 4)
    for index in range(4):
        append(client, "busy", bytes(2000), partition=index)
    found_id = find_topic_id(client, "busy")
    session = Session(client)
    served = []
    answer = session.fetch({(found_id, index): 0 for index in range(4)}, max_bytes=1000)
    for _ in range(8):
        served += [each.index for topic in answer.topics for each in topic.partitions if decode_records(each)]
        answer = session.fetch(max_bytes=1000)
    assert served == [0, 1, 2, 3, 0, 1, 2, 3]


def test_a_flood_of_new_sessions_evicts_none_that_is_in_use(small_cache: LocalBroker) -> None:
    # Newcomers beyond the last slot are served without a session (id 0), and the old sessions go on.
    with connect(small_cache) as client:
        found_id = find_topic_id(client, "one")
        old = [Session(client) for _ in range(SLOTS)]
        for session in old:
            assert list_partitions(session.fetch({(found_id, 0): 0})) == [(found_id, 0)]
        assert len({session.id for session in old} - {0}) == SLOTS
        for _ in range(200):
            newcomer = Session(client)
            assert list_partitions(newcomer.fetch({(found_id, 0): 0})) == [(found_id, 0)]
            assert newcomer.id == 0
        for session in old:
            assert list_partitions(session.fetch()) == []
        for session in old:
            session.epoch = -1
            session.fetch()


def test_idle_sessions_are_evicted_for_newcomers(small_cache: LocalBroker) -> None:
    # After two minutes newcomers get the slots, and the old clients are told to begin again.
    with connect(small_cache) as client:
        found_id = find_topic_id(client, "one")
        idle = [Session(client) for _ in range(SLOTS)]
        for session in idle:
            session.fetch({(found_id, 0): 0})
        small_cache.advance(minutes=3)
        newcomers = [Session(client) for _ in range(SLOTS)]
        for session in newcomers:
            assert list_partitions(session.fetch({(found_id, 0): 0})) == [(found_id, 0)]
            assert session.id != 0
        for session in idle:
            assert session.fetch().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        for session in newcomers:
            assert list_partitions(session.fetch()) == []


def test_two_clients_that_share_a_session_cannot_harm_the_broker(
    client: RawClient, other: RawClient, topic: str
) -> None:
    # The second client removes a partition from the session while the first one waits for it. The first is answered.
    found_id = find_topic_id(client, topic)
    session = Session(client)
    session.fetch({(found_id, 0): 0})
    client.send_fetch(FetchRequest(max_wait_ms=5000, min_bytes=1, session_id=session.id, session_epoch=1), NEWEST)
    for _ in range(3):
        other.fetch("nobody", 0, 0)
    thief = Session(other)
    thief.id, thief.epoch = session.id, 2
    assert list_partitions(thief.fetch(forgotten=[(found_id, 0)])) == []
    append(other, topic, b"news")
    assert client.read_fetch(NEWEST).error_code == 0
