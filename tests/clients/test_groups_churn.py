"""A group under churn: members of every library come, go, die and return, and the broker dies too, while records flow.

OTTLA_GROUP_RECORDS=500000 how many records; `make churn` sets it
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from ottla.testing import LocalBroker
from tests.clients import logins
from tests.clients.group_member import CONSUMER, SESSION_MS
from tests.clients.groups import TestedGroup
from tests.patience import PATIENCE_MS, PATIENCE_S

RECORDS = int(os.environ.get("OTTLA_GROUP_RECORDS", "6000"))
EVENTS = max(6, RECORDS // 10_000)
PARTITIONS = 8
MEMBERS_MAX = 4
LIBRARIES = ("confluent", "aiokafka", "kafka_python")
BOTH = "both"
"""Members of the classic and of the consumer protocol. The group is converted from one to the other and back."""
SETTINGS: dict[str, Any] = {
    "group_initial_rebalance_delay_ms": 200,
    "group_min_session_timeout_ms": 1000,
    "group_consumer_min_heartbeat_interval_ms": 100,
    "group_consumer_heartbeat_interval_ms": 250,
    "group_consumer_min_session_timeout_ms": 1000,
    "group_consumer_session_timeout_ms": SESSION_MS,
}


class Stream:
    """A producer in the background, which sends as many records as it is told, in order and without loss."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.sent = 0
        self._topic = topic
        self._failures: list[str] = []
        self._producer = Producer(
            {
                **logins.librdkafka(bootstrap),
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": PATIENCE_MS,
                "queue.buffering.max.messages": 2_000_000,
                "log_level": 0,
            }
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def send(self, count: int) -> None:
        for number in range(self.sent, self.sent + count):
            self._producer.produce(
                self._topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._handle_delivery
            )
        self.sent += count

    def ends(self) -> dict[int, int]:
        return {index: len(range(index, self.sent, PARTITIONS)) for index in range(PARTITIONS)}

    def close(self) -> None:
        left = self._producer.flush(PATIENCE_S)
        self._ended.set()
        self._thread.join()
        assert (left, self._failures) == (0, [])

    def _handle_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failures.append(str(error))

    def _poll(self) -> None:
        while not self._ended.is_set():
            self._producer.poll(0.1)


class Churn:
    """Runs one random event after the other."""

    def __init__(self, random: Random, broker: LocalBroker, group: TestedGroup, assignor: str) -> None:
        self._random, self._broker, self._group, self._assignor = random, broker, group, assignor
        self._instances = [f"static-{number}" for number in range(MEMBERS_MAX)]

    def happen(self) -> None:
        events: list[Callable[[], None]] = [self._break_broker]
        if len(self._group.members) < MEMBERS_MAX:
            events += [self.join] * 4
        if len(self._group.members) > 1:
            events += [self._kill_member, self._end_member, self._restart_member]
        self._random.choice(events)()

    def join(self) -> None:
        library = self._random.choice(LIBRARIES if self._assignor == "range" else LIBRARIES[:1])
        assignor = self._assignor
        if assignor == BOTH:
            assignor = self._random.choice(("cooperative-sticky", CONSUMER))
        taken = {member.membership.instance for member in self._group.members}
        free = [each for each in self._instances if each not in taken]
        # A static member of the consumer protocol that was killed cannot return before its session ends.
        static = self._assignor not in (CONSUMER, BOTH) and self._random.random() < 0.4
        self._group.start(library, assignor, self._random.choice(free) if static else None)

    def _kill_member(self) -> None:
        self._random.choice(self._group.members).kill()

    def _end_member(self) -> None:
        self._random.choice(self._group.members).terminate()

    def _restart_member(self) -> None:
        member = self._random.choice(self._group.members)
        member.kill()
        self._group.start(member.library, member.membership.assignor, member.membership.instance)

    def _break_broker(self) -> None:
        self._broker.kill()
        self._broker.restart()


@pytest.mark.parametrize(
    "assignor",
    ["range", BOTH, *(pytest.param(each, marks=pytest.mark.long) for each in ("cooperative-sticky", CONSUMER))],
)
def test_a_churning_group_reads_everything(assignor: str, tmp_path: Path, seed: int) -> None:
    # Whatever happens to members and broker, every record is read, and each assignment continues without a gap at the
    # last commit before it.
    random = Random(seed)
    with logins.run_broker(process=True, **SETTINGS) as broker:
        broker.create_topic("stream", PARTITIONS)
        with TestedGroup(tmp_path, broker.bootstrap, "churning", "stream", PARTITIONS) as group:
            churn = Churn(random, broker, group, assignor)
            stream = Stream(broker.bootstrap, "stream")
            try:
                churn.join()
                for number in range(1, EVENTS + 1):
                    stream.send(RECORDS // EVENTS)
                    churn.happen()
                    # Sometimes the group has time to settle, sometimes the next event comes in the middle of a
                    # rebalance.
                    if random.random() < 0.5:
                        group.await_committed(RECORDS // EVENTS * (number - 1))
            finally:
                stream.close()
            group.await_committed(stream.sent)
            again = group.check(stream.ends())
            print(f"{stream.sent} records, {EVENTS} events, {again} read again")
