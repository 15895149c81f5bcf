"""What an exactly-once sink cannot write is reported in one line, and nothing of the batch is visible.

The tests call the parts of sinks that run in tasks and in the driver as Spark does, without Spark.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from ottla.client.client import Client
from ottla.client.exactly_once.batch_ledger import BatchLedger, LedgerLost
from ottla.client.exactly_once.task_ledger import TransactionsLost
from ottla.spark import sinks
from ottla.testing import LocalBroker
from pyspark_ottla.options import WriteOptions, parse_write_options
from pyspark_ottla.stream_writer import BATCH_ID, QUERY_ID, OttlaStreamWriter
from pyspark_ottla.writing import BatchRefused
from tests.unit.client.reading_back import values

TOPIC = "output"
LARGE = b"x" * 2_000_000

Messages = list[WriterCommitMessage | None]

LIMIT_MS = "5000"
"""How long a sink tries to reach a broker. A broker that has just started must be ready by then."""


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Sets the running task: batch 0 of a query, first attempt."""
    properties = {QUERY_ID: "query", BATCH_ID: "0"}
    context = SimpleNamespace(
        properties=properties, getLocalProperty=properties.get, partitionId=lambda: 0, attemptNumber=lambda: 0
    )
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    return context


def options(broker: LocalBroker, **given: str) -> WriteOptions:
    limits = {"kafka.default.api.timeout.ms": LIMIT_MS, "kafka.delivery.timeout.ms": LIMIT_MS}
    chosen = {"kafka.bootstrap.servers": broker.bootstrap, "topic": TOPIC, "kafka.retry.backoff.ms": "5"}
    return parse_write_options({**chosen, **limits, **given})


def rows(*found: bytes, partition: int = 0) -> Iterator[pa.RecordBatch]:
    partitions = pa.array([partition] * len(found), pa.int32())
    yield pa.record_batch({"value": pa.array(found, pa.binary()), "partition": partitions})


def seen(broker: LocalBroker) -> list[bytes | None]:
    client = Client({"bootstrap.servers": broker.bootstrap})
    found = values(client, TOPIC).get(0, [])
    client.close()
    return found


def write(broker: LocalBroker, *found: bytes, partition: int = 0, **given: str) -> None:
    """Write a batch of one task with the plain sink."""
    writer = OttlaStreamWriter(options(broker, **given))
    writer.commit([writer.write(rows(*found, partition=partition))], 0)


def trouble(broker: LocalBroker, found: Iterator[pa.RecordBatch], **given: str) -> str | None:
    """The error that a task reports to the driver of `write_stream`. The batch is not committed."""
    settings = options(broker, **given)
    client = Client(settings.kafka)
    ledger = BatchLedger(client, "query", TOPIC)
    producer = ledger.begin(0)
    assert producer is not None
    (told,) = sinks._write_with(settings, producer, ledger.claims.open(1))(found)
    ledger.abort()
    client.close()
    text: str | None = told.to_pylist()[0]["trouble"]
    return text


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"found": [b"good", LARGE]}, "row 1 is larger than max.request.size=1048576 bytes"),
        ({"found": [b"good"], "partition": 7}, "row 0 names partition 7, but topic 'output' has 1"),
    ],
)
def test_a_row_that_cannot_be_written_is_named(ottla_broker: LocalBroker, found: dict[str, Any], said: str) -> None:
    ottla_broker.create_topic(TOPIC)
    place = {"partition": found.get("partition", 0)}
    with pytest.raises(BatchRefused, match=f"batch 0 was not written: .*{said}"):
        write(ottla_broker, *found["found"], **place)
    assert said in (trouble(ottla_broker, rows(*found["found"], **place)) or "")
    write(ottla_broker, b"good")
    assert seen(ottla_broker) == [b"good"]


@pytest.mark.parametrize(
    ("api", "error", "said"),
    [
        ("InitProducerId", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "needs WRITE on the transactional id"),
        ("InitProducerId", "INVALID_TRANSACTION_TIMEOUT", "more than the broker's transaction.max.timeout.ms allows"),
        ("TxnOffsetCommit", "GROUP_AUTHORIZATION_FAILED", "the principal needs READ on the group"),
        ("OffsetFetch", "TOPIC_AUTHORIZATION_FAILED", "the principal needs READ on the topic"),
        ("Produce", "TOPIC_AUTHORIZATION_FAILED", "output-0"),
        ("Produce", "INVALID_PRODUCER_EPOCH", "or a second query runs with the same checkpoint"),
        ("EndTxn", "UNKNOWN_SERVER_ERROR", "cannot end transaction 'query-output-0'"),
    ],
)
def test_a_refusal_of_the_broker_is_reported_with_advice(
    ottla_broker: LocalBroker, api: str, error: str, said: str
) -> None:
    """The batch is written when the query is started again."""
    ottla_broker.create_topic(TOPIC)
    ottla_broker.fail(api, error)
    with pytest.raises(BatchRefused) as refused:
        write(ottla_broker, b"row")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    write(ottla_broker, b"row")
    assert seen(ottla_broker) == [b"row"]


