"""Clients that work while a cluster is in trouble, and record what they did and were told as a history.

All of them are librdkafka's (confluent-kafka) with few settings of their own, each in a thread. `Ledger` topics are
written by idempotent producers, `transfers` by transactional ones. A producer waits for its records as long as it must:
an error that reaches the application fails the test.
"""

import contextlib
import logging
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from ctypes import py_object, pythonapi
from random import Random
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.topic_partition import TopicPartition
from tests.patience import PATIENCE_MS, PATIENCE_S
from tests.samples import FULL
from tests.simulation.history import (
    Acknowledged,
    Assigned,
    Batch,
    Event,
    History,
    Outcome,
    Polled,
    Sent,
    TransactionEnded,
    WatermarksSeen,
)

UNANSWERED_MAX = 200
PAUSE_S = 0.005 if FULL else 0.04
"""Between records of a producer and between transactions: in the suite, enough for a few of them before each fault."""
SILENT_S = 60.0
SILENT_POLLS = 300
"""A client is dead if its main thread has told nothing for so long, and over so many polls."""
STEP_S = 30.0
"""How long a transactional call may take before the producer starts over."""
QUIET: dict[str, Any] = {
    "log_level": 0,
    "reconnect.backoff.max.ms": 500,
    "socket.timeout.ms": 5000,
    "metadata.recovery.strategy": "none",
}
LIFE = 1
"""A cluster outlives its brokers: the checker excuses nothing."""

Log = tuple[tuple[int, bytes], ...]


class Worker(ABC):
    """A client in a thread of its own, until `stop`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.failures: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end. `join` waits for it."""
        self._stopping.set()

    def join(self) -> None:
        self._thread.join(PATIENCE_S)
        if self._thread.is_alive():
            self.failures.append(f"does not end: {self._describe_stack()}")

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def _describe_stack(self) -> str:
        """Where the thread is: functions and lines, the innermost last."""
        stack = traceback.extract_stack(sys._current_frames().get(self._thread.ident or 0))
        return " ".join(f"{each.name}:{each.lineno}" for each in stack)

    @abstractmethod
    def work(self) -> None:
        """What the thread does until `is_stopping`."""

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # an error in a callback of librdkafka's is no Exception
            self.failures.append(repr(error))


class ClientLog(logging.Handler):
    """The last that librdkafka has told of a client's state, such as a new epoch, to explain what the client did.

    Each kind of line, such as TOPICUPD, is kept by itself: a client that fails again and again repeats a few kinds many
    times a second, which would push out what had brought it there.
    """

    LINES = 1000
    """Of each kind."""

    def __init__(self, contexts: str) -> None:
        super().__init__()
        self._kinds: dict[str, deque[str]] = {}
        self.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        logger = logging.Logger("client", logging.DEBUG)
        logger.addHandler(self)
        self.settings = {"log_level": 7, "debug": contexts, "logger": logger}
        """Settings of a client whose log this is."""
        self.begin()

    def begin(self) -> None:
        """A client is about to use this log."""
        self._polls = 0
        self._heard_at = time.monotonic()

    def note_poll(self) -> None:
        """The client was asked for what it has to tell."""
        self._polls += 1

    def is_dead(self) -> bool:
        """Whether the client's main thread, which refreshes the metadata and sends heartbeats, is silent for good.

        Two threads of librdkafka can wait for each other, whatever the brokers do (docs/cluster.md). A machine that
        stood still for a minute is told by the number of polls.
        """
        return self._polls > SILENT_POLLS and time.monotonic() - self._heard_at > SILENT_S

    @property
    def lines(self) -> list[str]:
        """What is kept, by time."""
        return sorted(line for kind in list(self._kinds.values()) for line in list(kind))

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if "[thrd:main]" in message:
            self.begin()
        kind = message.split(maxsplit=1)[0]
        self._kinds.setdefault(kind, deque(maxlen=self.LINES)).append(self.format(record))


