"""The demo's exchange of records, against librdkafka's own mock broker: records are counted, and damage is told."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from ottla.cli.demo import exchange
from ottla.cli.demo.exchange import NUMBER, PARTITIONS, TOPIC, Exchange
from tests.patience import PATIENCE_S


@pytest.fixture
def mock(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a mock broker, which makes topics when they are asked for and knows no CreateTopics."""
    host = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 3})
    (broker,) = host.list_topics(timeout=PATIENCE_S).brokers.values()
    host.list_topics(TOPIC, timeout=PATIENCE_S)
    monkeypatch.setattr(exchange, "_create_topic", lambda address: None)
    yield f"{broker.host}:{broker.port}"
    host.flush(1)


def test_what_was_sent_comes_back(mock: str) -> None:
    # Produced, acknowledged and consumed agree, and nothing is complained about.
    records = Exchange(mock, 100)
    records.turn(producing=True)
    while not records.finished:
        records.turn(producing=False)
    records.close()
    assert records.produced == records.acknowledged == records.consumed == exchange.CHUNK
    assert records.intact
    assert records.complaints == []


@pytest.mark.parametrize(
    ("arrivals", "complaint"),
    [
        ([(0, 0), (0, 2 * PARTITIONS)], "came where"),
        ([(0, 0), (0, 0)], "came where"),
        ([(1, 0)], "came where"),
    ],
    ids=["lost", "twice", "elsewhere"],
)
def test_a_record_that_is_not_the_one_due_is_told(mock: str, arrivals: list[tuple[int, int]], complaint: str) -> None:
    records = Exchange(mock, NUMBER.size)
    for partition, number in arrivals:
        records._check(partition, NUMBER.pack(number))
    records.close()
    assert not records.intact
    assert any(complaint in line for line in records.complaints)


def test_a_changed_record_is_told(mock: str) -> None:
    records = Exchange(mock, NUMBER.size + 1)
    records._check(0, NUMBER.pack(0) + b"\xff")
    records.close()
    assert records.complaints == ["partition 0: record 0 was changed on the way"]
