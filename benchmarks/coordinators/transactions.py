"""Transactions per second, and what a commit every 100 ms costs a stream of records, beside Apache Kafka in one run.

    python -m benchmarks.coordinators.transactions [--seconds 5] [--rounds 3] [--without-kafka]

Small transactions: one record each, by several producers of transactions v2 over raw sockets: Produce, then EndTxn. A
stream: librdkafka sends 1 KB records as fast as it can, in turn without a pause, with a flush every 100 ms, and with a
commit every 100 ms. A commit begins with a flush: the client waits until everything it has queued is acknowledged, and
queues nothing meanwhile. That wait is the same without transactions; what a commit costs beside it is the broker's.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from enum import Enum
from statistics import median
from typing import NamedTuple

from confluent_kafka import Producer

from benchmarks.coordinators.commits import Client
from benchmarks.loads.small_requests import errors_in
from benchmarks.loads.topics import create_topic
from benchmarks.peers.apache_kafka import ApacheKafka, Unavailable
from benchmarks.peers.broker_process import BrokerProcess
from benchmarks.peers.ottla_broker import OttlaBroker
from ottla.errors import ErrorCode
from ottla.records.batch import encode
from ottla.wire.messages import produce
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest

TOPIC = "transactions"
PRODUCERS = 8
TRANSACTION = 1
"""Key type of FindCoordinator."""
INTERVAL_S = 0.1
RECORD = bytes(1000)
VALUE = bytes(100)
PATIENCE_S = 30.0


class Pause(Enum):
    """What a stream does every INTERVAL_S."""

    NOTHING = "no pause"
    FLUSH = "a flush every 100 ms"
    COMMIT = "a commit every 100 ms"


class Stream(NamedTuple):
    """Megabytes per second that were acknowledged, and with transactions also committed."""

    rate: float
    end_ms: float
    """The median of the times from a flush's end to a commit's."""


class Measured(NamedTuple):
    name: str
    transactions_per_second: float
    broker_us_per_transaction: float
    rates: dict[Pause, float]
    of_plain: float
    """Of the rounds' ratios, the median, as the next one."""
    of_flushed: float
    end_ms: float


class SmallTransactions:
    """One producer: a record, a commit, and again. Which of the two its last request was, it remembers."""

    def __init__(self, broker: BrokerProcess, transactional_id: str) -> None:
        self._client = Client(broker)
        self._id = transactional_id
        self._client.ask_until_fine(
            FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[transactional_id]), 4
        )
        identity = self._client.ask_until_fine(
            InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000), 5
        )
        self._producer = (identity.producer_id, identity.producer_epoch)
        self._ends = False
        self.committed = 0

    def send(self) -> None:
        producer_id, epoch = self._producer
        if self._ends:
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
            if self._ends
            else self._client.receive(produce.ProduceRequest(), 12)
        )
        errors = errors_in(answer)
        if errors == [ErrorCode.CONCURRENT_TRANSACTIONS]:
            return  # sent again
        if errors:
            raise RuntimeError(f"a transaction has error {ErrorCode(errors[0]).name}")
        if self._ends:
            self._producer = (answer.producer_id, answer.producer_epoch)
            self.committed += 1
        self._ends = not self._ends

    def close(self) -> None:
        self._client.close()


def small(broker: BrokerProcess, seconds: float) -> tuple[float, float]:
    """Transactions per second, and the broker's CPU microseconds for each."""
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
        return done / (time.monotonic() - began), used / done * 1e6
    finally:
        for each in producers:
            each.close()


def stream(broker: BrokerProcess, seconds: float, pause: Pause) -> Stream:
    transactional = pause is Pause.COMMIT
    settings = {"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 20_000}
    producer = Producer(settings | ({"transactional.id": "stream"} if transactional else {"enable.idempotence": True}))
    if transactional:
        producer.init_transactions(PATIENCE_S)
    else:  # has its identity before the clock starts, as the other one
        producer.produce(TOPIC, RECORD, partition=0)
        producer.flush(PATIENCE_S)
    sent, ends = 0, []
    began = now = time.monotonic()
    while now - began < seconds:
        if transactional:
            producer.begin_transaction()
        sent += send_until(producer, now + INTERVAL_S)
        if pause is not Pause.NOTHING:
            producer.flush(PATIENCE_S)
        now = time.monotonic()
        if transactional:
            producer.commit_transaction(PATIENCE_S)
            flushed, now = now, time.monotonic()
            ends.append((now - flushed) * 1000)
    if producer.flush(PATIENCE_S):
        raise RuntimeError("records were not acknowledged")
    return Stream(sent * len(RECORD) / (time.monotonic() - began) / 1e6, median(ends) if ends else 0.0)


def send_until(producer: Producer, end: float) -> int:
    """How many records the client took, which is as many as it could."""
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


def measure(brokers: Sequence[BrokerProcess], seconds: float, rounds: int) -> list[Measured]:
    """Every broker in every round, so that a slow minute of the machine hits all of them."""
    rates: list[list[tuple[float, float]]] = [[] for _ in brokers]
    streams: list[list[dict[Pause, Stream]]] = [[] for _ in brokers]
    for broker in brokers:
        create_topic(broker.bootstrap, TOPIC)
        stream(broker, seconds / 2, Pause.COMMIT)  # not counted
    for _ in range(rounds):
        for number, broker in enumerate(brokers):
            streams[number].append({pause: stream(broker, seconds, pause) for pause in Pause})
            rates[number].append(small(broker, seconds))
    return [
        Measured(
            broker.name,
            median(rate for rate, _ in rates[number]),
            median(cpu for _, cpu in rates[number]),
            {pause: median(each[pause].rate for each in streams[number]) for pause in Pause},
            median(each[Pause.COMMIT].rate / each[Pause.NOTHING].rate for each in streams[number]),
            median(each[Pause.COMMIT].rate / each[Pause.FLUSH].rate for each in streams[number]),
            median(each[Pause.COMMIT].end_ms for each in streams[number]),
        )
        for number, broker in enumerate(brokers)
    ]


def report(results: Sequence[Measured]) -> str:
    pauses = "".join(f" MB/s with {pause.value} |" for pause in Pause)
    lines = [
        f"| | transactions/s | broker us/transaction |{pauses} of no pause | of a flush | end of a commit, ms |",
        "|---|---|---|" + "---|" * (len(Pause) + 3),
    ]
    for each in results:
        rates = "".join(f" {each.rates[pause]:.1f} |" for pause in Pause)
        lines.append(
            f"| {each.name} | {each.transactions_per_second:,.0f} | {each.broker_us_per_transaction:.0f} |{rates} "
            f"{each.of_plain:.1%} | {each.of_flushed:.1%} | {each.end_ms:.2f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without-kafka", action="store_true")
    options = parser.parse_args(arguments)
    with OttlaBroker() as ottla:
        if options.without_kafka:
            print(report(measure([ottla], options.seconds, options.rounds)))
            return 0
        try:
            with ApacheKafka() as peer:
                print(report(measure([ottla, peer], options.seconds, options.rounds)))
        except Unavailable as missing:
            print(f"without Apache Kafka: {missing}", file=sys.stderr)
            print(report(measure([ottla], options.seconds, options.rounds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
