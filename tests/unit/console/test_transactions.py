"""Transactions in the console: an open one is aborted, one that hangs is found and ended."""

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer
from starlette.types import ASGIApp

import ottla.testing
from ottla.console.console import Console
from ottla.errors import ErrorCode
from ottla.testing import LocalBroker
from tests.patience import PATIENCE_S
from tests.scenarios.client_calls import append, connect
from tests.scenarios.transactional_producer import TransactionalProducer, read_committed_values
from tests.unit.console.asgi import ask
from tests.unit.console.seeding import make_topic
from tests.unit.console.test_changes import note_of


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    """Without verification a late batch can begin a transaction that its coordinator does not know."""
    with ottla.testing.broker(transaction_partition_verification_enable=False) as local:
        yield local


def rows_of(page: str, label: str) -> list[list[str]]:
    """The cells of the table with this label."""
    table = page.partition(f'aria-label="{label}"')[2].partition("</table>")[0].partition("<tbody>")[2]
    return [
        [re.sub(r"<[^>]+>", "", cell).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)]
        for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL)
    ]


def test_an_open_transaction_is_aborted(app: ASGIApp, console: Console, broker: LocalBroker) -> None:
    topic = make_topic(console, "paid")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "payer", "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"open", b"k", partition=0)
    producer.flush(PATIENCE_S)
    (row,) = rows_of(ask(app, "/transactions").text, "Transactions")
    assert row[:2] == ["payer", "Ongoing"]
    assert row[6] == "paid-0"
    assert rows_of(ask(app, "/transactions?hanging=1&older=0s").text, "Hanging transactions") == [
        ["No transaction hangs."]
    ]
    note = note_of(app, ask(app, "/transactions", {"action": "abort", "name": "payer"}))
    assert note == "The transaction of payer is aborted, and its producer is fenced."
    with pytest.raises(KafkaException):
        producer.commit_transaction(PATIENCE_S)
    (row,) = rows_of(ask(app, "/transactions").text, "Transactions")
    assert row[1] in ("Empty", "CompleteAbort")
    with connect(broker) as client:
        assert read_committed_values(client, topic) == []


def test_a_hanging_transaction_is_found_and_ended(app: ASGIApp, console: Console, broker: LocalBroker) -> None:
    topic = make_topic(console, "blocked")
    with connect(broker) as client:
        hanging = TransactionalProducer(client, "late", 1).initialise()
        assert hanging.send(topic, b"hanging") is ErrorCode.NONE
        append(client, topic, b"behind")
        assert read_committed_values(client, topic) == []
        (row,) = rows_of(ask(app, f"/transactions?hanging=1&older=0s&topic={topic}").text, "Hanging transactions")
        assert row[:4] == [topic, "0", "0", str(hanging.producer.id)]
        form = {"action": "end", "topic": topic, "partition": "0", "start": "0"}
        note = note_of(app, ask(app, "/transactions", form))
        assert note == "The transaction from offset 0 of blocked-0 on is aborted."
        assert read_committed_values(client, topic) == [b"behind"]
    assert ask(app, "/transactions", form).status == 400  # it is gone
    for wrong in ({"action": "end", "topic": "missing", "partition": "0", "start": "0"}, {"action": "x"}, {}):
        assert ask(app, "/transactions", wrong).status in (400, 404), wrong
    assert ask(app, "/transactions?hanging=1&older=0s&topic=missing").status == 200
    assert ask(app, "/transactions?hanging=1&older=soon").status == 400
