"""Fetches of followers: what they tell the leader, when they are answered, and with what."""

import asyncio
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.cluster.image import Image
from ottla.errors import ErrorCode, KafkaError
from ottla.observability.metrics import RequestMeters
from ottla.replication.fetch_sessions import FOLLOWER_IDLE_S, FetchSessions, FollowerSession
from ottla.replication.follower_fetch import HIGH_WATERMARK_DELAY_S, FollowerFetch
from ottla.replication.in_sync import UNKNOWN
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.replication.throttles import UNLIMITED, ReplicationThrottle
from ottla.wire.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic, PartitionResult
from tests.simulation.loop import simulate
from tests.unit.replication.led_partition import (
    EPOCHS,
    LEADER,
    LEADER_EPOCH,
    SECOND,
    THIRD,
    TOPIC,
    TOPIC_ID,
    FakeProposer,
    keep,
    lead,
    make_state,
    produce,
)

VERSION = 18
LONG_MS = 60_000


class FollowingBroker:
    """Sends the fetches of one follower, in one session."""

    def __init__(self, replicas: Replicas, broker_id: int = SECOND, sessions: FetchSessions | None = None) -> None:
        self.replicas = replicas
        self.sessions = FetchSessions(10, 120.0, Random(1)) if sessions is None else sessions
        self.broker_id = broker_id
        self.broker_epoch = EPOCHS[broker_id]
        self.session_id = 0
        self.session_epoch = 0
        self.rate = UNLIMITED
        self.throttle = ReplicationThrottle(lambda: self.rate, asyncio.get_running_loop().time)

    def send(
        self,
        *asked: FetchPartition,
        wait_ms: int = 0,
        forgotten: tuple[int, ...] = (),
        topic_id: bytes = TOPIC_ID,
        max_bytes: int = 1 << 20,
    ) -> FetchResponse | asyncio.Future[FetchResponse]:
        request = FetchRequest(
            replica_id=self.broker_id,
            replica_epoch=self.broker_epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=[FetchTopic(topic_id=topic_id, partitions=list(asked))] if asked else [],
            forgotten=[ForgottenTopic("", topic_id, list(forgotten))] if forgotten else [],
        )
        now = asyncio.get_running_loop().time()
        named = {(topic_id, "", partition.index): partition for partition in asked}
        session = self.sessions.open_follower(request, VERSION, now, named)
        if self.session_epoch >= 0:
            self.session_id = session.id
            self.session_epoch += 1
        fetching = FollowerFetch(self.replicas, RequestMeters(), session, request, 1 << 30, self.throttle)
        fetching.read_changed(now)
        return fetching.build_response() if fetching.is_enough() else fetching.wait()

    def ask(self, *asked: FetchPartition, **options: Any) -> dict[int, PartitionResult]:
        """The answer to a fetch that does not wait."""
        response = self.send(*asked, **options)
        assert isinstance(response, FetchResponse)
        return results(response)

    def wait(self, *asked: FetchPartition, **options: Any) -> asyncio.Future[FetchResponse]:
        """A fetch that waits."""
        waiting = self.send(*asked, wait_ms=LONG_MS, **options)
        assert not isinstance(waiting, FetchResponse), "it was answered at once"
        return waiting

    @property
    def session(self) -> FollowerSession:
        session = self.sessions._sessions[self.session_id]
        assert isinstance(session, FollowerSession)
        return session


def results(response: FetchResponse) -> dict[int, PartitionResult]:
    assert response.error_code == 0
    return {result.index: result for topic in response.topics for result in topic.partitions}


def at(offset: int, index: int = 0, high_watermark: int = 0, **fields: Any) -> FetchPartition:
    asked = FetchPartition(index, LEADER_EPOCH, offset, log_start_offset=0, max_bytes=1 << 20)
    asked.high_watermark = high_watermark
    for name, value in fields.items():
        setattr(asked, name, value)
    return asked


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_fetches_of_all_in_sync_move_the_high_watermark() -> None:
    async def scenario() -> None:
        partition = lead(FakeProposer())
        acknowledged = partition.wait_for_acks(produce(partition, b"a", b"b"), -1)
        assert acknowledged is not None
        second, third = (FollowingBroker(keep(partition), broker) for broker in (SECOND, THIRD))
        assert second.ask(at(0))[0].records is not None
        third.ask(at(0))
        second.ask(at(2))
        assert not acknowledged.done()
        assert third.ask(at(2))[0].high_watermark == 2, "the answer to the fetch that moved it has it"
        assert acknowledged.done()

    simulate(scenario())


