"""One partition: what the high watermark waits for, who may read how far, and what a failing disk does to it."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from random import Random
from typing import Any

import pytest

from ottla.cluster.image import PartitionImage
from ottla.config import BrokerConfig, TopicConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch
from ottla.replication.partition import Partition
from ottla.storage.log import Appended, LogSettings
from ottla.storage.opening import create_log
from tests.simulation.disk import SimulatedDisk
from tests.simulation.loop import simulate
from tests.unit.replication.led_partition import FakeProposer

ME, FOLLOWER = 1, 2
NOW = 1_700_000_000_000


class Threads:
    """An offload whose work runs when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[asyncio.Future[Any], Callable[..., Any]]] = []

    def __call__(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting.append((future, lambda: function(*args)))
        return future

    async def run(self, error: Exception | None = None) -> None:
        waiting, self.waiting = self.waiting, []
        for future, work in waiting:
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(work())
        await asyncio.sleep(0)


def leading(threads: Threads, isr: tuple[int, ...] = (ME,), replicas: tuple[int, ...] = (), **config: str) -> Partition:
    disk = SimulatedDisk(Random(1))
    disk.make_directory("/data")
    log = create_log(disk, "/data/t-0", b"t" * 16, LogSettings(), NOW)
    settings = TopicConfig.of({name.replace("_", "."): value for name, value in config.items()}, BrokerConfig.of({}))
    proposer = FakeProposer() if len(replicas or isr) > 1 else None
    partition = Partition("t", b"t" * 16, 0, log, settings, ME, threads, 0, isr_proposer=proposer)
    partition.become(PartitionImage(replicas or isr, isr, ME, leader_epoch=4))
    return partition


def produce(partition: Partition, *values: bytes, acks: int = -1) -> Appended:
    data = memoryview(batch.encode([(None, value, (), NOW) for value in values]))
    return partition.append(data, batch.check_client_batch(data), NOW, acks)


def test_alone_the_high_watermark_follows_the_end_of_the_log() -> None:
    async def scenario() -> None:
        partition = leading(Threads())
        appended = produce(partition, b"a", b"b")
        assert partition.high_watermark.value == 2
        assert partition.wait_for_acks(appended, -1) is None

    simulate(scenario())


def test_with_followers_it_is_the_smallest_end_in_sync() -> None:
    async def scenario() -> None:
        partition = leading(Threads(), isr=(ME, FOLLOWER))
        appended = produce(partition, b"a", b"b", b"c")
        acknowledged = partition.wait_for_acks(appended, -1)
        assert acknowledged is not None and partition.wait_for_acks(appended, 1) is None
        partition.note_follower_fetch(FOLLOWER, 1, 2, 0, 0.0)
        assert partition.high_watermark.value == 2 and not acknowledged.done()
        partition.note_follower_fetch(FOLLOWER, 1, 3, 0, 0.0)
        assert acknowledged.done()

    simulate(scenario())


def test_too_few_in_sync_refuses_acks_all_and_holds_the_high_watermark() -> None:
    async def scenario() -> None:
        partition = leading(Threads(), replicas=(ME, FOLLOWER), min_insync_replicas="2")
        with pytest.raises(KafkaError) as refusal:
            produce(partition, b"a")
        assert refusal.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
        produce(partition, b"a", acks=1)
        assert partition.high_watermark.value == 0

    simulate(scenario())


class IdempotentProducer:
    """Sends batches of one record to a partition, as a producer whose epoch it counts up."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.epoch = 0

    def send(self, sequence: int) -> Appended:
        data = memoryview(
            batch.encode([(None, b"v", (), NOW)], producer_id=7, producer_epoch=self.epoch, base_sequence=sequence)
        )
        return self.partition.append(data, batch.check_client_batch(data), NOW, -1)

    def find_error(self, sequence: int) -> ErrorCode:
        with pytest.raises(KafkaError) as refusal:
            self.send(sequence)
        return ErrorCode(refusal.value.code)


def elect(partition: Partition, leader: int = ME) -> None:
    state = partition.state
    assert state is not None
    leader_epoch, partition_epoch = state.leader_epoch + 1, state.partition_epoch + 1
    partition.become(replace(state, leader=leader, leader_epoch=leader_epoch, partition_epoch=partition_epoch))


def test_a_batch_behind_one_that_came_before_the_election_is_refused_like_it() -> None:
    # A client that learns of a new leader first sends it several batches. The first ones come before the broker knows
    # that it leads. OUT_OF_ORDER_SEQUENCE_NUMBER for the next one made librdkafka write again what was in the log.
    async def scenario() -> None:
        partition = leading(Threads(), isr=(ME, FOLLOWER))
        producer = IdempotentProducer(partition)
        producer.send(0)
        elect(partition, FOLLOWER)
        assert producer.find_error(0) == producer.find_error(1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        elect(partition)
        assert producer.find_error(2) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert producer.send(0).is_duplicate
        assert producer.find_error(2) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [producer.send(sequence).base_offset for sequence in (1, 2)] == [1, 2]

    simulate(scenario())


def test_after_an_election_a_batch_may_come_before_those_that_the_earlier_leader_had() -> None:
    # librdkafka ends its requests to the earlier leader and sends to the new one in two threads, and the second may be
    # the faster. OUT_OF_ORDER_SEQUENCE_NUMBER then made it write again records of other partitions.
    async def scenario() -> None:
        partition = leading(Threads(), isr=(ME, FOLLOWER))
        producer = IdempotentProducer(partition)
        producer.send(0)
        assert producer.find_error(2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "it wrote in this epoch only"
        elect(partition)
        assert producer.find_error(3) == producer.find_error(4) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [producer.send(sequence).base_offset for sequence in (1, 2, 3, 4)] == [1, 2, 3, 4]
        assert producer.find_error(6) == ErrorCode.NOT_LEADER_OR_FOLLOWER, "one of five batches is of the earlier epoch"
        producer.send(5)
        assert producer.find_error(7) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "none of them is"

    simulate(scenario())


@pytest.mark.parametrize("order", list(permutations((2, 3, 4, 5))))
@pytest.mark.parametrize("early", [0, 1, 2])
def test_batches_behind_a_gap_may_come_in_any_order(order: tuple[int, ...], early: int) -> None:
    # Some of them may come before the broker knows that it leads. Each of them is refused once.
    async def scenario() -> None:
        partition = leading(Threads(), isr=(ME, FOLLOWER))
        producer = IdempotentProducer(partition)
        producer.send(0)
        elect(partition, FOLLOWER)
        for sequence in order[:early]:
            assert producer.find_error(sequence) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        elect(partition)
        for sequence in order[early:]:
            assert producer.find_error(sequence) == ErrorCode.NOT_LEADER_OR_FOLLOWER, "it has come once"
        for _ in range(2):
            errors = [producer.find_error(sequence) for sequence in sorted(order)]
        assert errors[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "the gap is still there"
        assert [producer.send(sequence).base_offset for sequence in range(1, 6)] == list(range(1, 6))
        assert not partition._refused

    simulate(scenario())


def test_a_gap_that_is_still_there_when_a_batch_comes_again_is_answered_as_one() -> None:
    async def scenario() -> None:
        partition = leading(Threads(), isr=(ME, FOLLOWER))
        producer = IdempotentProducer(partition)
        producer.send(0)
        for _ in range(2):
            elect(partition)
            for expected in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
                assert producer.find_error(2) == producer.find_error(3) == expected
        producer.epoch = 1
        assert producer.find_error(1) == ErrorCode.NOT_LEADER_OR_FOLLOWER, "the earlier leader may have its first batch"
        assert producer.find_error(1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        producer.send(0)
        alone = leading(Threads())
        producer = IdempotentProducer(alone)
        producer.send(0)
        elect(alone)
        assert producer.find_error(2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "there was no other leader"

    simulate(scenario())


def test_a_retry_from_long_ago_is_out_of_order_after_an_election_too() -> None:
    async def scenario() -> None:
        partition = leading(Threads(), isr=(ME, FOLLOWER))
        producer = IdempotentProducer(partition)
        for sequence in range(8):
            producer.send(sequence)
        elect(partition)
        assert producer.find_error(1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert producer.send(7).is_duplicate

    simulate(scenario())


def test_records_that_are_waited_for_are_flushed_when_flush_messages_is_set_to_1() -> None:
    # Producers that have as many requests under way as they may send no record whose flush would be theirs as well.
    async def scenario() -> None:
        threads = Threads()
        partition = leading(threads, isr=(ME, FOLLOWER))
        acknowledged = partition.wait_for_acks(produce(partition, b"a"), -1)
        assert acknowledged is not None and not threads.waiting
        changed = TopicConfig.of({"flush.messages": "1"}, BrokerConfig.of({}))
        partition.configure(changed, partition.log.settings)
        partition.note_follower_fetch(FOLLOWER, 1, 1, 0, 0.0)
        assert not acknowledged.done()
        await threads.run()
        assert acknowledged.done() and partition.high_watermark.value == 1

    simulate(scenario())


def test_a_retry_that_is_recognised_leaves_what_was_refused_behind_it_refused() -> None:
    # The ISR is too small for a moment. The producer repeats the first batch, which was appended, while one behind the
    # refused second one is under way. As OUT_OF_ORDER_SEQUENCE_NUMBER that would give it a new epoch, and the batches
    # that it repeats then are copies that nobody can recognise.
    async def scenario() -> None:
        partition = leading(Threads(), isr=(ME, FOLLOWER), replicas=(ME, FOLLOWER), min_insync_replicas="2")
        state = partition.state
        assert state is not None

        def send(sequence: int) -> Appended:
            encoded = batch.encode([(None, b"v", (), NOW)], producer_id=7, producer_epoch=0, base_sequence=sequence)
            data = memoryview(encoded)
            return partition.append(data, batch.check_client_batch(data), NOW, -1)

        def find_error(sequence: int) -> ErrorCode:
            with pytest.raises(KafkaError) as refusal:
                send(sequence)
            return ErrorCode(refusal.value.code)

        send(0)
        partition.become(replace(state, isr=(ME,), partition_epoch=1))
        assert find_error(1) == ErrorCode.NOT_ENOUGH_REPLICAS
        partition.become(replace(state, partition_epoch=2))
        assert send(0).is_duplicate
        assert find_error(2) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert [send(sequence).base_offset for sequence in (1, 2)] == [1, 2]
        assert find_error(4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    simulate(scenario())


def test_group_commit_one_fsync_in_flight_and_the_next_is_shared() -> None:
    # With flush.messages=1 nobody is answered, and nobody can read, before the fsync; appends meanwhile share one.
    async def scenario() -> None:
        threads = Threads()
        partition = leading(threads, flush_messages="1")
        await threads.run()
        first = partition.wait_for_acks(produce(partition, b"a"), -1)
        later = [partition.wait_for_acks(produce(partition, b"b", acks=acks), acks) for acks in (-1, 1, -1)]
        assert len(threads.waiting) == 1 and partition.high_watermark.value == 0
        await threads.run()
        assert first is not None and first.done() and partition.high_watermark.value == 1
        assert len(threads.waiting) == 1 and not any(waiter is None or waiter.done() for waiter in later)
        await threads.run()
        assert all(waiter is not None and waiter.done() for waiter in later) and partition.high_watermark.value == 4
        assert not threads.waiting

    simulate(scenario())


def test_a_failed_fsync_acknowledges_nothing_and_ends_the_log() -> None:
    # After EIO nobody knows what is on the disk, so the fsync is not repeated and taken for success.
    async def scenario() -> None:
        threads = Threads()
        partition = leading(threads, flush_messages="1")
        await threads.run()
        waiter = partition.wait_for_acks(produce(partition, b"a"), -1)
        assert waiter is not None
        await threads.run(OSError(5, "Input/output error"))
        with pytest.raises(KafkaError) as refusal:
            await waiter
        assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR and partition.high_watermark.value == 0
        with pytest.raises(KafkaError) as refusal:
            produce(partition, b"b")
        assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR

    simulate(scenario())


def test_consumers_read_to_the_high_watermark() -> None:
    async def scenario() -> None:
        partition = leading(Threads(), isr=(ME, FOLLOWER))
        produce(partition, b"a")
        consumer = partition.read(0, 1000, read_committed=False, at_least_one=True)
        assert consumer.records is None
        for offset in (-1, 2):
            with pytest.raises(KafkaError) as refusal:
                partition.read(offset, 1000, read_committed=False, at_least_one=True)
            assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE

    simulate(scenario())


def test_a_follower_takes_the_leaders_offsets_as_far_as_its_log_goes_and_never_back() -> None:
    # Consumers may read from a follower: what they were told must not go back when the next leader knows less.
    async def scenario() -> None:
        partition = leading(Threads(), isr=(ME, FOLLOWER))
        produce(partition, b"a", b"b", b"c")
        partition.become(PartitionImage((ME, FOLLOWER), (ME, FOLLOWER), FOLLOWER, leader_epoch=5))
        for told, known in (((2, 0), (2, 0)), ((9, 0), (3, 0)), ((1, 2), (3, 2)), ((3, 1), (3, 2)), ((9, 9), (3, 3))):
            partition.follow_leader(*told)
            assert (partition.high_watermark.value, partition.log.log_start_offset) == known, told

    simulate(scenario())


def test_lost_leadership_fails_those_who_wait_and_refuses_appends() -> None:
    async def scenario() -> None:
        partition = leading(Threads(), isr=(ME, FOLLOWER))
        waiter = partition.wait_for_acks(produce(partition, b"a"), -1)
        assert waiter is not None
        partition.become(PartitionImage((ME, FOLLOWER), (FOLLOWER,), FOLLOWER, leader_epoch=5))
        with pytest.raises(KafkaError) as refusal:
            await waiter
        assert refusal.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(KafkaError):
            produce(partition, b"b")

    simulate(scenario())


def test_leader_epochs_are_checked_both_ways() -> None:
    async def scenario() -> None:
        partition = leading(Threads())
        partition.require_leader(-1)
        partition.require_leader(4)
        for epoch, code in ((3, ErrorCode.FENCED_LEADER_EPOCH), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)):
            with pytest.raises(KafkaError) as refusal:
                partition.require_leader(epoch)
            assert refusal.value.code == code

    simulate(scenario())


def test_log_append_time_is_the_brokers_and_the_batch_stays_sound() -> None:
    async def scenario() -> None:
        partition = leading(Threads(), message_timestamp_type="LogAppendTime")
        appended = produce(partition, b"a")
        found = partition.read(0, 1000, read_committed=False, at_least_one=True).records
        assert appended.log_append_time == NOW and found is not None
        assert batch.check(found.read()).log_append_time

    simulate(scenario())


def test_flush_ms_flushes_what_has_waited_long_enough() -> None:
    async def scenario() -> None:
        threads = Threads()
        partition = leading(threads, flush_ms="5000")
        partition.flushing.apply_flush_ms(0.0)
        produce(partition, b"a")
        for second in (1.0, 5.9):
            partition.flushing.apply_flush_ms(second)
            assert not threads.waiting
        partition.flushing.apply_flush_ms(6.0)
        await threads.run()
        assert partition.log.recovery_point == 1

    simulate(scenario())


def test_a_sealed_segment_is_flushed_in_the_background_and_nobody_waits_for_it() -> None:
    # Recovery after a crash then reads only the newest segment again.
    async def scenario() -> None:
        threads = Threads()
        partition = leading(threads)
        partition.log.settings = LogSettings(segment_bytes=200)
        for value in (b"a" * 90, b"b" * 90):
            assert partition.wait_for_acks(produce(partition, value), 1) is None
        assert len(threads.waiting) == 1 and len(partition.log.segments) == 2
        produce(partition, b"c")
        assert len(threads.waiting) == 1
        await threads.run()
        assert partition.log.recovery_point == 2 and not threads.waiting

    simulate(scenario())


def test_elections_are_counted_by_what_the_leader_was_before() -> None:
    # In sync, an eligible leader replica, or a replica that may lack records.
    async def scenario() -> None:
        partition = leading(Threads(), replicas=(ME, FOLLOWER))
        led = PartitionImage((ME, FOLLOWER), (ME,), ME, leader_epoch=5)
        away = replace(led, isr=(FOLLOWER,), leader=FOLLOWER)
        for before, after in (
            (replace(away, isr=(ME, FOLLOWER)), led),
            (replace(away, isr=(), elr=(ME,), leader=-1), led),
            (replace(away, leader=-1), replace(led, recovering=True)),
        ):
            partition.become(replace(before, leader_epoch=partition.leader_epoch + 1))
            partition.become(replace(after, leader_epoch=partition.leader_epoch + 1))
        meter = partition.meter
        assert (meter.elections, meter.eligible_elections, meter.unclean_elections) == (3, 1, 1)

    simulate(scenario())