class LedgerProducer(Worker):
    """Sends numbered records to all partitions of a topic, with idempotence and acks=all."""

    def __init__(self, name: str, bootstrap: str, partitions: Sequence[TopicPartition], events: list[Event]) -> None:
        super().__init__(name)
        self.acknowledged = 0
        self._partitions = partitions
        self._events = events
        self._sent = self._answered = 0
        self.client_log = ClientLog("eos")
        self._producer = Producer(
            QUIET
            | self.client_log.settings
            | {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "request.timeout.ms": 4000,
                "message.timeout.ms": PATIENCE_MS,
                "error_cb": self._on_error,
            }
        )

    def work(self) -> None:
        while not self.is_stopping:
            if self._sent - self._answered < UNANSWERED_MAX:
                for partition in self._partitions:
                    self._send(partition)
            self._stopping.wait(PAUSE_S)
            self._producer.poll(0)
        if left := self._producer.flush(PATIENCE_S):
            self.failures.append(f"{left} records were not acknowledged within {PATIENCE_S} s")

    def await_acknowledged(self, more: int) -> None:
        """Wait until so many more records are acknowledged."""
        wanted = self.acknowledged + more
        wait_for(
            lambda: self.acknowledged >= wanted, f"{self.name} goes on", lambda: f"{self.acknowledged}, {self.failures}"
        )

    def _send(self, partition: TopicPartition) -> None:
        value = f"{self.name}/{self._sent}".encode()
        batch = Batch(self.name, 1, self._sent, partition, (value,), idempotent=True)
        self._events.append(Sent(batch))

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            self._answered += 1
            if error is not None:
                self.failures.append(f"{batch}: {error}")
            else:
                self._events.append(Acknowledged(batch, LIFE, message.offset()))
                self.acknowledged += 1

        self._producer.produce(partition.topic, value, partition=partition.partition, on_delivery=on_delivery)
        self._sent += 1

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.failures.append(f"fatal error: {error}")


class Transactor(Worker):
    """Writes a record to each partition of a topic in one transaction, and commits or aborts it."""

    def __init__(
        self, name: str, bootstrap: str, partitions: Sequence[TopicPartition], events: list[Event], random: Random
    ) -> None:
        super().__init__(name)
        self.committed = 0
        self.step_s = STEP_S
        self.restarts: list[str] = []
        """Why producers were replaced by new ones with the same transactional id."""
        self._bootstrap = bootstrap
        self._partitions = partitions
        self._events = events
        self._random = random
        self._numbers = 0

    def work(self) -> None:
        while not self.is_stopping:
            producer = self._open()
            try:
                producer.init_transactions(self.step_s)
                while not self.is_stopping:
                    self._transact(producer)
                    self._stopping.wait(PAUSE_S)
            except KafkaException as error:
                self.restarts.append(str(error))
                producer.purge()
        self._open().init_transactions(PATIENCE_S)  # ends a transaction that was left open

    def _open(self) -> Producer:
        return Producer(
            QUIET
            | {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self.name,
                "transaction.timeout.ms": PATIENCE_MS,
                "linger.ms": 2,
                "request.timeout.ms": 4000,
            }
        )

    def _transact(self, producer: Producer) -> None:
        number = self._numbers
        self._numbers += 1
        transaction = f"{self.name}:{number}"
        producer.begin_transaction()
        for partition in self._partitions:
            self._send(producer, partition, number, transaction)
        committing = self._random.random() < 0.7
        try:
            if committing:
                producer.commit_transaction(self.step_s)
            else:
                producer.flush(self.step_s)
                producer.abort_transaction(self.step_s)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(self.step_s)
            committing = False
        self._events.append(TransactionEnded(transaction, Outcome.COMMITTED if committing else Outcome.ABORTED))
        self.committed += committing

    def _send(self, producer: Producer, partition: TopicPartition, number: int, transaction: str) -> None:
        value = f"{transaction}@{partition.partition}".encode()
        batch = Batch(self.name, 1, number, partition, (value,), idempotent=False, transaction=transaction)
        self._events.append(Sent(batch))

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self._events.append(Acknowledged(batch, LIFE, message.offset()))

        producer.produce(partition.topic, value, partition=partition.partition, on_delivery=on_delivery)