def test_a_follower_reads_to_the_end_of_the_log() -> None:
    async def scenario() -> None:
        partition = lead(FakeProposer())
        produce(partition, b"a")
        replicas = keep(partition)
        result = FollowingBroker(replicas).ask(at(0))[0]
        assert result.records is not None and result.high_watermark == 0
        assert replicas.meters.replication_bytes_out == partition.log.size and partition.meter.bytes_out == 0

    simulate(scenario())


def test_records_for_a_replica_that_is_added_are_counted() -> None:
    async def scenario() -> None:
        partition = lead(FakeProposer(), make_state(isr=(LEADER, SECOND), adding=(THIRD,)))
        produce(partition, b"a")
        replicas = keep(partition)
        FollowingBroker(replicas, SECOND).ask(at(0))
        assert replicas.meters.reassignment_bytes_out == 0
        FollowingBroker(replicas, THIRD).ask(at(0))
        assert replicas.meters.reassignment_bytes_out == partition.log.size
        assert replicas.meters.replication_bytes_out == 2 * partition.log.size

    simulate(scenario())


def test_a_record_wakes_a_waiting_follower_at_once() -> None:
    async def scenario() -> None:
        partition = lead(FakeProposer())
        follower = FollowingBroker(keep(partition))
        waiting = follower.wait(at(0))
        await settle()
        produce(partition, b"a")
        loop = asyncio.get_running_loop()
        began = loop.time()
        response = await waiting
        assert results(response)[0].records is not None and loop.time() == began

    simulate(scenario())


def test_a_record_between_the_fetch_and_its_wait_is_seen() -> None:
    async def scenario() -> None:
        partition = lead(FakeProposer())
        waiting = FollowingBroker(keep(partition)).wait(at(0))
        produce(partition, b"a")
        assert results(await waiting)[0].records is not None

    simulate(scenario())


def test_a_high_watermark_that_the_follower_does_not_know_ends_its_wait() -> None:
    async def scenario() -> None:
        partition = lead(FakeProposer())
        produce(partition, b"a")
        loop = asyncio.get_running_loop()
        second, third = (FollowingBroker(keep(partition), broker) for broker in (SECOND, THIRD))
        waiting = second.wait(at(1))
        await settle()
        third.ask(at(1))
        began = loop.time()
        assert results(await waiting)[0].high_watermark == 1
        assert loop.time() - began == pytest.approx(HIGH_WATERMARK_DELAY_S)
        waiting = second.wait()  # the leader remembers what the follower knows
        await settle()
        began = loop.time()
        assert results(await waiting) == {}
        assert loop.time() - began == pytest.approx(LONG_MS / 1000)

    simulate(scenario())


def test_a_follower_that_knows_the_high_watermark_or_cannot_say_waits() -> None:
    async def scenario() -> None:
        partition = lead(FakeProposer())
        produce(partition, b"a")
        replicas = keep(partition)
        FollowingBroker(replicas, THIRD).ask(at(1))
        loop = asyncio.get_running_loop()
        for known in (1, 2**63 - 1):
            began = loop.time()
            response = await FollowingBroker(replicas).wait(at(1, high_watermark=known))
            assert results(response)[0].high_watermark == 1 and loop.time() - began == pytest.approx(LONG_MS / 1000)

    simulate(scenario())


def test_a_moved_log_start_ends_the_wait() -> None:
    async def scenario() -> None:
        partition = lead(FakeProposer(), make_state((LEADER,)))
        produce(partition, b"a")
        follower = FollowingBroker(keep(partition))
        follower.ask(at(1, high_watermark=1))
        waiting = follower.wait()
        await settle()
        began = asyncio.get_running_loop().time()
        partition.delete_records(None)
        assert results(await waiting)[0].log_start_offset == 1
        assert asyncio.get_running_loop().time() == began

    simulate(scenario())


