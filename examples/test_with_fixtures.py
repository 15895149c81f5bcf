"""The pytest fixtures: a broker for one test, or one that all tests share. pytest finds them without an import.

pytest examples/test_with_fixtures.py
"""

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from ottla.testing import LocalBroker, broker

EIGHT_DAYS_MS = 8 * 24 * 60 * 60 * 1000


def send(bootstrap: str, topic: str, value: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value)
    producer.flush()


def read(bootstrap: str, topic: str) -> list[Message]:
    """Reads all records of partition 0."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "example", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = []
    while (message := consumer.poll(10)) is not None and message.error() is None:
        messages.append(message)
    consumer.close()
    return messages


def test_a_topic_of_my_own(ottla_session_broker: LocalBroker) -> None:
    # All tests of the session share this broker, so each test needs its own topic.
    ottla_session_broker.create_topic("greetings", partitions=3)
    send(ottla_session_broker.bootstrap, "greetings", "hello")


def test_eight_days_later(ottla_broker: LocalBroker) -> None:
    # The test moves the broker's clock, so it needs a broker of its own. The client's clock stays as it is.
    ottla_broker.create_topic("orders", message_timestamp_type="LogAppendTime", retention_ms=-1)
    send(ottla_broker.bootstrap, "orders", "an old order")
    ottla_broker.advance(days=8)
    send(ottla_broker.bootstrap, "orders", "a new order")
    old, new = read(ottla_broker.bootstrap, "orders")
    assert new.timestamp()[1] - old.timestamp()[1] >= EIGHT_DAYS_MS


def test_the_same_beginning_twice(ottla_broker: LocalBroker) -> None:
    # Data that takes long to prepare is prepared once. Every broker that starts from the snapshot has it.
    ottla_broker.create_topic("orders")
    send(ottla_broker.bootstrap, "orders", "prepared")
    prepared = ottla_broker.snapshot()
    for _ in range(2):
        with broker(snapshot=prepared) as other:
            send(other.bootstrap, "orders", "added")
            assert [message.value() for message in read(other.bootstrap, "orders")] == [b"prepared", b"added"]
