"""Fetch as consumers rely on it: whole batches, limits, long polls, errors per partition."""

from random import Random
from time import monotonic

import pytest

from ottla.errors import ErrorCode
from ottla.records.batch import HEADER_SIZE
from ottla.testing import LocalBroker
from ottla.testing import broker as local_broker
from ottla.wire.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionResult
from tests.patience import PATIENCE_MS
from tests.raw_client import RawClient
from tests.samples import sample_size
from tests.scenarios.client_calls import append, connect, decode_records, decode_values, delete_topic, find_topic_id

LONG_MS = 2 * PATIENCE_MS
"""A maximum wait that never ends within a test: the client would give up before."""
WAITING = 18
"""The version of the parked fetch."""


def count_bytes(records: object) -> int:
    return len(records) if isinstance(records, memoryview | bytes | bytearray) else 0


def park(client: RawClient, other: RawClient, found_id: bytes, min_bytes: int = 1) -> None:
    """Send a fetch that finds nothing. It waits when this returns: the broker has answered a later request."""
    wanted = FetchTopic("", found_id, [FetchPartition(0, max_bytes=2**20)])
    client.send_fetch(FetchRequest(max_wait_ms=LONG_MS, min_bytes=min_bytes, topics=[wanted]), WAITING)
    for _ in range(3):
        other.fetch("nobody", 0, 0)


def read_woken(client: RawClient) -> PartitionResult:
    """Read the answer to the parked fetch, which comes before its maximum wait is over."""
    return client.read_fetch(WAITING).topics[0].partitions[0]


@pytest.mark.parametrize("codec", range(5))
def test_a_fetch_from_the_middle_of_a_batch_returns_the_whole_batch(codec: int, client: RawClient, topic: str) -> None:
    # The client skips the records that it did not ask for. Earlier batches are not returned.
    append(client, topic, b"0")
    append(client, topic, b"1", b"2", b"3", codec=codec)
    append(client, topic, b"4")
    for offset in (1, 2, 3):
        assert [record.offset for record in decode_records(client.fetch(topic, 0, offset))] == [1, 2, 3, 4]
    assert decode_values(client.fetch(topic, 0, 4)) == [b"4"]
    assert decode_values(client.fetch(topic, 0, 5)) == []


def test_the_first_batch_comes_whole_whatever_the_limits_are(client: RawClient, topic: str) -> None:
    # Otherwise a consumer with small limits would never get past a large batch.
    append(client, topic, bytes(100_000))
    append(client, topic, b"small")
    for limit in (0, 1, HEADER_SIZE, 50_000):
        fetched = client.fetch(topic, 0, 0, max_bytes=limit)
        assert [len(value or b"") for value in decode_values(fetched)] == [100_000]


def test_only_the_first_partition_of_a_fetch_may_exceed_the_limit(shared_broker: LocalBroker) -> None:
    # The first partition uses up the limit of the whole answer; the others are answered without records, not left out.
    shared_broker.create_topic("five", 5)
    with connect(shared_broker) as client:
        for index in range(5):
            append(client, "five", bytes(10_000), partition=index)
        wanted = [FetchPartition(index, max_bytes=100_000) for index in (3, 1, 0, 2, 4)]
        request = FetchRequest(max_bytes=5_000, min_bytes=1, topics=[FetchTopic("five", partitions=wanted)])
        answer = client.fetch_whole(request, 12)
        sizes = {each.index: count_bytes(each.records) for each in answer.topics[0].partitions}
        assert list(sizes) == [3, 1, 0, 2, 4]
        assert sizes[3] > 10_000
        assert [sizes[index] for index in (1, 0, 2, 4)] == [0, 0, 0, 0]


PARTITIONS = sample_size(400, 1000)


def test_hundreds_of_partitions_in_one_fetch(seed: int) -> None:
    # Every partition is answered, and the answer exceeds its limit by one batch at most. Repeated from the offsets that
    # were reached, the fetch returns all records. (The test has a broker of its own, because its files stay open.)
    random = Random(seed)
    sent = {index: random.randbytes(1000) for index in range(PARTITIONS)}
    with local_broker() as broker, connect(broker) as client:
        broker.create_topic("many", PARTITIONS)
        for index, value in sent.items():
            append(client, "many", value, partition=index)
        found: dict[int, bytes | None] = {}
        rounds = 0
        while len(found) < PARTITIONS:
            left = [FetchPartition(index, max_bytes=2**20) for index in sent if index not in found]
            request = FetchRequest(max_bytes=200_000, min_bytes=1, topics=[FetchTopic("many", partitions=left)])
            (answered,) = client.fetch_whole(request, 12).topics
            assert [each.index for each in answered.partitions] == [each.index for each in left]
            assert sum(count_bytes(each.records) for each in answered.partitions) <= 200_000
            for each in answered.partitions:
                if values := decode_values(each):
                    (found[each.index],) = values
            rounds += 1
        assert found == sent
        assert rounds < 10


