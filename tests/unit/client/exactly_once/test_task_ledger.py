"""One transaction for each task, with a query that dies at every request in turn: readers see what the model says."""

from functools import partial
from random import Random

import pyarrow as pa
import pytest

from ottla.client import transactions
from ottla.client.client import Client
from ottla.client.exactly_once import task_ledger as tasks_module
from ottla.client.exactly_once.batch_ledger import LedgerLost
from ottla.client.exactly_once.task_ledger import BatchToRepeat, OpenTask, PartlyLanded, TaskLedger, TransactionsLost
from ottla.client.sending import Sender
from ottla.client.transactions import ANNOUNCED, IMPLICIT, end_transaction
from ottla.pipeline.encoding import Encoder
from ottla.testing import LocalBroker
from tests.unit.client.crashes import MortalClient, dies
from tests.unit.client.reading_back import values

PARTITIONS = 2
ROWS = 6

Settings = dict[str, str]


@pytest.fixture
def settings(ottla_broker: LocalBroker) -> Settings:
    return {"bootstrap.servers": ottla_broker.bootstrap}


@pytest.fixture(params=[ANNOUNCED, IMPLICIT], ids=["v1", "v2"])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    if request.param == ANNOUNCED:
        monkeypatch.setattr(transactions, "find_transaction_protocol", lambda client: ANNOUNCED)
    return int(request.param)


def run_task(client: Client, ledger: TaskLedger, topic: str, batch_id: int, task: int, count: int) -> OpenTask | None:
    """Write every `count`-th row. A task without rows opens no transaction."""
    values = [b"%d-%d" % (batch_id, number) for number in range(task, ROWS, count)]
    producer = ledger.begin(batch_id, task) if values else None
    if producer is None:
        return None
    encoder = Encoder(lambda _: PARTITIONS, Random(task), topic=topic, batch_bytes=100)
    sender = Sender(client, producer)
    sender.send_all(encoder.add(pa.record_batch({"value": pa.array(values)})))
    sender.send_all(encoder.flush())
    sender.flush()
    return ledger.seal(batch_id, task, producer)


def collect_reports(client: Client, topic: str, batch_id: int, count: int) -> list[OpenTask]:
    """The reports that a driver gets from the tasks of a batch, after all of them have run."""
    ledger = TaskLedger(client, "query", topic)
    found = [run_task(client, ledger, topic, batch_id, task, count) for task in range(count)]
    return [task for task in found if task is not None]


def run(client: Client, topic: str, batch_id: int, count: int) -> None:
    TaskLedger(client, "query", topic).commit(batch_id, collect_reports(client, topic, batch_id, count))


def rows_of(client: Client, topic: str) -> list[bytes]:
    return sorted(value or b"" for found in values(client, topic).values() for value in found)


def model(batches: int) -> list[bytes]:
    return sorted(b"%d-%d" % (batch, number) for batch in range(batches) for number in range(ROWS))


@pytest.mark.parametrize("sends_before", [False, True], ids=["before", "after"])
def test_a_query_that_dies_at_any_request_leaves_every_batch_exactly_once(
    ottla_broker: LocalBroker, settings: Settings, protocol: int, sends_before: bool
) -> None:
    """The batch is planned again after the crash, with another number of tasks and other rows for each. A decision that
    is too long for one offset is still one decision."""
    dies_at = 0
    died = True
    while died:
        topic = f"output-{dies_at}"
        ottla_broker.create_topic(topic, PARTITIONS)
        client = MortalClient(settings)
        run(client, topic, 0, 2)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tasks_module, "METADATA_MAX", 20)
            mortal = MortalClient(settings, dies_at, sends_before=sends_before)
            died = dies(partial(run, topic=topic, batch_id=1, count=3), mortal)
            run(client, topic, 1, 2)
        run(client, topic, 1, 2)
        run(client, topic, 2, 8)
        assert rows_of(client, topic) == model(3), dies_at
        client.close()
        dies_at += 1
    assert dies_at > 20


def test_only_an_undecided_batch_can_be_aborted(ottla_broker: LocalBroker, settings: Settings, protocol: int) -> None:
    ottla_broker.create_topic("output", PARTITIONS)
    client = MortalClient(settings)
    ledger = TaskLedger(client, "query", "output")
    ledger.abort(0, collect_reports(client, "output", 0, 3))
    assert rows_of(client, "output") == []
    open_tasks = collect_reports(client, "output", 0, 3)
    ottla_broker.fail("EndTxn", "UNKNOWN_SERVER_ERROR")
    with pytest.raises(Exception, match="UNKNOWN_SERVER_ERROR"):
        ledger.commit(0, open_tasks)
    ledger.abort(0, open_tasks)
    assert collect_reports(client, "output", 0, 3) == [], "a decided batch is written once"
    ledger.commit(0, [])
    assert rows_of(client, "output") == model(1)
    client.close()


