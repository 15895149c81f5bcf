"""Checks that a producer delivers all records once and in order while its broker fails, drops connections and dies.

python examples/unreliable_broker.py
"""

from confluent_kafka import Consumer, Producer, TopicPartition

import ottla.testing

RECORDS = 100


def main() -> None:
    with ottla.testing.broker() as broker:
        broker.create_topic("orders")
        send_through_trouble(broker)
        numbers = read_back(broker.bootstrap)
    assert numbers == list(range(RECORDS)), numbers
    print(f"All {RECORDS} records arrived, in order and once.")


def send_through_trouble(broker: ottla.testing.LocalBroker) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 0, "reconnect.backoff.ms": 10}
    )
    for number in range(RECORDS):
        if number == 20:
            broker.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=3)
        if number == 40:
            broker.drop("Produce")
        if number == 50:
            broker.drop("Produce", answer_only=True)  # appended, but not acknowledged: the producer retries
        if number == 60:
            broker.kill()
            broker.restart()
        producer.produce("orders", str(number))
        producer.flush()


def read_back(bootstrap: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "example", "enable.partition.eof": True})
    consumer.assign([TopicPartition("orders", 0, 0)])
    numbers = []
    while (message := consumer.poll(10)) is not None and message.error() is None:
        numbers.append(int(message.value() or b""))
    consumer.close()
    return numbers


if __name__ == "__main__":
    main()
