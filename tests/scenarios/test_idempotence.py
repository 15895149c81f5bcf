"""Idempotent producers: duplicates, gaps, the wrap of sequences and new epochs, through every kind of restart."""

from collections.abc import Iterator

import pytest

from ottla.errors import ErrorCode
from ottla.system.clock import WallClock
from ottla.testing import LocalBroker
from ottla.testing import broker as local_broker
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.produce import PartitionResult
from tests.raw_client import RawClient
from tests.scenarios.client_calls import append, connect, make_batch, produce_batch, read_all_values

SEQUENCES = 2**31
RESTARTS = pytest.mark.parametrize("restart", ("none", "stop", "kill"))


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with local_broker() as running:
        running.create_topic("orders")
        yield running


def new_producer(client: RawClient) -> int:
    answer = client.request(InitProducerIdRequest(transactional_id=None), 5)
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    found: int = answer.producer_id
    return found


def send(client: RawClient, producer: int, sequence: int, count: int = 1, epoch: int = 0) -> PartitionResult:
    """Send `count` records from this sequence on, each with its sequence as value.

    Their timestamp is now: a producer whose last record is days old would be forgotten on a clean restart, as in Kafka.
    """
    values = [b"%d" % ((sequence + number) % SEQUENCES) for number in range(count)]
    fields = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
    return produce_batch(client, "orders", make_batch(*values, timestamp=WallClock().now_ms(), **fields))


def come_back(broker: LocalBroker, how: str) -> RawClient:
    if how == "stop":
        broker.stop()
    elif how == "kill":
        broker.kill()
    if how != "none":
        broker.restart()
    return connect(broker)


@RESTARTS
def test_a_retry_of_any_of_the_last_five_batches_is_answered_with_its_offset(restart: str, broker: LocalBroker) -> None:
    # A retry after a lost answer, also of the oldest of five in flight. The sixth is too old to be recognised.
    with connect(broker) as client:
        producer = new_producer(client)
        first = [send(client, producer, number * 2, 2).base_offset for number in range(7)]
        assert first == [0, 2, 4, 6, 8, 10, 12]
    with come_back(broker, restart) as client:
        for number in (6, 2, 4, 3, 5):
            result = send(client, producer, number * 2, 2)
            assert (result.error_code, result.base_offset) == (0, number * 2)
        assert send(client, producer, 2, 2).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(client, producer, 14).base_offset == 14
        assert read_all_values(client, "orders") == [b"%d" % number for number in range(15)]


@RESTARTS
def test_sequences_with_a_gap_an_overlap_or_a_step_back_are_refused(restart: str, broker: LocalBroker) -> None:
    # The correct next batch is accepted afterwards.
    with connect(broker) as client:
        producer = new_producer(client)
        send(client, producer, 0, 3)
    with come_back(broker, restart) as client:
        for sequence, count in ((4, 1), (100, 1), (2, 2), (0, 2), (1, 2)):
            result = send(client, producer, sequence, count)
            assert (result.error_code, result.base_offset) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert send(client, producer, 3).base_offset == 3


@RESTARTS
def test_sequences_wrap_within_a_batch_and_between_batches(restart: str, broker: LocalBroker) -> None:
    # From 2^31 - 1 to 0; a retry of the batch that wraps is recognised.
    with connect(broker) as client:
        producer = new_producer(client)
        assert send(client, producer, SEQUENCES - 3, 2).base_offset == 0
        assert send(client, producer, SEQUENCES - 1, 3).base_offset == 2
    with come_back(broker, restart) as client:
        assert send(client, producer, SEQUENCES - 1, 3).base_offset == 2
        assert send(client, producer, 3).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(client, producer, 2).base_offset == 5


@RESTARTS
def test_a_new_epoch_begins_at_sequence_zero_and_fences_the_old_one(restart: str, broker: LocalBroker) -> None:
    with connect(broker) as client:
        producer = new_producer(client)
        send(client, producer, 0, 5)
        assert send(client, producer, 5, epoch=1).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(client, producer, 0, epoch=1).base_offset == 5
    with come_back(broker, restart) as client:
        assert send(client, producer, 5, epoch=0).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert send(client, producer, 0, epoch=1).base_offset == 5
        assert send(client, producer, 1, epoch=1).base_offset == 6


@RESTARTS
def test_no_producer_id_is_given_twice(restart: str, broker: LocalBroker) -> None:
    # Stops and kills of the broker in between make no difference.
    with connect(broker) as client:
        before = [new_producer(client) for _ in range(5)]
    with come_back(broker, restart) as client:
        after = [new_producer(client) for _ in range(5)]
    assert len(set(before + after)) == 10


def test_a_producer_snapshot_that_is_older_than_the_log_is_brought_up_to_date(broker: LocalBroker) -> None:
    # A clean stop leaves a snapshot; more batches follow, then a kill. A duplicate of them is recognised, the next
    # batch is accepted.
    with connect(broker) as client:
        producer = new_producer(client)
        send(client, producer, 0, 3)
    broker.restart()
    with connect(broker) as client:
        send(client, producer, 3, 3)
        send(client, producer, 6, 3)
    with come_back(broker, "kill") as client:
        assert send(client, producer, 3, 3).base_offset == 3
        assert send(client, producer, 6, 3).base_offset == 6
        assert send(client, producer, 9, 1).base_offset == 9
        assert read_all_values(client, "orders") == [b"%d" % number for number in range(10)]


def test_an_expired_producer_may_go_on_with_any_sequence(broker: LocalBroker) -> None:
    # Its state has expired, so its next batch is accepted; what it sent before is still there.
    with connect(broker) as client:
        producer = new_producer(client)
        assert send(client, producer, 0).base_offset == 0
        assert send(client, producer, 7).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        broker.advance(days=2)
        assert send(client, producer, 7).error_code == 0
        assert read_all_values(client, "orders") == [b"0", b"7"]


def test_sequences_are_counted_per_producer_and_partition(broker: LocalBroker) -> None:
    # The same sequence numbers of two producers, and in two partitions, are all accepted.
    broker.create_topic("two", 2)
    with connect(broker) as client:
        first, second = new_producer(client), new_producer(client)
        for producer in (first, second):
            for partition in (0, 1):
                append(
                    client, "two", b"x", partition=partition, producer_id=producer, producer_epoch=0, base_sequence=0
                )
        assert len(read_all_values(client, "two", 0)) == len(read_all_values(client, "two", 1)) == 2


def test_five_requests_in_flight_on_one_connection_stay_in_order(broker: LocalBroker) -> None:
    # All are sent before the first answer. The answers come in order, with consecutive offsets.
    with connect(broker) as client, connect(broker) as reader:
        producer = new_producer(client)
        for sequence in range(50):
            batch = make_batch(b"%d" % sequence, producer_id=producer, producer_epoch=0, base_sequence=sequence)
            client.produce("orders", 0, batch, acks=0)
        assert send(client, producer, 50).base_offset == 50
        assert read_all_values(reader, "orders") == [b"%d" % number for number in range(51)]