def test_lost_leadership_ends_the_wait() -> None:
    async def scenario() -> None:
        partition = lead(FakeProposer())
        waiting = FollowingBroker(keep(partition)).wait(at(0))
        await settle()
        partition.become(make_state(leader=THIRD, leader_epoch=LEADER_EPOCH + 1))
        assert results(await waiting)[0].error_code == ErrorCode.FENCED_LEADER_EPOCH

    simulate(scenario())


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (at(0, current_leader_epoch=LEADER_EPOCH - 1), ErrorCode.FENCED_LEADER_EPOCH),
        (at(0, current_leader_epoch=LEADER_EPOCH + 1), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (at(3), ErrorCode.OFFSET_OUT_OF_RANGE),
        (at(0), ErrorCode.OFFSET_OUT_OF_RANGE),
        (at(2, index=7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_wrong_epochs_and_offsets_are_refused_and_move_nothing(asked: FetchPartition, error: ErrorCode) -> None:
    async def scenario() -> None:
        partition = lead(FakeProposer(), make_state((LEADER,)))
        produce(partition, b"a", b"b")
        partition.delete_records(1)
        assert FollowingBroker(keep(partition)).ask(asked)[asked.index].error_code == error
        assert partition.in_sync is not None and partition.in_sync.followers[SECOND].end_offset < 0

    simulate(scenario())


def test_a_topic_id_that_nobody_knows() -> None:
    async def scenario() -> None:
        follower = FollowingBroker(keep(lead(FakeProposer())))
        assert follower.ask(at(0), topic_id=b"x" * 16)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    simulate(scenario())


@pytest.mark.parametrize(
    ("epoch", "error"), [(LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
)
def test_a_broker_that_is_no_replica_gets_nothing(epoch: int, error: ErrorCode) -> None:
    # With the right leader epoch it may know of a reassignment that this leader has not seen yet.
    async def scenario() -> None:
        partition = lead(FakeProposer(), make_state((LEADER, SECOND), replicas=(LEADER, SECOND)))
        produce(partition, b"a")
        result = FollowingBroker(keep(partition), THIRD).ask(at(0, current_leader_epoch=epoch))[0]
        assert result.error_code == error and result.records is None

    simulate(scenario())


def test_an_earlier_life_of_the_follower_is_refused() -> None:
    async def scenario() -> None:
        partition = lead(FakeProposer())
        replicas = keep(partition)
        FollowingBroker(replicas).ask(at(0))
        ghost = FollowingBroker(replicas)
        ghost.broker_epoch -= 1
        assert ghost.ask(at(0))[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    simulate(scenario())


def test_a_diverging_log_is_told_where_and_does_not_count() -> None:
    async def scenario() -> None:
        partition = lead(FakeProposer())
        produce(partition, b"a", b"b")
        partition.become(make_state(leader_epoch=LEADER_EPOCH + 2))
        follower = FollowingBroker(keep(partition))
        asked = at(5, current_leader_epoch=LEADER_EPOCH + 2, last_fetched_epoch=LEADER_EPOCH + 1)
        result = follower.ask(asked)[0]
        assert result.diverging_epoch is not None and tuple(result.diverging_epoch) == (LEADER_EPOCH, 2)
        assert partition.in_sync is not None and partition.in_sync.followers[SECOND].end_offset < 0

    simulate(scenario())


def test_a_caught_up_follower_outside_the_isr_is_proposed() -> None:
    async def scenario() -> None:
        proposer = FakeProposer()
        partition = lead(proposer, make_state((LEADER,)))
        produce(partition, b"a", b"b")
        follower = FollowingBroker(keep(partition))
        follower.ask(at(1))
        assert proposer.proposed == []
        follower.ask(at(2))
        assert proposer.proposed == [partition]
        assert partition.propose_isr(EPOCHS) == ((LEADER, EPOCHS[LEADER]), (SECOND, EPOCHS[SECOND]))
        assert partition.propose_isr(EPOCHS) is not None, "it is asked again until the outcome is known"

    simulate(scenario())


def test_a_session_answers_only_what_is_new() -> None:
    async def scenario() -> None:
        proposer = FakeProposer()
        partitions = [lead(proposer, make_state((LEADER,)), index) for index in range(3)]
        follower = FollowingBroker(keep(*partitions))
        assert sorted(follower.ask(*(at(0, index) for index in range(3)))) == [0, 1, 2]
        assert follower.ask() == {}
        produce(partitions[1], b"a")
        assert list(follower.ask()) == [1]
        answer = follower.ask(at(1, 1))
        assert list(answer) == [1] and answer[1].high_watermark == 1 and answer[1].records is None
        assert follower.ask() == {} and follower.session.changed == {}

    simulate(scenario())


def test_records_are_sent_again_until_the_follower_asks_for_the_next() -> None:
    # A follower may throw an answer away: the leader looks again at the offset that the session has.
    async def scenario() -> None:
        partition = lead(FakeProposer())
        produce(partition, b"a")
        follower = FollowingBroker(keep(partition))
        for _ in range(3):
            assert follower.ask(*(() if follower.session_id else (at(0),)))[0].records is not None

    simulate(scenario())


def test_what_did_not_fit_comes_first_in_the_next_answer() -> None:
    async def scenario() -> None:
        proposer = FakeProposer()
        partitions = [lead(proposer, make_state((LEADER,)), index) for index in range(3)]
        for partition in partitions:
            produce(partition, b"a" * 1000)
        follower = FollowingBroker(keep(*partitions))
        found = []
        asked: tuple[FetchPartition, ...] = tuple(at(0, index) for index in range(3))
        for _ in range(3):
            answer = follower.ask(*asked, max_bytes=1100)
            (index,) = (result.index for result in answer.values() if result.records is not None)
            found.append(index)
            asked = (at(1, index),)
        assert found == [0, 1, 2]

    simulate(scenario())


def test_a_forgotten_partition_is_watched_no_more() -> None:
    async def scenario() -> None:
        partition = lead(FakeProposer())
        follower = FollowingBroker(keep(partition))
        follower.ask(at(0))
        assert len(partition.end_moved.watchers) == 1
        follower.ask(forgotten=(0,))
        produce(partition, b"a")
        assert follower.ask() == {} and not partition.end_moved.watchers

    simulate(scenario())


def test_a_follower_without_a_session_leaves_no_watcher() -> None:
    async def scenario() -> None:
        partition = lead(FakeProposer())
        follower = FollowingBroker(keep(partition))
        follower.session_epoch = -1
        assert list(follower.ask(at(0))) == [0]
        waiting = follower.wait(at(0))
        await settle()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert not partition.end_moved.watchers and len(follower.sessions) == 0

    simulate(scenario())


def test_a_second_fetch_in_the_session_ends_the_wait_of_the_first() -> None:
    # A follower that wants more partitions does not wait for records of those that it already follows.
    async def scenario() -> None:
        proposer = FakeProposer()
        partitions = [lead(proposer, make_state((LEADER,)), index) for index in range(2)]
        follower = FollowingBroker(keep(*partitions))
        follower.ask(at(0, 0))
        first = follower.wait()
        await settle()
        second = follower.wait(at(0, 1))
        assert first.done() and results(first.result()) == {}
        produce(partitions[0], b"a")
        assert list(results(await second)) == [1, 0], "what is new in both partitions"
        assert follower.session.waiting is None

    simulate(scenario())


def test_an_answer_that_nobody_received_is_found_again() -> None:
    async def scenario() -> None:
        partition = lead(FakeProposer(), make_state((LEADER,)))
        follower = FollowingBroker(keep(partition))
        follower.ask(at(0))
        waiting = follower.wait()
        await settle()
        produce(partition, b"a")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert list(follower.ask()) == [0]

    simulate(scenario())


def test_a_partition_that_is_created_again_is_found() -> None:
    async def scenario() -> None:
        proposer = FakeProposer()
        partition = lead(proposer)
        replicas = keep(partition)
        follower = FollowingBroker(replicas)
        follower.ask(at(0))
        partition.retire(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        replicas.remove_topic(TOPIC, TOPIC_ID)
        assert follower.ask()[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        again: Partition = lead(proposer)
        replicas.add(again, replicas.directories[0])
        assert follower.ask()[0].error_code == 0

    simulate(scenario())


def test_the_same_error_again_does_not_end_the_wait() -> None:
    # Otherwise a follower that keeps asking would ask without a pause.
    async def scenario() -> None:
        follower = FollowingBroker(keep(lead(FakeProposer())))
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert follower.ask(at(9))[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE and loop.time() == began
        response = await follower.wait()
        assert results(response)[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert loop.time() - began == pytest.approx(LONG_MS / 1000)

    simulate(scenario())


def test_a_replica_that_is_removed_and_added_while_its_fetch_waits_is_heard_again() -> None:
    # Otherwise an idle partition would stay without it in the ISR until the next record.
    async def scenario() -> None:
        partition = lead(FakeProposer())
        follower = FollowingBroker(keep(partition))
        follower.ask(at(0))
        waiting = follower.wait()
        state = partition.state
        assert state is not None
        partition.become(replace(state, replicas=(LEADER, THIRD), isr=(LEADER, THIRD), partition_epoch=1))
        partition.become(replace(state, isr=(LEADER, THIRD), partition_epoch=2))
        assert partition.in_sync is not None
        await settle()
        assert partition.in_sync.followers[SECOND].end_offset == UNKNOWN, "what it asked before says nothing now"
        assert follower.session.waiting is not None
        follower.session.waiting.finish()
        await waiting
        follower.ask()
        assert partition.in_sync.followers[SECOND].end_offset == 0

    simulate(scenario())


def test_a_replica_that_left_the_isr_while_its_fetch_waits_is_heard_again() -> None:
    # It joins again only after a fetch, so the leader has to look at its next one although nothing happens.
    async def scenario() -> None:
        partition = lead(FakeProposer())
        follower = FollowingBroker(keep(partition))
        follower.ask(at(0))
        waiting = follower.wait()
        state = partition.state
        assert state is not None
        partition.become(replace(state, isr=(LEADER, THIRD), partition_epoch=1))
        assert partition.in_sync is not None and partition.in_sync.followers[SECOND].must_fetch
        await settle()
        assert follower.session.waiting is not None
        follower.session.waiting.finish()
        await waiting
        follower.ask()
        assert not partition.in_sync.followers[SECOND].must_fetch

    simulate(scenario())


def test_an_idle_partition_stays_in_sync_although_no_fetch_looks_at_it() -> None:
    # The session tells when the follower last fetched: then it had everything.
    async def scenario() -> None:
        proposer = FakeProposer()
        partition = lead(proposer)
        replicas = keep(partition)
        second, third = FollowingBroker(replicas), FollowingBroker(replicas, THIRD)
        for follower in (second, third):
            follower.ask(at(0))
        for _ in range(10):
            await asyncio.sleep(10)
            second.ask()
        produce(partition, b"a")
        assert partition.wants_other_isr()
        assert partition.in_sync is not None
        now = asyncio.get_running_loop().time()
        assert list(partition.in_sync.list_lagging(partition.log.end_offset, now, 30.0)) == [THIRD]
        await asyncio.sleep(31)
        assert list(partition.in_sync.list_lagging(partition.log.end_offset, proposer.now(), 30.0)) == [SECOND, THIRD]

    simulate(scenario())


def test_sessions_of_followers_take_slots_of_consumers_and_never_the_other_way() -> None:
    async def scenario() -> None:
        sessions = FetchSessions(1, 120.0, Random(1))
        asked = {(TOPIC_ID, "", 0): at(0)}
        consumer, _ = sessions.open(FetchRequest(session_epoch=0), VERSION, 0.0, asked)
        assert consumer is not None
        follower = FollowingBroker(keep(lead(FakeProposer())), sessions=sessions)
        follower.ask(at(0))
        assert follower.session_id != 0 and len(sessions) == 1
        with pytest.raises(KafkaError) as refusal:
            sessions.open(FetchRequest(session_id=consumer.id, session_epoch=1), VERSION, 1.0, {})
        assert refusal.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert sessions.open(FetchRequest(session_epoch=0), VERSION, 1000.0, asked)[0] is None
        with pytest.raises(KafkaError) as refusal:
            request = FetchRequest(session_id=follower.session_id, session_epoch=1)
            sessions.open(request, VERSION, 1000.0, {})
        assert refusal.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    simulate(scenario())


def test_a_restarted_follower_ends_its_sessions_from_before() -> None:
    async def scenario() -> None:
        partition = lead(FakeProposer())
        sessions = FetchSessions(10, 120.0, Random(1))
        replicas = keep(partition)
        FollowingBroker(replicas, sessions=sessions).ask(at(0))
        FollowingBroker(replicas, sessions=sessions).ask(at(0))
        assert len(sessions) == 2, "a follower may have several fetchers"
        restarted = FollowingBroker(replicas, sessions=sessions)
        restarted.broker_epoch += 5
        restarted.ask(at(0))
        assert len(sessions) == 1 and len(partition.end_moved.watchers) == 1

    simulate(scenario())


def test_sessions_that_a_follower_left_behind_end() -> None:
    async def scenario() -> None:
        partition = lead(FakeProposer())
        sessions = FetchSessions(10, 120.0, Random(1))
        replicas = keep(partition)
        followers = [FollowingBroker(replicas, broker, sessions) for broker in (SECOND, SECOND, THIRD)]
        for follower in followers:
            follower.ask(at(0))
        await asyncio.sleep(FOLLOWER_IDLE_S - 1)
        followers[1].ask()
        await asyncio.sleep(2)
        FollowingBroker(replicas, sessions=sessions).ask(at(0))
        assert len(sessions) == 3 and len(partition.end_moved.watchers) == 3
        followers[1].ask()
        with pytest.raises(KafkaError):
            followers[0].ask()

    simulate(scenario())


def test_a_broker_that_has_registered_anew_is_refused_in_its_earlier_life() -> None:
    async def scenario() -> None:
        partition = lead(FakeProposer())
        replicas = keep(partition)
        registered = SimpleNamespace(epoch=EPOCHS[SECOND])
        replicas.image = cast(Image, SimpleNamespace(broker={SECOND: registered}.get))
        follower = FollowingBroker(replicas)
        assert follower.ask(at(0))[0].error_code == 0
        registered.epoch += 1
        produce(partition, b"a")
        assert follower.ask()[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    simulate(scenario())


def test_a_throttled_follower_gets_its_records_at_the_rate() -> None:
    async def scenario() -> None:
        state = make_state((LEADER,))
        partition = lead(FakeProposer(), state, leader_replication_throttled_replicas=f"0:{LEADER}")
        for _ in range(50):
            produce(partition, b"v" * 1000)
        follower = FollowingBroker(keep(partition))
        follower.rate = 10_000
        loop = asyncio.get_running_loop()
        began, offset, sent = loop.time(), 0, 0
        while offset < 50:
            response = follower.send(at(offset, max_bytes=1100), wait_ms=LONG_MS)
            result = results(response if isinstance(response, FetchResponse) else await response)[0]
            assert result.records is not None, "the wait ends when the rate allows more"
            sent += result.records.length  # type: ignore[union-attr]
            offset += 1
        assert sent / 10_000 - 1.5 <= loop.time() - began <= sent / 10_000 + 1.5

    simulate(scenario())


def test_the_throttle_spares_the_isr_and_partitions_that_are_not_listed() -> None:
    async def scenario() -> None:
        listed = f"0:{LEADER},1:{SECOND}"
        isr = make_state((LEADER, SECOND))
        in_sync = lead(FakeProposer(), isr, 0, leader_replication_throttled_replicas=listed)
        not_listed = lead(FakeProposer(), make_state((LEADER,)), 1, leader_replication_throttled_replicas=listed)
        held_back = lead(FakeProposer(), make_state((LEADER,)), 2, leader_replication_throttled_replicas="*")
        follower = FollowingBroker(keep(in_sync, not_listed, held_back))
        follower.rate = 1
        for partition in (in_sync, not_listed, held_back):
            produce(partition, b"v" * 1000, acks=1)
        follower.throttle.record(1000)
        answer = follower.ask(at(0, 0), at(0, 1), at(0, 2))
        assert [answer[index].records is None for index in range(3)] == [False, False, True]
        assert follower.throttle.bytes > 2000, "what goes to the ISR counts"

    simulate(scenario())


def test_the_high_watermark_does_not_wait_for_a_follower_that_the_throttle_holds_back() -> None:
    # It is far behind and outside the ISR: acks=all would wait until a reassignment has copied everything.
    async def scenario() -> None:
        partition = lead(FakeProposer(), make_state((LEADER,)), leader_replication_throttled_replicas="*")
        for _ in range(50):
            produce(partition, b"v" * 1000)
        follower = FollowingBroker(keep(partition))
        follower.rate = 1
        follower.throttle.record(1000)
        asked: tuple[FetchPartition, ...] = (at(0),)
        for _ in range(3):
            waiting = follower.wait(*asked)
            await settle()
            acknowledged = partition.wait_for_acks(produce(partition, b"x"), -1)
            await settle()
            assert acknowledged is None or acknowledged.done()
            assert partition.high_watermark.value == partition.log.end_offset
            assert follower.session.waiting is not None
            follower.session.waiting.finish()
            assert results(await waiting)[0].records is None
            asked = ()

    simulate(scenario())


def test_a_session_ends_when_its_broker_registers_again() -> None:
    # The session would answer NOT_LEADER_OR_FOLLOWER to the new registration of the broker for ever.
    async def scenario() -> None:
        follower = FollowingBroker(keep(lead(FakeProposer())))
        follower.ask(at(0))
        follower.broker_epoch += 1
        with pytest.raises(KafkaError) as refused:
            follower.ask(at(0))
        assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    simulate(scenario())
