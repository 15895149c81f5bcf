"""`ottla bench`: each of its measurements, and the end-to-end latency when records are delayed or lost."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

import ottla.testing
from ottla.cli.bench.measuring import PHASES, find_share_ms
from ottla.testing import LocalBroker
from tests.patience import PATIENCE_S
from tests.unit.cli.every_command import run


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with ottla.testing.broker() as running:
        running.create_topic("kept", partitions=2)
        yield running


def bench(broker: LocalBroker, *arguments: str) -> list[dict[str, Any]]:
    ended = run(["bench", "--format", "json", "-b", broker.bootstrap, *arguments])
    assert (ended.status, ended.errors) == (0, ""), ended.errors
    found: list[dict[str, Any]] = json.loads(ended.output)
    return found


def list_topics(broker: LocalBroker) -> list[str]:
    listed = run(["topic", "list", "--format", "json", "-b", broker.bootstrap]).output
    return [topic["topic"] for topic in json.loads(listed)]


def test_all_measurements(broker: LocalBroker) -> None:
    # Everything that was produced comes back, and the topic is gone afterwards.
    rows = bench(broker, "--seconds", "0.1", "--count", "20", "--warm-up", "5")
    assert [row["phase"] for row in rows] == [*PHASES]
    produced, consumed, passed = rows
    assert produced["records"] == consumed["records"] > 0
    assert consumed["p50_ms"] is None
    assert 0 < passed["p50_ms"] <= passed["p95_ms"] <= passed["p99_ms"] <= passed["max_ms"]
    assert list_topics(broker) == ["kept"]


@pytest.mark.parametrize("rate", [(), ("--rate", "500")], ids=["one at a time", "at a rate"])
def test_every_record_of_the_count_is_measured(broker: LocalBroker, rate: tuple[str, ...]) -> None:
    """The warm-up is sent too, but does not count. All acks, an empty value and a codec pass through."""
    long = ("--seconds", str(PATIENCE_S))
    for more in (("--acks", "1"), ("--acks", "0", "--record-bytes", "0"), ("--acks", "all", "-z", "lz4")):
        ended_before = _count(broker, "kept")
        (row,) = bench(
            broker, "--only", "end-to-end", "--topic", "kept", "-n", "50", "--warm-up", "7", *long, *rate, *more
        )
        assert (row["phase"], row["records"]) == ("end-to-end", 50)
        assert _count(broker, "kept") - ended_before == 57


def test_the_time_bounds_the_test(broker: LocalBroker) -> None:
    (row,) = bench(broker, "--only", "end-to-end", "--seconds", "0.05", "-n", "10000000", "--warm-up", "0")
    assert 1 <= row["records"] < 10_000_000


def test_records_of_others_are_ignored(broker: LocalBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for key in (None, b"ottla-bench-1-1-0", b"x"):
        producer.produce("kept", b"other", key, 0)
    producer.flush(PATIENCE_S)
    long = ("--seconds", str(PATIENCE_S))
    (row,) = bench(broker, "--only", "end-to-end", "--topic", "kept", "-n", "5", "--warm-up", "0", *long)
    assert row["records"] == 5


def test_a_record_that_is_refused(broker: LocalBroker) -> None:
    run(["topic", "create", "small", "--set", "max.message.bytes=100", "-b", broker.bootstrap])
    for phase in ("end-to-end", "produce"):
        ended = run(["bench", "--topic", "small", "--only", phase, "--record-bytes", "1000", "-b", broker.bootstrap])
        assert ended.status == 1
        assert "topic 'small': a record was not delivered: Message size too large" in ended.errors


def test_shares() -> None:
    ordered = [number / 1000 for number in range(1, 101)]
    assert [find_share_ms(ordered, share) for share in (0.5, 0.95, 0.99, 1.0)] == [51.0, 96.0, 100.0, 100.0]
    assert find_share_ms([], 0.5) is None


def _count(broker: LocalBroker, topic: str) -> int:
    (described,) = json.loads(run(["topic", "describe", topic, "--format", "json", "-b", broker.bootstrap]).output)
    return sum(partition["end"] for partition in described["partitions"])
