"""Transactions per second, and what a commit every 100 ms costs a stream of records.

Small transactions: one record each, by several producers of transactions v2 over raw sockets, first Produce, then
EndTxn. A stream: librdkafka sends 1 KB records as fast as it can, in turn without a pause, with a flush every 100 ms,
and with a commit every 100 ms. A commit begins with a flush: the client waits until everything it has queued is
acknowledged, and queues nothing meanwhile. That wait is the same without transactions; what a commit costs beside it is
the broker's.
"""

import time
from enum import Enum
from statistics import median
from typing import NamedTuple

from confluent_kafka import Producer

from benchmarks.coordinators.failure import BenchmarkFailure
from benchmarks.coordinators.size import Size
from benchmarks.loads.request_client import RequestClient
from benchmarks.loads.small_requests import find_errors
from benchmarks.loads.topics import create_topic
from benchmarks.peers.broker_process import BrokerProcess
from benchmarks.report import Row
from ottla.errors import ErrorCode
from ottla.records.batch import encode
from ottla.wire.messages import produce
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest

SETTINGS: dict[str, str] = {}
TOPIC = "transactions"
PRODUCERS = 8
TRANSACTION_KEY_TYPE = 1
"""Of FindCoordinator."""
INTERVAL_SECONDS = 0.1
RECORD = bytes(1000)
VALUE = bytes(100)
PATIENCE_SECONDS = 30.0


class Pause(Enum):
    """What a stream of records does every INTERVAL_SECONDS."""

    NOTHING = "no pause"
    FLUSH = "a flush every 100 ms"
    COMMIT = "a commit every 100 ms"


class StreamResult(NamedTuple):
    megabytes_per_second: float
    """Acknowledged, and with transactions also committed."""
    commit_ms: float
    """The median time of a commit after its flush; 0 without transactions."""


class SmallTransactions:
    """One producer that sends a record, commits, and begins again. `send` and `receive` are called in turn."""

    def __init__(self, broker: BrokerProcess, transactional_id: str) -> None:
        self._client = RequestClient(broker)
        self._id = transactional_id
        self._client.ask_until_accepted(
            FindCoordinatorRequest(key_type=TRANSACTION_KEY_TYPE, coordinator_keys=[transactional_id]), 4
        )
        identity = self._client.ask_until_accepted(
            InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000), 5
        )
        self._producer = (identity.producer_id, identity.producer_epoch)
        self._commits_next = False
        self.committed = 0

    def send(self) -> None:
        producer_id, epoch = self._producer
        if self._commits_next:
            end = EndTxnRequest(
                transactional_id=self._id, producer_id=producer_id, producer_epoch=epoch, committed=True
            )
            self._client.send(end, 5)
            return
        records = encode(
            [(None, VALUE, (), 1_000)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        )
        partition = produce.PartitionProduceData(records=bytes(records))
        topic = produce.TopicProduceData(name=TOPIC, partition_data=[partition])
        self._client.send(
            produce.ProduceRequest(transactional_id=self._id, acks=-1, timeout_ms=10_000, topic_data=[topic]), 12
        )

    def receive(self) -> None:
        answer = (
            self._client.receive(EndTxnRequest(), 5)
            if self._commits_next
            else self._client.receive(produce.ProduceRequest(), 12)
        )
        errors = find_errors(answer)
        if errors == [ErrorCode.CONCURRENT_TRANSACTIONS]:
            return  # the same request is sent again
        if errors:
            raise BenchmarkFailure(f"a transaction has error {ErrorCode(errors[0]).name}")
        if self._commits_next:
            self._producer = (answer.producer_id, answer.producer_epoch)
            self.committed += 1
        self._commits_next = not self._commits_next

    def close(self) -> None:
        self._client.close()


def measure_small(broker: BrokerProcess, seconds: float) -> tuple[float, float]:
    """Transactions per second, and the CPU microseconds of the broker for each."""
    producers = [SmallTransactions(broker, f"small-{number}") for number in range(PRODUCERS)]
    try:
        for each in producers:
            each.send()
        committed, cpu_seconds, began = 0, 0.0, 0.0
        warm_until = time.monotonic() + seconds / 2
        end = warm_until + seconds
        while (now := time.monotonic()) < end:
            if not began and now >= warm_until:
                began, cpu_seconds = now, broker.usage().cpu_seconds
                committed = sum(each.committed for each in producers)
            for each in producers:
                each.receive()
                each.send()
        done = sum(each.committed for each in producers) - committed
        used = broker.usage().cpu_seconds - cpu_seconds
        if not done:
            raise BenchmarkFailure(f"{broker.name} committed no transaction within {seconds:g} s")
        return done / (time.monotonic() - began), used / done * 1e6
    finally:
        for each in producers:
            each.close()


def measure_stream(broker: BrokerProcess, seconds: float, pause: Pause) -> StreamResult:
    transactional = pause is Pause.COMMIT
    settings = {"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 20_000}
    producer = Producer(settings | ({"transactional.id": "stream"} if transactional else {"enable.idempotence": True}))
    if transactional:
        producer.init_transactions(PATIENCE_SECONDS)
    else:  # the producer gets its id before the clock starts, as a transactional one does
        producer.produce(TOPIC, RECORD, partition=0)
        producer.flush(PATIENCE_SECONDS)
    sent, commits = 0, []
    began = now = time.monotonic()
    while now - began < seconds:
        if transactional:
            producer.begin_transaction()
        sent += send_until(producer, now + INTERVAL_SECONDS)
        if pause is not Pause.NOTHING:
            producer.flush(PATIENCE_SECONDS)
        now = time.monotonic()
        if transactional:
            producer.commit_transaction(PATIENCE_SECONDS)
            flushed, now = now, time.monotonic()
            commits.append((now - flushed) * 1000)
    if producer.flush(PATIENCE_SECONDS):
        raise BenchmarkFailure(f"{broker.name} did not acknowledge every record within {PATIENCE_SECONDS:g} s")
    return StreamResult(sent * len(RECORD) / (time.monotonic() - began) / 1e6, median(commits) if commits else 0.0)


def send_until(producer: Producer, end: float) -> int:
    """Queue as many records as the client takes until `end`. Returns how many."""
    sent = 0
    while time.monotonic() < end:
        for _ in range(100):
            try:
                producer.produce(TOPIC, RECORD, partition=0)
                sent += 1
            except BufferError:
                producer.poll(0.01)
                break
        producer.poll(0)
    return sent


def measure(broker: BrokerProcess, size: Size) -> dict[Row, float]:
    seconds = size.transaction_seconds
    create_topic(broker.bootstrap, TOPIC)
    measure_stream(broker, seconds / 2, Pause.COMMIT)  # warms the broker up
    streams = {pause: measure_stream(broker, seconds, pause) for pause in Pause}
    per_second, microseconds = measure_small(broker, seconds)
    rates = {pause: result.megabytes_per_second for pause, result in streams.items()}
    values = {
        Row("transactions of one record", "1/s", more_is_better=True): per_second,
        Row("transactions of one record: broker CPU", "us each", more_is_better=False): microseconds,
    }
    for pause, rate in rates.items():
        values[Row(f"stream of 1 KB records, {pause.value}", "MB/s", more_is_better=True)] = rate
    for other in (Pause.NOTHING, Pause.FLUSH):
        share = Row(f"speed with a commit every 100 ms, relative to {other.value}", "%", more_is_better=True)
        values[share] = 100 * rates[Pause.COMMIT] / rates[other]
    values[Row("commit of a transaction after its flush", "ms", more_is_better=False)] = streams[Pause.COMMIT].commit_ms
    return values
