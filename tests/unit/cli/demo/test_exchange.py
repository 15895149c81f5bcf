"""The demo's exchange of records, against librdkafka's own mock broker: records are counted, and damage is reported."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from ottla.cli.demo import exchange
from ottla.cli.demo.exchange import NUMBER, PARTITIONS, TOPIC, Exchange
from tests.patience import PATIENCE_S


@pytest.fixture
def mock(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a mock broker, which creates topics on first use and has no CreateTopics."""
    host = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 3})
    (broker,) = host.list_topics(timeout=PATIENCE_S).brokers.values()
    host.list_topics(TOPIC, timeout=PATIENCE_S)
    monkeypatch.setattr(exchange, "_create_topic", lambda address: None)
    yield f"{broker.host}:{broker.port}"
    host.flush(1)


def test_all_sent_records_come_back(mock: str) -> None:
    # The numbers of produced, acknowledged and consumed records agree, and no problem is reported.
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
def test_a_record_out_of_order_is_reported(mock: str, arrivals: list[tuple[int, int]], complaint: str) -> None:
    records = Exchange(mock, NUMBER.size)
    for partition, number in arrivals:
        records._check(partition, NUMBER.pack(number))
    records.close()
    assert not records.intact
    assert any(complaint in line for line in records.complaints)


def test_a_changed_record_is_reported(mock: str) -> None:
    records = Exchange(mock, NUMBER.size + 1)
    records._check(0, NUMBER.pack(0) + b"\xff")
    records.close()
    assert records.complaints == ["partition 0: record 0 was changed on the way"]
