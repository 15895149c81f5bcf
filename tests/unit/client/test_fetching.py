"""Raw batches from a real broker: ranges, transactions, gaps, network errors, and offsets that are gone."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from ottla.client.client import READ_COMMITTED, Client, find_error_codes
from ottla.client.connection import Awaited, Connection
from ottla.client.fetching import EMPTY_ANSWERS_MAX, DataLoss, fetch
from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import decode, encode, headers
from ottla.testing import LocalBroker
from ottla.wire.fetch import FetchResponse
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.produce import PartitionData, ProduceRequest, TopicData
from tests.patience import PATIENCE_MS

SMALL = 400
"""The size limit of an answer: a few batches, so that there are many answers."""


@pytest.fixture
def client(ottla_broker: LocalBroker) -> Iterator[Client]:
    ottla_broker.create_topic("events")
    settings = {"retry.backoff.ms": "10", "default.api.timeout.ms": "5000"}
    found = Client({"bootstrap.servers": ottla_broker.bootstrap, **settings})
    yield found
    found.close()


def append(client: Client, batch: bytearray, transaction: str | None = None) -> None:
    topics = [TopicData("events", client.find_topic_id("events"), [PartitionData(0, memoryview(batch))])]
    answer = client.ask_leader("events", 0, ProduceRequest(transaction, -1, 5000, topics))
    assert not list(find_error_codes(answer))


def fill(client: Client, count: int) -> None:
    """Batches of five records each."""
    for first in range(0, count, 5):
        append(client, encode([(None, b"%d" % n, (), n) for n in range(first, first + 5)]))


def offsets(batches: Iterator[memoryview]) -> list[int]:
    return [record.offset for view in batches for position, _ in headers(view) for record in decode(view, position)]


def test_a_range_comes_in_whole_batches_and_in_order(client: Client) -> None:
    # Batches at both ends of the range are complete. Many small answers give the same as one.
    fill(client, 100)
    assert offsets(fetch(client, "events", 0, 0, 100)) == list(range(100))
    assert offsets(fetch(client, "events", 0, 12, 34)) == list(range(10, 35))
    assert offsets(fetch(client, "events", 0, 12, 34, max_bytes=SMALL)) == list(range(10, 35))
    assert offsets(fetch(client, "events", 0, 40, 40)) == []


def test_an_abandoned_reader_does_not_disturb_the_next(client: Client) -> None:
    # The answer to a prefetch is dropped. Two readers may share a connection.
    fill(client, 100)
    left = fetch(client, "events", 0, 0, 100, max_bytes=SMALL)
    next(left)
    other = fetch(client, "events", 0, 50, 100, max_bytes=SMALL)
    first = offsets(iter([next(other)]))
    left.close()
    assert first + offsets(other) == list(range(50, 100))


def test_network_errors_are_retried(ottla_broker: LocalBroker, client: Client) -> None:
    fill(client, 60)
    ottla_broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=2)
    assert offsets(fetch(client, "events", 0, 0, 60, max_bytes=SMALL)) == list(range(60))
    ottla_broker.drop("Fetch", times=2)
    assert offsets(fetch(client, "events", 0, 0, 60, max_bytes=SMALL)) == list(range(60))
    batches = fetch(client, "events", 0, 0, 60, max_bytes=SMALL)
    seen = offsets(iter([next(batches)]))
    ottla_broker.kill()
    ottla_broker.restart()
    assert seen + offsets(batches) == list(range(60))


def test_read_committed_returns_only_committed_records(client: Client) -> None:
    # One producer has three transactions, of which the second is aborted. Markers are never returned.
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
    producer = client.ask_coordinator("transaction", "t", request)
    node = client.find_coordinator("transaction", "t")
    for number, committed in enumerate((True, False, True)):
        partition = AddPartitionsToTxnTopic(name="events", partitions=[0])
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[partition],
        )
        client.retry(partial(add_partitions, client, node, add))
        batch = encode(
            [(None, b"%d" % number, (), 1)] * 2,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=2 * number,
            transactional=True,
        )
        append(client, batch, "t")
        end = EndTxnRequest(
            transactional_id="t",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=committed,
        )
        assert not client.connect(node).ask(end, version_max=3).error_code
    append(client, encode([(None, b"plain", (), 1)]))
    assert offsets(fetch(client, "events", 0, 0, 10)) == [0, 1, 3, 4, 6, 7, 9]
    committed_only = fetch(client, "events", 0, 0, 10, isolation=READ_COMMITTED)
    assert offsets(committed_only) == [0, 1, 6, 7, 9]
    one_by_one = fetch(client, "events", 0, 0, 10, isolation=READ_COMMITTED, max_bytes=1)
    assert offsets(one_by_one) == [0, 1, 6, 7, 9]


def add_partitions(client: Client, node: int, request: AddPartitionsToTxnRequest) -> None:
    """Add partitions, and retry CONCURRENT_TRANSACTIONS while the last markers are written."""
    for code in find_error_codes(client.connect(node).ask(request, version_max=3)):
        raise KafkaError(code)


def test_missing_offsets_are_reported_with_numbers(client: Client) -> None:
    fill(client, 50)
    partition = DeleteRecordsPartition(partition_index=0, offset=30)
    topics = [DeleteRecordsTopic(name="events", partitions=[partition])]
    client.ask_leader("events", 0, DeleteRecordsRequest(topics=topics, timeout_ms=PATIENCE_MS))
    with pytest.raises(DataLoss, match=r"events-0: offset 10 does not exist; the log has 30 to 50") as raised:
        offsets(fetch(client, "events", 0, 10, 50))
    assert (raised.value.wanted, raised.value.first, raised.value.end) == (10, 30, 50)
    with pytest.raises(DataLoss, match="the log has 30 to 50"):
        offsets(fetch(client, "events", 0, 60, 70))


def change_answers(monkeypatch: pytest.MonkeyPatch, change: Callable[[FetchResponse], None]) -> None:
    """Change the answers to Fetch, for cases that the test broker does not produce."""
    sound = Connection.receive

    def changed(self: Connection, awaited: Awaited) -> Any:
        answer = sound(self, awaited)
        if isinstance(answer, FetchResponse):
            change(answer)
        return answer

    monkeypatch.setattr(Connection, "receive", changed)


def test_a_broker_that_throttles_is_asked_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    # Over quota, Kafka's answer has a throttle time and no partitions.
    fill(client, 20)
    seen = []

    def throttle(answer: FetchResponse) -> None:
        seen.append(answer)
        if len(seen) == 1:
            answer.topics, answer.throttle_time_ms = [], 20

    change_answers(monkeypatch, throttle)
    assert offsets(fetch(client, "events", 0, 0, 20)) == list(range(20))
    assert len(seen) == 2


def test_a_range_that_compaction_has_emptied_ends(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    # The broker answers so several times, because one answer without records is no proof.
    fill(client, 20)
    seen = []

    def empty(answer: FetchResponse) -> None:
        seen.append(answer)
        if answer.topics[0].partitions[0].records and len(seen) > 1:
            answer.topics[0].partitions[0].records = memoryview(b"")

    change_answers(monkeypatch, empty)
    assert offsets(fetch(client, "events", 0, 0, 20, max_bytes=1)) == [0, 1, 2, 3, 4]
    assert len(seen) == 1 + EMPTY_ANSWERS_MAX


def test_a_batch_damaged_in_transit_is_not_returned(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    # Unless the user has switched off the check, as Kafka's consumers can.
    fill(client, 20)

    def damage(answer: FetchResponse) -> None:
        records = answer.topics[0].partitions[0].records
        assert isinstance(records, memoryview)
        records[-1] ^= 1

    change_answers(monkeypatch, damage)
    with pytest.raises(KafkaError, match="events-0: the batch with base offset 15 fails its checksum") as raised:
        offsets(fetch(client, "events", 0, 0, 20))
    assert raised.value.code == ErrorCode.CORRUPT_MESSAGE
    careless = Client({**client.raw_settings, "check.crcs": "false"})
    assert sum(map(len, fetch(careless, "events", 0, 0, 20))) > 0
    careless.close()


def test_a_range_beyond_the_log_ends_with_an_error(ottla_broker: LocalBroker, client: Client) -> None:
    fill(client, 10)
    hurried = Client({**client.raw_settings, "default.api.timeout.ms": "50"})
    with pytest.raises(KafkaError, match="the log ends at 10, before the requested end 20"):
        offsets(fetch(hurried, "events", 0, 0, 20))
    hurried.close()


def test_other_errors_are_reported_with_their_partition(ottla_broker: LocalBroker, client: Client) -> None:
    fill(client, 10)
    ottla_broker.fail("Fetch", "TOPIC_AUTHORIZATION_FAILED", times=None)
    with pytest.raises(KafkaError) as raised:
        offsets(fetch(client, "events", 0, 0, 10))
    assert raised.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
