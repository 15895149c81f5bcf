"""A member of a group as a program that may be killed: it reads, commits what it read, and reports both.

    python -m tests.clients.group_member LIBRARY BOOTSTRAP GROUP TOPIC ASSIGNOR SESSION_MS [INSTANCE]

With `consumer` for an assignor the member speaks the consumer protocol, and the coordinator assigns.

Events go to standard output in the format of Kafka's own VerifiableConsumer, one JSON object a line, so a reader of the
events need not know which client it is. SIGTERM ends the member in order: it leaves the group, unless it is static.
"""

import asyncio
import contextlib
import importlib
import json
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from tests.clients import logins

CONSUMER = "consumer"
"""Given instead of an assignor: the consumer protocol, in which members do not assign."""

SESSION_MS = 8000
"""How long the group waits for a member that was killed. A live member must not be silent for so long."""
HEARTBEAT_MS = 250
POLLED = 500

PartitionOffset = tuple[int, int]
"""Partition and offset."""


class Membership(NamedTuple):
    bootstrap: str
    group: str
    topic: str
    assignor: str
    session_ms: str = str(SESSION_MS)
    instance: str | None = None


class Ending:
    """Records whether SIGTERM has asked the program to end."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: Any) -> None:
        self.asked = True


def report(name: str, **details: Any) -> None:
    print(json.dumps({"timestamp": int(time.time() * 1000), "name": name, **details}), flush=True)


def report_partitions(name: str, partitions: Iterable[int]) -> None:
    report(name, partitions=[{"partition": partition} for partition in partitions])


def report_read(read: Sequence[PartitionOffset]) -> dict[int, int]:
    """Report records that were read. Returns the offset to commit for each partition."""
    offsets: dict[int, list[int]] = {}
    for partition, offset in read:
        offsets.setdefault(partition, []).append(offset)
    ranges = [
        {"partition": partition, "count": len(found), "minOffset": min(found), "maxOffset": max(found)}
        for partition, found in offsets.items()
    ]
    report("records_consumed", partitions=ranges)
    return {partition: max(found) + 1 for partition, found in offsets.items()}


class Progress:
    """The offsets that were read in the assigned partitions and are not committed yet."""

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {}

    def assigned(self, partitions: Iterable[int]) -> None:
        report_partitions("partitions_assigned", partitions)

    def revoked(self, partitions: Iterable[int]) -> None:
        partitions = list(partitions)
        report_partitions("partitions_revoked", partitions)
        for partition in partitions:
            self.offsets.pop(partition, None)

    def read(self, offsets: Sequence[PartitionOffset]) -> None:
        if offsets:
            self.offsets |= report_read(offsets)

    def committed(self, offsets: Mapping[int, int], error: Exception | None = None) -> None:
        """Report a commit that succeeded or failed. After a failure the offsets are kept and committed again, because a
        member may keep its partitions through a rebalance.

        The event has the offsets that were sent, not those that are left: a partition may have been revoked before the
        answer.
        """
        rows = [{"partition": partition, "offset": offset} for partition, offset in offsets.items()]
        report("offsets_committed", offsets=rows, success=error is None, **({"error": str(error)} if error else {}))
        if error is None:
            self.offsets = {}


def confluent(member: Membership) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    ending, progress = Ending(), Progress()
    classic = {
        "session.timeout.ms": int(member.session_ms),
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "partition.assignment.strategy": member.assignor,
    }
    consumer = Consumer(
        {
            **logins.librdkafka(member.bootstrap),
            "group.id": member.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
            **({"group.protocol": "consumer"} if member.assignor == CONSUMER else classic),
            **({"group.instance.id": member.instance} if member.instance else {}),
        }
    )
    consumer.subscribe(
        [member.topic],
        on_assign=lambda _, found: progress.assigned(each.partition for each in found),
        on_revoke=lambda _, found: progress.revoked(each.partition for each in found),
        on_lost=lambda _, found: progress.revoked(each.partition for each in found),
    )
    while not ending.asked:
        polled = consumer.consume(POLLED, 0.1)
        messages = [each for each in polled if each.error() is None]
        for error in (each.error() for each in polled):
            if error is not None and error.fatal():
                report("gives_up", error=str(error))
        progress.read([(each.partition() or 0, each.offset() or 0) for each in messages])
        if not progress.offsets:
            continue
        sent = dict(progress.offsets)
        positions = [TopicPartition(member.topic, *each) for each in sent.items()]
        try:
            consumer.commit(offsets=positions, asynchronous=False)
        except KafkaException as error:
            progress.committed(sent, error)
        else:
            progress.committed(sent)
    consumer.close()


def settings_of(member: Membership) -> dict[str, Any]:
    """The settings that have the same names in kafka-python and aiokafka, beside those of the login."""
    return {
        "group_id": member.group,
        "group_instance_id": member.instance,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "session_timeout_ms": int(member.session_ms),
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "fetch_max_wait_ms": 50,
    }


def kafka_python(member: Membership) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            progress.assigned(each.partition for each in assigned)

        def on_partitions_revoked(self, revoked: Any) -> None:
            progress.revoked(each.partition for each in revoked)

    ending, progress = Ending(), Progress()
    assignors = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
    consumer = KafkaConsumer(
        **logins.kafka_python(member.bootstrap),
        **settings_of(member),
        partition_assignment_strategy=[assignors[member.assignor]],
        reconnect_backoff_max_ms=100,
    )
    consumer.subscribe([member.topic], listener=Listener())
    while not ending.asked:
        polled = consumer.poll(100, max_records=POLLED)
        progress.read([(each.partition, each.offset) for records in polled.values() for each in records])
        if not progress.offsets:
            continue
        sent = dict(progress.offsets)
        positions = {
            TopicPartition(member.topic, partition): OffsetAndMetadata(offset, "", -1)
            for partition, offset in sent.items()
        }
        try:
            consumer.commit(positions)
        except KafkaError as error:
            progress.committed(sent, error)
        else:
            progress.committed(sent)
    consumer.close()


def aiokafka(member: Membership) -> None:
    asyncio.run(_aiokafka(member))


async def _aiokafka(member: Membership) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            progress.assigned(each.partition for each in assigned)

        def on_partitions_revoked(self, revoked: Any) -> None:
            progress.revoked(each.partition for each in revoked)

    assignors = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }
    ended, progress = asyncio.Event(), Progress()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    strategy = [assignors[member.assignor]]
    consumer = AIOKafkaConsumer(
        **logins.aiokafka(member.bootstrap), **settings_of(member), partition_assignment_strategy=strategy
    )
    consumer.subscribe([member.topic], listener=Listener())
    try:
        await _start(consumer, ended)
        while not ended.is_set():
            polled = await consumer.getmany(timeout_ms=100, max_records=POLLED)
            progress.read([(each.partition, each.offset) for records in polled.values() for each in records])
            if not progress.offsets:
                continue
            sent = dict(progress.offsets)
            try:
                await consumer.commit({TopicPartition(member.topic, partition): sent[partition] for partition in sent})
            except KafkaError as error:
                progress.committed(sent, error)
            else:
                progress.committed(sent)
    finally:
        # Stopped while a fetch waits to be sent again, aiokafka raises the cancellation of its own task.
        with contextlib.suppress(asyncio.CancelledError):
            await consumer.stop()


async def _start(consumer: Any, ended: asyncio.Event) -> None:
    """Start a consumer, again and again while the broker is down, as the other libraries do by themselves."""
    from aiokafka.errors import KafkaConnectionError

    while not ended.is_set():
        try:
            await consumer.start()
            return
        except KafkaConnectionError:
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), 0.2)


LIBRARIES: dict[str, Callable[[Membership], None]] = {
    "confluent": confluent,
    "kafka_python": kafka_python,
    "aiokafka": aiokafka,
}


IMPORTED = ("confluent_kafka", "kafka", "aiokafka")


def run(words: Sequence[str], connections: Sequence[int]) -> int:
    """The program, for `fork_server.py`."""
    importlib.reload(logins)  # they come with the environment
    library, *membership = words
    report("startup_complete")
    LIBRARIES[library](Membership(*membership))
    report("shutdown_complete")
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], ()))