def test_a_long_poll_ends_with_the_next_record(client: RawClient, other: RawClient, topic: str) -> None:
    park(client, other, find_topic_id(other, topic))
    append(other, topic, b"news")
    assert decode_values(read_woken(client)) == [b"news"]


def test_a_long_poll_waits_for_min_bytes(client: RawClient, other: RawClient, topic: str) -> None:
    # The first record is not enough, the second one is, and the answer has both.
    park(client, other, find_topic_id(other, topic), min_bytes=1000)
    append(other, topic, bytes(500))
    append(other, topic, bytes(600))
    assert len(decode_values(read_woken(client))) == 2


def test_a_client_that_leaves_in_the_middle_of_a_wait_is_forgotten(shared_broker: LocalBroker, topic: str) -> None:
    # The record that would have ended its wait is appended, and the broker serves other clients.
    with connect(shared_broker) as other:
        with connect(shared_broker) as client:
            park(client, other, find_topic_id(other, topic))
        append(other, topic, b"news")
        assert decode_values(other.fetch(topic, 0, 0)) == [b"news"]


def test_a_long_poll_ends_when_its_time_is_over(client: RawClient, topic: str) -> None:
    # The answer has the records that are there, which may be none.
    append(client, topic, b"little")
    began = monotonic()
    assert decode_values(client.fetch(topic, 0, 0, max_wait_ms=150, min_bytes=10_000)) == [b"little"]
    assert decode_values(client.fetch(topic, 0, 1, max_wait_ms=150)) == []
    assert monotonic() - began >= 0.3


def test_a_long_poll_ends_when_its_topic_is_deleted(client: RawClient, other: RawClient, topic: str) -> None:
    # The error makes the client ask for new metadata.
    park(client, other, find_topic_id(other, topic))
    assert delete_topic(other, topic) == 0
    assert read_woken(client).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_partition_that_is_not_there_does_not_end_the_wait_for_the_others(client: RawClient, topic: str) -> None:
    # As in Kafka: otherwise a client that keeps asking for the missing partition would do so without a pause. A fetch
    # of the missing partition alone is answered at once.
    began = monotonic()
    assert fetch_both(client, topic, 0, 7, max_wait_ms=150) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert monotonic() - began >= 0.15
    assert fetch_both(client, topic, 7, 8, max_wait_ms=LONG_MS) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


def fetch_both(client: RawClient, topic: str, *partitions: int, max_wait_ms: int) -> list[int]:
    wanted = [FetchPartition(partition, max_bytes=1000) for partition in partitions]
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchTopic(topic, partitions=wanted)])
    (answered,) = client.fetch_whole(request, 12).topics
    return [each.error_code for each in answered.partitions]


def test_offsets_outside_of_the_log_are_refused(client: RawClient, topic: str) -> None:
    # A fetch at the end of the log waits, and is no error.
    append(client, topic, b"0", b"1")
    assert client.fetch(topic, 0, 2).error_code == 0
    for offset in (3, 2**63 - 1, -1, -2):
        assert client.fetch(topic, 0, offset).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("target", "code"),
    [("no-such-topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (b"0123456789abcdef", ErrorCode.UNKNOWN_TOPIC_ID)],
)
def test_unknown_topics(target: str | bytes, code: ErrorCode, client: RawClient) -> None:
    assert client.fetch(target, 0, 0).error_code == code


def test_a_consumer_with_an_old_or_a_future_leader_epoch_is_told_so() -> None:
    # Each start of the broker is a new epoch. Older: FENCED_LEADER_EPOCH, newer: UNKNOWN_LEADER_EPOCH (KIP-320).
    with local_broker() as broker:
        broker.create_topic("fenced")
        broker.restart()
        with connect(broker) as client:
            append(client, "fenced", b"one")
            data = client.fetch("fenced", 0, 0).records
            assert isinstance(data, memoryview | bytes | bytearray)
            epoch = int.from_bytes(data[12:16])
            assert epoch > 0
            for given, code in (
                (epoch, 0),
                (-1, 0),
                (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
                (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
            ):
                wanted = [FetchPartition(0, given, max_bytes=1000)]
                request = FetchRequest(topics=[FetchTopic("fenced", partitions=wanted)])
                assert client.fetch_whole(request, 12).topics[0].partitions[0].error_code == code


def test_read_committed_without_transactions_reads_everything(client: RawClient, topic: str) -> None:
    # The list of aborted transactions is empty, not null.
    append(client, topic, b"one")
    fetched = client.fetch(topic, 0, 0, isolation_level=1)
    assert decode_values(fetched) == [b"one"]
    assert fetched.aborted_transactions == []
    assert client.fetch(topic, 0, 0, isolation_level=0).aborted_transactions is None
