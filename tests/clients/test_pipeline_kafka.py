"""Writing by the pipeline to Apache Kafka: the guarantees are those that hold with our own broker."""

import os
from functools import partial

import pytest

from benchmarks.peers.apache_kafka import ApacheKafka
from ottla.client import transactions
from ottla.client.client import LATEST, READ_COMMITTED, READ_UNCOMMITTED, find_error_codes
from ottla.client.exactly_once.batch_ledger import BatchLedger
from ottla.client.exactly_once.claims import ClaimBook, take_claim
from ottla.client.exactly_once.sinks import find_sinks
from ottla.client.exactly_once.task_ledger import TaskLedger
from ottla.client.groups import fetch_offsets
from ottla.client.sending import Sender
from ottla.client.transactions import ANNOUNCED, IMPLICIT, find_transaction_protocol
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.patience import PATIENCE_MS
from tests.unit.client.crashes import MortalClient, dies
from tests.unit.client.exactly_once import test_batch_ledger, test_task_ledger
from tests.unit.client.reading_back import values
from tests.unit.client.test_sending import TOPIC, encode, numbers

SOURCE = test_batch_ledger.SOURCE
MARKERS_S = 20.0
CODECS = 5
"""None, gzip, snappy, lz4 and zstd. The topic has a partition for each."""

STRIDE = int(os.environ.get("OTTLA_CRASH_STRIDE", "4"))
"""Clients die at every fourth request. With 1 they die at every request, as in the unit tests with our own broker."""


@pytest.fixture(scope="module")
def settings(apache_kafka: ApacheKafka) -> dict[str, str]:
    found = {"bootstrap.servers": apache_kafka.bootstrap}
    create(found, SOURCE.topic, 1)
    create(found, TOPIC, CODECS)
    return found


def create(settings: dict[str, str], topic: str, partitions: int) -> None:
    client = MortalClient(settings)
    wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)
    answer = client.ask_any(CreateTopicsRequest(topics=[wanted], timeout_ms=PATIENCE_MS))
    assert not list(find_error_codes(answer))
    client.close()


@pytest.mark.parametrize("codec", range(CODECS))
def test_batches_in_every_codec_arrive_once_and_in_order(settings: dict[str, str], codec: int) -> None:
    client = MortalClient(settings)
    sender = Sender(client, request_bytes_max=400)
    for batch in encode(300, codec=codec):
        batch.partition = codec
        sender.send(batch)
    sender.flush()
    assert values(client, TOPIC)[codec] == numbers(300)[0]
    assert sender.next_offsets == {TopicPartition(TOPIC, codec): 300}
    client.close()


@pytest.fixture(params=[ANNOUNCED, IMPLICIT], ids=["v1", "v2"])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    if request.param == ANNOUNCED:
        monkeypatch.setattr(transactions, "find_transaction_protocol", lambda client: ANNOUNCED)
    return int(request.param)


def test_the_transaction_protocol_is_that_of_the_cluster(settings: dict[str, str]) -> None:
    client = MortalClient(settings)
    assert find_transaction_protocol(client) == IMPLICIT
    client.close()


@pytest.mark.parametrize("sends_before", [False, True], ids=["before", "after"])
def test_a_driver_that_dies_at_any_request_leaves_every_batch_exactly_once(
    settings: dict[str, str], protocol: int, sends_before: bool
) -> None:
    died, dies_at = True, 0
    while died:
        topic = f"batches-{protocol}-{sends_before}-{dies_at}"
        create(settings, topic, test_batch_ledger.PARTITIONS)
        client = MortalClient(settings)
        test_batch_ledger.run(client, topic, 0)
        work = partial(test_batch_ledger.run, topic=topic, batch_id=1)
        died = dies(work, MortalClient(settings, dies_at, sends_before=sends_before))
        for batch_id in (1, 1, 2):
            test_batch_ledger.run(client, topic, batch_id)
        assert BatchLedger(client, "query", topic).last_batch() == 2
        assert fetch_offsets(client, "readers", [SOURCE], require_stable=True)[SOURCE].offset == 30
        wait_for_markers(client, topic)
        assert values(client, topic) == test_batch_ledger.model(3), dies_at
        client.close()
        dies_at += STRIDE


@pytest.mark.parametrize("sends_before", [False, True], ids=["before", "after"])
def test_a_query_of_tasks_that_dies_at_any_request_leaves_every_batch_exactly_once(
    settings: dict[str, str], protocol: int, sends_before: bool
) -> None:
    died, dies_at = True, 0
    while died:
        topic = f"tasks-{protocol}-{sends_before}-{dies_at}"
        create(settings, topic, test_task_ledger.PARTITIONS)
        client = MortalClient(settings)
        test_task_ledger.run(client, topic, 0, 2)
        work = partial(test_task_ledger.run, topic=topic, batch_id=1, count=3)
        died = dies(work, MortalClient(settings, dies_at, sends_before=sends_before))
        for batch_id, count in ((1, 2), (1, 2), (2, 8)):
            test_task_ledger.run(client, topic, batch_id, count)
        wait_for_markers(client, topic)
        assert test_task_ledger.rows_of(client, topic) == test_task_ledger.model(3), dies_at
        client.close()
        dies_at += STRIDE


def wait_for_markers(client: MortalClient, topic: str) -> None:
    """Wait until readers see the end of the last transaction: its markers are written after it was acknowledged."""
    backoff = client.start_backoff(MARKERS_S)
    (count,) = client.count_partitions([topic]).values()
    wanted = {TopicPartition(topic, partition): LATEST for partition in range(count)}
    while client.list_offsets(wanted, READ_COMMITTED) != client.list_offsets(wanted, READ_UNCOMMITTED):
        assert backoff.pause(), "a transaction stays open"


def test_attempts_are_counted_and_leftovers_found(settings: dict[str, str]) -> None:
    """Kafka also raises the epoch by one for each new producer, and lists open transactions."""
    create(settings, "leftovers", test_task_ledger.PARTITIONS)
    client = MortalClient(settings)
    book = ClaimBook(client, "query-leftovers")
    for _ in range(3):
        (claim,) = book.open(1)
        assert [take_claim(client, claim), take_claim(client, claim)] == [True, False]
        book.forget()
    test_task_ledger.collect_reports(client, "leftovers", 0, 3)
    open_tasks = test_task_ledger.collect_reports(client, "leftovers", 0, 1)
    ledger = TaskLedger(client, "query", "leftovers")
    ledger.commit(0, open_tasks)
    assert ledger.end_leftovers() == ["query-leftovers-1", "query-leftovers-2"]
    assert ledger.end_leftovers() == []
    assert test_task_ledger.rows_of(client, "leftovers") == test_task_ledger.model(1)
    assert [sink.topic for sink in find_sinks(client)] == [], "only queries have ids that are UUIDs"
    client.close()