def test_a_missing_topic_and_a_stopped_broker_are_reported(ottla_broker: LocalBroker) -> None:
    with pytest.raises(BatchRefused, match="there is no topic 'output'"):
        write(ottla_broker, b"row")
    ottla_broker.create_topic(TOPIC)
    ottla_broker.stop()
    with pytest.raises(BatchRefused, match=r"batch 0 was not written: .*connection refused"):
        write(ottla_broker, b"row")
    ottla_broker.restart()
    write(ottla_broker, b"row")
    assert seen(ottla_broker) == [b"row"]


def test_a_transaction_that_timed_out_is_reported(ottla_broker: LocalBroker) -> None:
    """The transaction times out before the end of the batch. Nothing of the batch is visible, and the line names the
    setting."""
    ottla_broker.create_topic(TOPIC)
    writer = OttlaStreamWriter(options(ottla_broker, **{"kafka.transaction.timeout.ms": "60000"}))
    messages: Messages = [writer.write(rows(b"row"))]
    ottla_broker.advance(minutes=3)
    with pytest.raises(TransactionsLost, match=r"transactions of tasks 0 .* transaction.timeout.ms \(60000\)"):
        writer.commit(messages, 0)
    writer.abort(messages, 0)
    assert seen(ottla_broker) == []
    write(ottla_broker, b"row")
    assert seen(ottla_broker) == [b"row"]


def test_a_second_copy_of_the_query_fences_the_first(ottla_broker: LocalBroker) -> None:
    """The copy has the same checkpoint, so the same id. The later one wins, the earlier one gets an error, and the
    batch is there."""
    ottla_broker.create_topic(TOPIC)
    writer = OttlaStreamWriter(options(ottla_broker))
    messages: Messages = [writer.write(rows(b"row"))]
    others: Messages = [writer.write(rows(b"row"))]
    with pytest.raises(TransactionsLost, match="a second query runs with the same checkpoint"):
        writer.commit(messages, 0)
    writer.commit(others, 0)
    assert seen(ottla_broker) == [b"row"]


def test_a_missing_ledger_is_reported(ottla_broker: LocalBroker, task: SimpleNamespace) -> None:
    ottla_broker.create_topic(TOPIC)
    task.properties[BATCH_ID] = "5"
    writer = OttlaStreamWriter(options(ottla_broker))
    with pytest.raises(LedgerLost, match=r"'query-output' is gone.*Batch 5 may have been written before"):
        writer.write(rows(b"row"))
    told = OttlaStreamWriter(options(ottla_broker, withoutLedger="true"))
    told.commit([told.write(rows(b"row"))], 5)
    assert seen(ottla_broker) == [b"row"]


def test_a_later_attempt_writes_nothing(ottla_broker: LocalBroker, task: SimpleNamespace) -> None:
    """A later attempt follows a task that failed, or runs beside the first in a new attempt at its stage. The error of
    the first attempt is shown again if the rows caused it."""
    ottla_broker.create_topic(TOPIC)
    settings = options(ottla_broker)
    client = Client(settings.kafka)
    ledger = BatchLedger(client, "query", TOPIC)
    producer = ledger.begin(0)
    assert producer is not None
    attempt = sinks._write_with(settings, producer, ledger.claims.open(1))
    (told,) = attempt(rows(b"row"))
    assert told.to_pylist() == [{"task": 0, "rows": 1, "trouble": None}]
    with pytest.raises(RuntimeError, match=sinks.REPEATED):
        [*attempt(rows(b"row"))]
    task.attemptNumber = lambda: 1
    with pytest.raises(RuntimeError, match=sinks.REPEATED):
        [*attempt(rows(b"row"))]

    def broken() -> Iterator[pa.RecordBatch]:
        yield from rows(b"row")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        [*attempt(broken())]
    ledger.commit(0)
    assert seen(ottla_broker) == [b"row"]
    client.close()


def test_transactions_of_crashed_tasks_end_with_the_first_batch_of_a_new_run(
    ottla_broker: LocalBroker, task: SimpleNamespace
) -> None:
    """The batch has fewer tasks than before, and its readers need not wait."""
    ottla_broker.create_topic(TOPIC)
    writer = OttlaStreamWriter(options(ottla_broker))
    task.partitionId = lambda: 1
    writer.write(rows(b"lost"))
    task.partitionId = lambda: 0
    task.properties["spark.jobGroup.id"] = "a new run"
    writer.commit([writer.write(rows(b"row"))], 0)
    assert seen(ottla_broker) == [b"row"]