class Reader(Worker):
    """Reads all partitions of a topic from their beginning, without a group, or as a member of one."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        partitions: Sequence[TopicPartition],
        events: list[Event],
        *,
        read_committed: bool = False,
        group: str | None = None,
    ) -> None:
        super().__init__(name)
        self.positions = dict.fromkeys(partitions, 0)
        self.replaced = 0
        """How many clients of librdkafka died."""
        self._partitions = partitions
        self._events = events
        self._read_committed = read_committed
        self._group = group
        self._bootstrap = bootstrap
        self.client_log = ClientLog("cgrp" if group else "metadata,topic")

    def work(self) -> None:
        while not self.is_stopping:
            consumer = self._open()
            try:
                is_dead = self._read(consumer)
            except BaseException:
                consumer.close()
                raise
            if is_dead or not self._close(consumer):
                self.replaced += 1
                print(f"{self.name}: a client whose main thread is dead was replaced", flush=True)
                self.abandon(consumer)

    def _close(self, consumer: Consumer) -> bool:
        """Close a client. Returns whether it could be closed: it may have died just now."""
        closing = threading.Thread(target=consumer.close, daemon=True)
        closing.start()
        closing.join(SILENT_S)
        return not closing.is_alive()

    def abandon(self, consumer: Consumer) -> None:
        """To close a dead client, or to free it, would take for ever."""
        pythonapi.Py_IncRef(py_object(consumer))

    def _open(self) -> Consumer:
        consumer = Consumer(
            QUIET
            | self.client_log.settings
            | {
                "bootstrap.servers": self._bootstrap,
                "group.id": self._group or "unused",
                "isolation.level": "read_committed" if self._read_committed else "read_uncommitted",
                "auto.offset.reset": "earliest" if self._group else "error",
                "enable.auto.commit": self._group is not None,
                "auto.commit.interval.ms": 500,
                "session.timeout.ms": 10_000,
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 50,
                # Two answers that cross can leave librdkafka with a partition without a leader and no query for one.
                # It then waits for its periodic refresh, which is five minutes by default.
                "topic.metadata.refresh.interval.ms": 10_000,
            }
        )
        if self._group:
            consumer.subscribe([self._partitions[0].topic], on_assign=self._on_assign)
        else:
            begin = {each: self.positions[each] or OFFSET_BEGINNING for each in self._partitions}
            consumer.assign([Position(each.topic, each.partition, offset) for each, offset in begin.items()])
            self._events += [Assigned(self.name, each, self.positions[each]) for each in self._partitions]
        return consumer

    def _read(self, consumer: Consumer) -> bool:
        """Read until `stop`, or until the client is dead. Returns whether it is."""
        self.client_log.begin()
        while not self.is_stopping:
            self._record(consumer.consume(500, 0.1))
            self.client_log.note_poll()
            if self.client_log.is_dead():
                return True
        return False

    def await_records(self, more: int) -> None:
        """Wait until so many more records are read."""
        wanted = sum(self.positions.values()) + more
        wait_for(
            lambda: sum(self.positions.values()) >= wanted,
            f"{self.name} goes on",
            lambda: f"{self.positions}, {self.failures}",
        )

    def _on_assign(self, consumer: Consumer, assigned: list[Position]) -> None:
        """Where the group left off: the member's polls may go back to there."""
        if self.is_stopping:
            # In close librdkafka answers no question about committed offsets any more, it waits to the end of the
            # time-out instead. An assignment that came just before close is still waited for, so give it an empty one.
            consumer.assign([])
            return
        committed = self._find_committed(consumer, assigned)
        for each in committed:
            each.offset = max(each.offset, 0)
            partition = TopicPartition(each.topic, each.partition)
            self._events.append(Assigned(self.name, partition, each.offset))
        consumer.assign(committed)

    def _find_committed(self, consumer: Consumer, assigned: list[Position]) -> list[Position]:
        """What is committed. librdkafka hands errors to the application while the coordinator moves."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return consumer.committed(assigned, PATIENCE_S)
            except KafkaException as error:
                if not error.args[0].retriable() and error.args[0].code() not in TRANSIENT:
                    raise
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def _record(self, messages: list[Message]) -> None:
        found: dict[TopicPartition, list[tuple[int, bytes]]] = {}
        for message in messages:
            if (error := message.error()) is not None:
                if not error.retriable() and error.code() not in TRANSIENT:
                    self.failures.append(str(error))
                continue
            topic, number, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None and number is not None and offset is not None
            found.setdefault(TopicPartition(topic, number), []).append((offset, message.value() or b""))
        for partition, records in found.items():
            self._events.append(Polled(self.name, partition, tuple(records), self._read_committed))
            self.positions[partition] = max(self.positions[partition], records[-1][0] + 1)


TRANSIENT = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._PARTITION_EOF,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.REQUEST_TIMED_OUT,
)
"""Errors that librdkafka tells of, and gets over by itself."""


class Observer(Worker):
    """Asks for the earliest and the latest offset of each partition again and again."""

    def __init__(self, name: str, bootstrap: str, partitions: Sequence[TopicPartition], events: list[Event]) -> None:
        super().__init__(name)
        self._partitions = partitions
        self._events = events
        self._bootstrap = bootstrap

    def work(self) -> None:
        consumer = Consumer(QUIET | {"bootstrap.servers": self._bootstrap, "group.id": "unused"})
        while not self.is_stopping:
            for partition in self._partitions:
                with contextlib.suppress(KafkaException):
                    low, high = consumer.get_watermark_offsets(Position(partition.topic, partition.partition), 2.0)
                    self._events.append(WatermarksSeen(self.name, partition, low, high))
            self._stopping.wait(0.2)
        consumer.close()


def create_topic(bootstrap: str, topic: str, partitions: int, **config: str) -> list[TopicPartition]:
    """A topic with three replicas, of which two must be in sync, and its partitions."""
    admin = AdminClient(QUIET | {"bootstrap.servers": bootstrap})
    new = NewTopic(topic, num_partitions=partitions, replication_factor=3, config={"min.insync.replicas": "2"} | config)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            admin.create_topics([new], request_timeout=PATIENCE_S, operation_timeout=PATIENCE_S)[topic].result(
                PATIENCE_S
            )
            break
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.TOPIC_ALREADY_EXISTS:  # created by an attempt whose answer was lost
                break
            # Errors of the client itself: librdkafka drops the connection of its bootstrap address when it learns ids.
            if code >= 0 or time.monotonic() > deadline:
                raise
    return [TopicPartition(topic, number) for number in range(partitions)]


class Load:
    """All clients of one round of trouble, and the history that they record."""

    def __init__(self, bootstrap: str, suffix: str, random: Random) -> None:
        self.bootstrap = bootstrap
        self.ledger = create_topic(bootstrap, f"ledger-{suffix}", 6)
        self.transfers = create_topic(bootstrap, f"transfers-{suffix}", 3)
        events: list[Event] = []
        self.history = History(frozenset(), events, transactional_topics=frozenset({f"transfers-{suffix}"}))
        self.producers = [LedgerProducer(f"producer-{n}-{suffix}", bootstrap, self.ledger, events) for n in range(2)]
        self.transactors = [
            Transactor(f"transactor-{n}-{suffix}", bootstrap, self.transfers, events, Random(random.random()))
            for n in range(2)
        ]
        group = f"group-{suffix}"
        self.readers = [
            Reader(f"reader-{suffix}", bootstrap, self.ledger, events),
            Reader(f"committed-{suffix}", bootstrap, self.transfers, events, read_committed=True),
        ]
        self.members = [Reader(f"member-{n}-{suffix}", bootstrap, self.ledger, events, group=group) for n in range(2)]
        self.observer = Observer(f"observer-{suffix}", bootstrap, [*self.ledger, *self.transfers], events)
        self.group = group

    @property
    def workers(self) -> list[Worker]:
        return [*self.producers, *self.transactors, *self.readers, *self.members, self.observer]

    def list_told(self) -> list[str]:
        """What librdkafka has told of the state of producers and readers."""
        logs = [(each.name, each.client_log) for each in self.producers]
        logs += [(each.name, each.client_log) for each in (*self.readers, *self.members)]
        return [line for name, log in logs for line in (name, *log.lines)]

    def start(self) -> None:
        for worker in self.workers:
            worker.start()

    def await_progress(self) -> None:
        """Wait until every producer has more acknowledged, and every transactor has committed once more."""
        before = [producer.acknowledged + 100 for producer in self.producers]
        committed = [transactor.committed + 1 for transactor in self.transactors]
        wait_for(
            lambda: (
                all(producer.acknowledged >= wanted for producer, wanted in zip(self.producers, before, strict=True))
                and all(each.committed >= wanted for each, wanted in zip(self.transactors, committed, strict=True))
            ),
            "clients go on",
            self.describe,
        )

    def finish(self) -> None:
        """End all clients in peace, wait until readers have read everything, and read the final logs."""
        for worker in (*self.producers, *self.transactors):
            worker.stop()
        for worker in (*self.producers, *self.transactors):
            worker.join()
        for partition in (*self.ledger, *self.transfers):
            self.history.final[partition] = read_log(self.bootstrap, partition, committed=False)
        for partition in self.transfers:
            self.history.committed[partition] = read_log(self.bootstrap, partition, committed=True)
        self._await_readers()
        for worker in (*self.readers, *self.members, self.observer):
            worker.stop()
        for worker in (*self.readers, *self.members, self.observer):
            worker.join()

    def delete_topics(self, others: Sequence[str] = ()) -> None:
        """Make room on the brokers' small disks for the next round."""
        topics = [self.ledger[0].topic, self.transfers[0].topic, *others]
        admin = AdminClient(QUIET | {"bootstrap.servers": self.bootstrap})
        asked = admin.delete_topics(topics, request_timeout=PATIENCE_S, operation_timeout=PATIENCE_S)
        for future in asked.values():
            future.result(PATIENCE_S)

    def describe(self) -> str:
        acknowledged = {each.name: each.acknowledged for each in self.producers}
        committed = {each.name: (each.committed, each.restarts[-3:]) for each in self.transactors}
        failures = {each.name: each.failures[:3] for each in self.workers if each.failures}
        replaced = {each.name: each.replaced for each in (*self.readers, *self.members) if each.replaced}
        return f"acknowledged {acknowledged}, committed {committed}, replaced {replaced}, failures {failures}"

    def _await_readers(self) -> None:
        ends = {partition: log[-1][0] + 1 if log else 0 for partition, log in self.history.final.items()}
        shown = {partition: log[-1][0] + 1 if log else 0 for partition, log in self.history.committed.items()}
        plain, committed = self.readers

        def are_done() -> bool:
            return (
                all(plain.positions[each] >= ends[each] for each in self.ledger)
                and all(committed.positions[each] >= shown[each] for each in self.transfers)
                and all(max(member.positions[each] for member in self.members) >= ends[each] for each in self.ledger)
            )

        def behind() -> str:
            positions = {reader.name: reader.positions for reader in (*self.readers, *self.members)}
            return f"ends {ends}, committed ends {shown}, positions {positions}; {self.describe()}"

        wait_for(are_done, "readers reach the end", behind)


def wait_for(is_so: Callable[[], bool], what: str, describe: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_S} s: {describe()}"
        time.sleep(0.1)


def read_log(bootstrap: str, partition: TopicPartition, *, committed: bool) -> Log:
    """The whole log of a partition. With `committed`, only what read_committed shows, up to the last stable offset."""
    consumer = Consumer(
        QUIET
        | {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    found: list[tuple[int, bytes]] = []
    deadline = time.monotonic() + PATIENCE_S
    try:
        consumer.assign([Position(partition.topic, partition.partition, OFFSET_BEGINNING)])
        while time.monotonic() < deadline:
            for message in consumer.consume(1000, 1.0):
                error = message.error()
                if error is None:
                    found.append((message.offset() or 0, message.value() or b""))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return tuple(found)
    finally:
        consumer.close()
    raise AssertionError(f"{partition}: the end was not reached within {PATIENCE_S} s")
