"""aiokafka."""

import asyncio
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.clients import logins
from tests.clients.messages import Delivery, Sent
from tests.patience import PATIENCE_S

NULL_HEADERS = True


def send(bootstrap: str, topic: str, messages: Sequence[Sent], delivery: Delivery) -> None:
    asyncio.run(_send(bootstrap, topic, messages, delivery))


async def _send(bootstrap: str, topic: str, messages: Sequence[Sent], delivery: Delivery) -> None:
    producer = AIOKafkaProducer(
        **logins.aiokafka(bootstrap),
        compression_type=None if delivery.codec == "none" else delivery.codec,
        enable_idempotence=delivery.idempotent,
        acks="all" if delivery.acks == -1 else delivery.acks,
        linger_ms=5,
        max_request_size=20_000_000,
    )
    async with asyncio.timeout(PATIENCE_S), producer:
        sending = [
            await producer.send(
                topic,
                message.value,
                message.key,
                message.partition,
                timestamp_ms=message.timestamp,
                headers=list(message.headers),
            )
            for message in messages
        ]
        await asyncio.gather(*sending)


def receive(bootstrap: str, topic: str, partitions: int, count: int) -> list[Sent]:
    return asyncio.run(_receive(bootstrap, topic, partitions, count))


async def _receive(bootstrap: str, topic: str, partitions: int, count: int) -> list[Sent]:
    found: list[Sent] = []
    consumer = AIOKafkaConsumer(**logins.aiokafka(bootstrap), fetch_max_wait_ms=50, enable_auto_commit=False)
    assigned = [TopicPartition(topic, index) for index in range(partitions)]
    async with asyncio.timeout(PATIENCE_S), consumer:
        consumer.assign(assigned)
        await consumer.seek_to_beginning(*assigned)
        while len(found) < count:
            for partition, records in (await consumer.getmany(timeout_ms=1000)).items():
                found += [
                    Sent(partition.partition, record.key, record.value, tuple(record.headers), record.timestamp)
                    for record in records
                ]
    return found
