"""One transaction for each batch, with a driver that dies at every request in turn: readers see what the model says."""

from functools import partial
from random import Random

import pyarrow as pa
import pytest

from ottla.client import transactions
from ottla.client.client import Client
from ottla.client.exactly_once.batch_ledger import BatchLedger, LedgerLost
from ottla.client.groups import CommittedOffset, commit_offsets, fetch_offsets
from ottla.client.sending import Sender
from ottla.client.transactions import ANNOUNCED, IMPLICIT, ProducerIdentity, find_transaction_protocol
from ottla.errors import ErrorCode, KafkaError
from ottla.pipeline.encoding import Encoder
from ottla.testing import LocalBroker
from ottla.topic_partition import TopicPartition
from tests.unit.client.crashes import MortalClient, dies
from tests.unit.client.reading_back import values

PARTITIONS = 2
SOURCE = TopicPartition("source", 0)
BATCH_ROWS = 4

Settings = dict[str, str]


@pytest.fixture
def settings(ottla_broker: LocalBroker) -> Settings:
    ottla_broker.create_topic(SOURCE.topic)
    return {"bootstrap.servers": ottla_broker.bootstrap}


@pytest.fixture(params=[ANNOUNCED, IMPLICIT], ids=["v1", "v2"])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    if request.param == ANNOUNCED:
        monkeypatch.setattr(transactions, "find_transaction_protocol", lambda client: ANNOUNCED)
    return int(request.param)


def write(client: Client, topic: str, batch_id: int, producer: ProducerIdentity) -> None:
    """Write a batch as tasks do: one task for each partition."""
    for partition in range(PARTITIONS):
        rows = pa.record_batch(
            {
                "value": pa.array([b"%d-%d" % (batch_id, n) for n in range(BATCH_ROWS)]),
                "partition": pa.array([partition] * BATCH_ROWS, pa.int32()),
            }
        )
        encoder = Encoder(lambda _: PARTITIONS, Random(1), topic=topic)
        sender = Sender(client, producer)
        sender.send_all(encoder.add(rows))
        sender.send_all(encoder.flush())
        sender.flush()


def run(client: Client, topic: str, batch_id: int) -> None:
    """Write a batch from beginning to end, as a new driver does."""
    ledger = BatchLedger(client, "query", topic)
    producer = ledger.begin(batch_id)
    if producer is not None:
        write(client, topic, batch_id, producer)
        ledger.commit(batch_id, {"readers": {SOURCE: (batch_id + 1) * 10}})


def model(batches: int) -> dict[int, list[bytes]]:
    rows = [b"%d-%d" % (batch, n) for batch in range(batches) for n in range(BATCH_ROWS)]
    return dict.fromkeys(range(PARTITIONS), rows)


@pytest.mark.parametrize("sends_before", [False, True], ids=["before", "after"])
def test_a_driver_that_dies_at_any_request_leaves_every_batch_exactly_once(
    ottla_broker: LocalBroker, settings: Settings, protocol: int, sends_before: bool
) -> None:
    dies_at = 0
    died = True
    while died:
        topic = f"output-{dies_at}"
        ottla_broker.create_topic(topic, PARTITIONS)
        client = MortalClient(settings)
        run(client, topic, 0)
        died = dies(partial(run, topic=topic, batch_id=1), MortalClient(settings, dies_at, sends_before=sends_before))
        run(client, topic, 1)
        run(client, topic, 1)
        run(client, topic, 2)
        assert BatchLedger(client, "query", topic).last_batch() == 2
        assert values(client, topic) == model(3), dies_at
        assert fetch_offsets(client, "readers", [SOURCE], require_stable=True)[SOURCE].offset == 30
        client.close()
        dies_at += 1
    assert dies_at > 8


def test_the_transaction_protocol_is_that_of_the_cluster(settings: Settings) -> None:
    client = Client(settings)
    assert find_transaction_protocol(client) == IMPLICIT
    client.close()


def test_a_batch_that_is_aborted_or_never_ended_is_not_seen(
    ottla_broker: LocalBroker, settings: Settings, protocol: int
) -> None:
    """Neither its rows nor the source's offsets are visible. The next driver writes the batch."""
    ottla_broker.create_topic("output", PARTITIONS)
    client = MortalClient(settings)
    ledger = BatchLedger(client, "query", "output")
    for ends in (True, False):
        producer = ledger.begin(0)
        assert producer is not None
        write(client, "output", 0, producer)
        if ends:
            ledger.abort()
            ledger.abort()
    zombie = producer
    assert zombie is not None
    run(client, "output", 0)
    assert values(client, "output") == model(1)
    with pytest.raises(KafkaError) as refused:
        write(client, "output", 0, zombie)
    assert refused.value.code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
    assert values(client, "output") == model(1)
    client.close()


def test_one_driver_writes_several_batches(ottla_broker: LocalBroker, settings: Settings, protocol: int) -> None:
    """With transactions v2 the driver needs no new epoch from the coordinator, and need not read its own ledger."""
    ottla_broker.create_topic("output", PARTITIONS)
    client = MortalClient(settings)
    ledger = BatchLedger(client, "query", "output")
    asked = []
    for batch_id in range(4):
        before = client.requests
        producer = ledger.begin(batch_id)
        asked.append(client.requests - before)
        assert producer is not None
        write(client, "output", batch_id, producer)
        ledger.commit(batch_id)
    assert values(client, "output") == model(4)
    assert (asked[-1] == 0) == (protocol == IMPLICIT)
    client.close()


def test_the_ledger_decides_after_an_error_at_the_end(
    ottla_broker: LocalBroker, settings: Settings, protocol: int
) -> None:
    ottla_broker.create_topic("output", PARTITIONS)
    client = MortalClient(settings)
    ottla_broker.fail("EndTxn", "UNKNOWN_SERVER_ERROR", answer_only=True)
    run(client, "output", 0)
    ottla_broker.fail("EndTxn", "UNKNOWN_SERVER_ERROR")
    quick = MortalClient({**settings, "default.api.timeout.ms": "200"})
    with pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR"):
        run(quick, "output", 1)
    run(client, "output", 1)
    assert values(client, "output") == model(2)
    quick.close()
    client.close()


def test_a_missing_ledger_stops_the_query_unless_allowed(ottla_broker: LocalBroker, settings: Settings) -> None:
    ottla_broker.create_topic("output", PARTITIONS)
    client = MortalClient(settings)
    with pytest.raises(LedgerLost, match=r"'query-output' is gone.*Batch 7"):
        BatchLedger(client, "query", "output").begin(7)
    assert BatchLedger(client, "query", "output", resume=True).begin(7) is not None
    client.close()


def test_the_offsets_of_a_group_are_stored_with_metadata(ottla_broker: LocalBroker, settings: Settings) -> None:
    ottla_broker.create_topic("other", 3)
    client = MortalClient(settings)
    offsets = {SOURCE: CommittedOffset(5, "word"), TopicPartition("other", 2): CommittedOffset(7)}
    commit_offsets(client, "readers", offsets)
    assert fetch_offsets(client, "readers") == offsets
    assert fetch_offsets(client, "readers", [SOURCE, TopicPartition("other", 0)]) == {
        SOURCE: CommittedOffset(5, "word")
    }
    client.close()
