"""kafka-python."""

from collections.abc import Sequence

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.clients import logins
from tests.clients.messages import Delivery, Sent
from tests.patience import PATIENCE_S

NULL_HEADERS = False


def send(bootstrap: str, topic: str, messages: Sequence[Sent], delivery: Delivery) -> None:
    producer = KafkaProducer(
        **logins.kafka_python(bootstrap),
        compression_type=None if delivery.codec == "none" else delivery.codec,
        enable_idempotence=delivery.idempotent,
        acks="all" if delivery.acks == -1 else delivery.acks,
        linger_ms=5,
        max_request_size=20_000_000,
    )
    try:
        sending = [
            producer.send(
                topic,
                value=message.value,
                key=message.key,
                partition=message.partition,
                timestamp_ms=message.timestamp,
                headers=list(message.headers),
            )
            for message in messages
        ]
        producer.flush(PATIENCE_S)
        for future in sending:
            future.get(PATIENCE_S)
    finally:
        producer.close(PATIENCE_S)


def receive(bootstrap: str, topic: str, partitions: int, count: int) -> list[Sent]:
    consumer = KafkaConsumer(
        **logins.kafka_python(bootstrap), fetch_max_wait_ms=50, consumer_timeout_ms=PATIENCE_S * 1000
    )
    try:
        assigned = [TopicPartition(topic, index) for index in range(partitions)]
        consumer.assign(assigned)
        consumer.seek_to_beginning(*assigned)
        found: list[Sent] = []
        while len(found) < count:
            for partition, records in consumer.poll(1000).items():
                found += [
                    Sent(partition.partition, record.key, record.value, tuple(record.headers), record.timestamp)
                    for record in records
                ]
        return found
    finally:
        consumer.close()
