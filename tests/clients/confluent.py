"""confluent-kafka (librdkafka)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from tests.clients import logins
from tests.clients.messages import Delivery, Sent
from tests.patience import PATIENCE_S

NULL_HEADERS = True


def send(bootstrap: str, topic: str, messages: Sequence[Sent], delivery: Delivery) -> None:
    failures: list[KafkaError] = []
    producer = Producer(
        {
            **logins.librdkafka(bootstrap),
            "compression.type": delivery.codec,
            "enable.idempotence": delivery.idempotent,
            "acks": delivery.acks,
            "linger.ms": 5,
            "batch.num.messages": 50,
            "message.max.bytes": 20_000_000,
        }
    )

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    for message in messages:
        producer.produce(
            topic,
            message.value,
            message.key,
            message.partition,
            timestamp=message.timestamp,
            headers=list(message.headers),
            on_delivery=delivered,
        )
        producer.poll(0)
    left = producer.flush(PATIENCE_S)
    assert (left, failures) == (0, [])


@contextmanager
def open_consumer(bootstrap: str) -> Iterator[Consumer]:
    """A consumer without a group. librdkafka needs a group name all the same."""
    opened = Consumer(
        {
            **logins.librdkafka(bootstrap),
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,  # the tests kill the broker themselves
        }
    )
    try:
        yield opened
    finally:
        opened.close()


def take_messages(opened: Consumer, count: int) -> list[Message]:
    """Receive `count` messages of the assigned partitions in time. Raises an error that comes instead of a message."""
    found: list[Message] = []
    while len(found) < count:
        came = opened.consume(count - len(found), PATIENCE_S)
        assert came, f"{len(found)} of {count} messages came"
        for message in came:
            assert message.error() is None, message.error()
        found.extend(came)
    return found


def receive(bootstrap: str, topic: str, partitions: int, count: int) -> list[Sent]:
    with open_consumer(bootstrap) as opened:
        opened.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
        return [convert_message(message) for message in take_messages(opened, count)]


def convert_message(message: Message) -> Sent:
    partition = message.partition()
    assert partition is not None
    headers: Any = message.headers() or ()
    return Sent(partition, _bytes(message.key()), _bytes(message.value()), tuple(headers), message.timestamp()[1])


def _bytes(part: str | bytes | None) -> bytes | None:
    assert not isinstance(part, str)
    return part
