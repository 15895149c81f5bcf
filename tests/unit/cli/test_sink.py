"""`ottla sink`: shows the ledgers of queries that write exactly once, and ends transactions that they left open."""

import json

import pyarrow as pa
import pytest

from ottla.cli import main
from ottla.client.client import Client
from ottla.client.exactly_once.batch_ledger import BatchLedger
from ottla.client.exactly_once.task_ledger import TaskLedger
from ottla.client.sending import Sender
from ottla.client.transactions import ProducerIdentity
from ottla.pipeline.encoding import Encoder
from ottla.testing import LocalBroker
from tests.unit.client.reading_back import values

FIRST = "00000000-1111-2222-3333-444444444444"
SECOND = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"


def write(client: Client, topic: str, producer: ProducerIdentity | None) -> None:
    assert producer is not None
    sender = Sender(client, producer)
    encoder = Encoder(lambda _: 1, client.random, topic=topic)
    sender.send_all(encoder.add(pa.record_batch({"value": pa.array([b"row"])})))
    sender.send_all(encoder.flush())
    sender.flush()


@pytest.fixture
def client(ottla_broker: LocalBroker) -> Client:
    """Two queries: one has committed a batch and left the next open, the other has two tasks, one of which died."""
    client = Client({"bootstrap.servers": ottla_broker.bootstrap})
    for topic in ("totals", "copies", "copies-1"):
        ottla_broker.create_topic(topic)
    batches = BatchLedger(client, FIRST, "totals")
    for batch in (0, 1):
        write(client, "totals", batches.begin(batch))
        batches.claims.open(2)
        if batch == 0:
            batches.commit(batch)
    tasks = TaskLedger(client, SECOND, "copies")
    opened = []
    for task in (0, 1):
        producer = tasks.begin(0, task)
        write(client, "copies", producer)
        assert producer is not None
        opened.append(tasks.seal(0, task, producer))
    tasks.commit(0, opened)
    write(client, "copies", tasks.begin(1, 1))
    return client


def run_sink(capsys: pytest.CaptureFixture[str], broker: LocalBroker, *arguments: str) -> str:
    assert main(["sink", *arguments, "-b", broker.bootstrap]) == 0
    return capsys.readouterr().out


def test_ledgers_batches_and_open_transactions_are_shown(
    ottla_broker: LocalBroker, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    """A task of one topic is not shown under another topic whose name begins alike. Claims are not shown."""
    assert [line.split() for line in run_sink(capsys, ottla_broker, "list").splitlines()] == [
        ["QUERY", "TOPIC", "TRANSACTIONS", "LAST_BATCH", "OPEN"],
        [FIRST, "totals", "per", "batch", "0", "1"],
        [SECOND, "copies", "per", "task", "0", "1"],
    ]
    head, _, *rows = run_sink(capsys, ottla_broker, "describe", "aaaa").splitlines()
    assert head == f"{SECOND}: topic 'copies', one transaction per task, last batch 0, 1 open transaction"
    assert [row.split()[:3] for row in rows] == [
        [f"{SECOND}-copies-0", "0", "complete-commit"],
        [f"{SECOND}-copies-1", "0", "ongoing"],
    ]
    (found,) = json.loads(run_sink(capsys, ottla_broker, "describe", f"{FIRST}-totals", "--format", "json"))
    assert (found["ledger"], found["last_batch"], found["open"]) == (f"{FIRST}-totals", 0, 1)
    (transaction,) = found["transactions"]
    assert (transaction["state"], transaction["timeout_s"], transaction["partitions"]) == ("ongoing", 300, ["totals-0"])
    client.close()


def test_open_transactions_can_be_ended(
    ottla_broker: LocalBroker, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    """Readers do not wait any more, and the query continues when it comes back."""
    assert run_sink(capsys, ottla_broker, "abort", FIRST) == f"{FIRST}: topic 'totals', 1 transaction aborted\n"
    assert run_sink(capsys, ottla_broker, "abort", SECOND) == f"{SECOND}: topic 'copies', 1 transaction aborted\n"
    assert json.loads(run_sink(capsys, ottla_broker, "list", "--format", "json"))[1]["open"] == 0
    ledger = BatchLedger(client, FIRST, "totals")
    write(client, "totals", ledger.begin(1))
    ledger.commit(1)
    assert values(client, "totals") == {0: [b"row", b"row"]}
    client.close()


def test_an_unknown_query_is_reported(ottla_broker: LocalBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sink", "describe", "beef", "-b", ottla_broker.bootstrap]) == 1
    assert capsys.readouterr().err == "ottla: no query whose id begins with 'beef' writes a topic exactly once\n"
