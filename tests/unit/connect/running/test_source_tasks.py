"""How long a task of a source reads before it commits, by a clock that the source moves on."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from ottla.client.client import Client
from ottla.client.transactions import ProducerIdentity
from ottla.connect.connector import ConnectorContext, Part, Source, SourceBatch, SourceOffset
from ottla.connect.converters.choice import make_converter, make_header_converter
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.schema import Schema, Type
from ottla.connect.running import source_tasks
from ottla.connect.running.conversion import Conversion
from ottla.connect.running.making import HEADER_CONVERTER
from ottla.connect.running.source_tasks import SourcePlan, run_source_order
from ottla.connect.running.tolerance import ErrorPolicy
from ottla.connect.running.work import FAILED, FENCED, Order, PartOrder, Report
from ottla.connect.settings.definition import Settings
from ottla.errors import ErrorCode, KafkaError
from pyspark_ottla.options import parse_record_shape

TIMEOUT_MS = 60_000
PRODUCER = ProducerIdentity(7, 0, "id")
RUN = ProducerIdentity(6, 4, "run")


class Clock:
    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


class Slow(Source):
    """Ten batches. Each takes some seconds, and an offset follows every `stride` of them."""

    settings = Settings(())

    def plan(self, offsets: Mapping[str, SourceOffset]) -> Sequence[Part]:
        return []

    def read(self, part: Part, offset: SourceOffset | None) -> Iterator[SourceBatch]:
        for number in range(1, 11):
            self.config["clock"].now_s += self.config["seconds"]
            rows = RecordColumns("t", Schema(Type.STRING), pa.array(["row"]))
            offset = {"next": number} if number % self.config["stride"] == 0 else None
            yield SourceBatch([rows], offset, is_midway=number < self.config["midway_up_to"])


class Writer:
    """Writes nothing. Its transaction is aborted once the clock says that its time is over."""

    topics = ("t",)

    def __init__(self, clock: Clock, producer: ProducerIdentity) -> None:
        self._clock = clock
        self._producer = producer
        self._began_s: float | None = None

    def write(self, topic: str, rows: pa.RecordBatch) -> None:
        self._began_s = self._clock.now_s if self._began_s is None else self._began_s
        self._check()

    def write_offsets(self, topic: str, offsets: Any) -> None:
        self._check()

    def commit(self) -> ProducerIdentity:
        """The next transaction has the next epoch."""
        self._check()
        return self._producer._replace(epoch=self._producer.epoch + 1)

    def _check(self) -> None:
        if (self._clock.now_s - (self._began_s or 0.0)) * 1000 > TIMEOUT_MS:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)


def run_order(
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    stride: int,
    parts: int = 1,
    midway_up_to: int = 0,
    called_back_s: float = 1e9,
) -> Report:
    clock = Clock()
    monkeypatch.setattr(source_tasks, "time", clock)
    monkeypatch.setattr(source_tasks, "is_called_back", lambda client, run: clock.now_s >= called_back_s)
    monkeypatch.setattr(source_tasks, "TransactionWriter", lambda _, producer, *more: Writer(clock, producer))
    client = Client({"bootstrap.servers": "localhost:1"})
    config = {"clock": clock, "seconds": seconds, "stride": stride, "midway_up_to": midway_up_to}
    text = make_converter("StringConverter", {}, False)
    plan = SourcePlan(
        Slow(config, ConnectorContext("slow", "workers", 1, {})),
        Conversion(text, text, make_header_converter(HEADER_CONVERTER, {}), None),
        ErrorPolicy(),
        client,
        parse_record_shape({}),
        [],
        "offsets",
        TIMEOUT_MS,
    )
    orders = [PartOrder(f"key {number}", {"part": number}, {}, None) for number in range(parts)]
    return run_source_order(plan, Order(0, PRODUCER, orders, run=RUN))


def test_a_quick_source_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    report = run_order(monkeypatch, 1, 1, parts=2)
    assert report.offsets == {"key 0": {"next": 10}, "key 1": {"next": 10}}


def test_a_round_has_enough_rows_and_enough_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch begins the transaction: two of half a second each follow."""
    monkeypatch.setattr(source_tasks, "MAX_ROWS", 2)
    assert run_order(monkeypatch, 0.5, 1, parts=2).offsets == {"key 0": {"next": 3}}
    assert run_order(monkeypatch, 2, 1, parts=2).offsets == {"key 0": {"next": 2}}


def test_a_slow_source_is_committed_after_half_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction begins with the first row, after 20 s; after 40 s more half of its time is over."""
    report = run_order(monkeypatch, 20, 1, parts=2)
    assert report.failure is None
    assert report.offsets == {"key 0": {"next": 3}}
    assert run_order(monkeypatch, 20, 4).offsets == {"key 0": {"next": 4}}


def test_a_source_that_is_too_slow_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    report = run_order(monkeypatch, 20, 10)
    assert report.failure is not None
    assert report.failure.kind == FAILED
    assert "transaction.timeout.ms=60000" in report.failure.message
    assert not report.offsets


def test_a_transaction_that_others_ended_is_not_the_sources_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Writer) -> None:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)

    monkeypatch.setattr(Writer, "_check", fail)
    report = run_order(monkeypatch, 20, 10)
    assert report.failure is not None
    assert report.failure.kind == FENCED


def test_a_source_that_is_midway_goes_on_in_further_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first row took half a second, so it goes on for two. A transaction has three rows; the source is midway after
    the first, and time is over after the second."""
    monkeypatch.setattr(source_tasks, "MAX_ROWS", 2)
    report = run_order(monkeypatch, 0.5, 1, midway_up_to=10)
    assert report.offsets == {"key 0": {"next": 6}}
    assert report.producer.epoch == PRODUCER.epoch + 2
    assert report.counts["source-record-write-total"] == 6
    assert report.topics == ["t"]


def test_a_source_that_is_not_midway_any_more_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_tasks, "MAX_ROWS", 2)
    monkeypatch.setattr(source_tasks, "MIDWAY_FACTOR", 100)
    report = run_order(monkeypatch, 0.5, 1, parts=2, midway_up_to=5)
    assert report.offsets == {"key 0": {"next": 6}}
    assert run_order(monkeypatch, 0.5, 1, midway_up_to=99).offsets == {"key 0": {"next": 10}}


def test_a_source_that_is_midway_ends_when_it_is_called_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks after each of its transactions, which have three rows."""
    monkeypatch.setattr(source_tasks, "MAX_ROWS", 2)
    monkeypatch.setattr(source_tasks, "MIDWAY_FACTOR", 100)
    report = run_order(monkeypatch, 0.5, 1, midway_up_to=99, called_back_s=1.6)
    assert report.failure is None
    assert report.offsets == {"key 0": {"next": 6}}
    assert report.producer.epoch == PRODUCER.epoch + 2


def test_a_failure_after_a_transaction_tells_what_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Writer.commit

    def fail_second(self: Writer) -> ProducerIdentity:
        if self._producer != PRODUCER:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return commit(self)

    monkeypatch.setattr(source_tasks, "MAX_ROWS", 2)
    monkeypatch.setattr(Writer, "commit", fail_second)
    report = run_order(monkeypatch, 0.5, 1, midway_up_to=10)
    assert report.failure is not None
    assert report.failure.kind == FENCED
    assert report.offsets == {"key 0": {"next": 3}}
    assert report.counts["source-record-write-total"] == 3