def time_out(client: Client, tasks: list[OpenTask], topic: str) -> None:
    """End a transaction as the coordinator does after its time-out. Nobody can commit it any more."""
    for task in tasks:
        transactions.init_producer(client, f"query-{topic}-{task.task}")


def decided_without_end(client: Client, topic: str) -> list[OpenTask]:
    tasks = collect_reports(client, topic, 0, 3)
    TaskLedger(client, "query", topic)._decide(0, tasks)
    return tasks


def test_a_decision_is_withdrawn_if_all_tasks_have_timed_out(
    ottla_broker: LocalBroker, settings: Settings, protocol: int
) -> None:
    ottla_broker.create_topic("output", PARTITIONS)
    client = MortalClient(settings)
    time_out(client, decided_without_end(client, "output"), "output")
    with pytest.raises(BatchToRepeat, match="3 tasks of batch 0"):
        run(client, "output", 0, 3)
    run(client, "output", 0, 3)
    assert rows_of(client, "output") == model(1)
    client.close()


def test_a_batch_that_has_partly_timed_out_stops_the_query(
    ottla_broker: LocalBroker, settings: Settings, protocol: int
) -> None:
    """Unless the query is declared deterministic: then only the missing tasks are written again."""
    ottla_broker.create_topic("output", PARTITIONS)
    client = MortalClient(settings)
    tasks = decided_without_end(client, "output")
    time_out(client, tasks[1:2], "output")
    for _ in range(2):
        with pytest.raises(PartlyLanded, match="of 3 tasks the transactions of 1 timed out"):
            run(client, "output", 0, 3)
    ledger = TaskLedger(client, "query", "output", deterministic=True)
    with pytest.raises(BatchToRepeat):
        ledger.commit(0, [])
    again = [run_task(client, ledger, "output", 0, task, 3) for task in range(3)]
    assert [each is None for each in again] == [True, False, True]
    ledger.commit(0, [each for each in again if each is not None])
    assert rows_of(client, "output") == model(1)
    client.close()


def test_a_replaced_query_changes_nothing(ottla_broker: LocalBroker, settings: Settings, protocol: int) -> None:
    """Another query has restarted its tasks. Its decision comes too late, and finds that the batch is committed."""
    ottla_broker.create_topic("output", PARTITIONS)
    client = MortalClient(settings)
    old = collect_reports(client, "output", 0, 3)
    run(client, "output", 0, 3)
    TaskLedger(client, "query", "output")._decide(0, old)
    TaskLedger(client, "query", "output").commit(0, old)
    assert rows_of(client, "output") == model(1)
    with pytest.raises(Exception, match=r"EPOCH|FENCED|STATE"):
        end_transaction(client, TaskLedger(client, "query", "output")._find_identity(old[0]), commit=False)
    client.close()


def test_a_missing_ledger_stops_the_query_unless_allowed(ottla_broker: LocalBroker, settings: Settings) -> None:
    ottla_broker.create_topic("output", PARTITIONS)
    client = MortalClient(settings)
    with pytest.raises(LedgerLost, match="Batch 7"):
        TaskLedger(client, "query", "output").begin(7, 0)
    assert TaskLedger(client, "query", "output", resume=True).begin(7, 0) is not None
    client.close()


def test_transactions_of_tasks_that_never_run_again_are_ended(
    ottla_broker: LocalBroker, settings: Settings, protocol: int
) -> None:
    """The batch has fewer tasks than the crashed one, so readers would wait for the others to time out. Transactions of
    other queries, and of a topic with a longer name, are left alone."""
    ottla_broker.create_topic("output", PARTITIONS)
    ottla_broker.create_topic("output-more", PARTITIONS)
    client = MortalClient(settings)
    collect_reports(client, "output", 0, 4)
    others = collect_reports(client, "output-more", 0, 1)
    run(client, "output", 0, 1)
    ledger = TaskLedger(client, "query", "output")
    assert rows_of(client, "output") != model(1)
    assert ledger.end_leftovers() == ["query-output-1", "query-output-2", "query-output-3"]
    assert rows_of(client, "output") == model(1)
    assert ledger.end_leftovers() == []
    TaskLedger(client, "query", "output-more").commit(0, others)
    assert rows_of(client, "output-more") == model(1)
    client.close()


def test_a_batch_with_an_ended_transaction_is_not_decided(
    ottla_broker: LocalBroker, settings: Settings, protocol: int
) -> None:
    """Spark ran a task twice, and the second attempt aborted what the first one reports. Nothing is committed, and the
    whole batch is repeated."""
    ottla_broker.create_topic("output", PARTITIONS)
    client = MortalClient(settings)
    tasks = collect_reports(client, "output", 0, 3)
    time_out(client, tasks[1:2], "output")
    ledger = TaskLedger(client, "query", "output")
    with pytest.raises(TransactionsLost, match="the transactions of tasks 1 were ended by somebody else"):
        ledger.commit(0, tasks)
    ledger.abort(0, tasks)
    assert rows_of(client, "output") == []
    run(client, "output", 0, 2)
    assert rows_of(client, "output") == model(1)
    client.close()
