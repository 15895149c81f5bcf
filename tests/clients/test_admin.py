"""Admin calls of the client libraries: topics made and removed, offsets by time and at both ends, metadata."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AiokafkaTopic
from aiokafka.structs import TopicPartition as AiokafkaPartition
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as KafkaPythonTopic

from ottla.testing import LocalBroker
from tests.clients import confluent, logins
from tests.clients.messages import Delivery, Sent
from tests.patience import PATIENCE_S

TIMES = (1000, 3000, 2000)
"""The timestamps of the records at offsets 0, 1 and 2."""


class Offsets(NamedTuple):
    """The offsets that a library returns for partition 0."""

    beginning: int
    end: int
    at: dict[int, int | None]
    """Time -> offset of the first record at or after it."""


# --- confluent-kafka ---


def confluent_create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient(logins.librdkafka(bootstrap))
    asked = NewTopic(topic, partitions, 1, config={"retention.ms": "60000"})
    admin.create_topics([asked], operation_timeout=PATIENCE_S)[topic].result(PATIENCE_S)


def confluent_topics(bootstrap: str) -> dict[str, int]:
    listed = AdminClient(logins.librdkafka(bootstrap)).list_topics(timeout=PATIENCE_S)
    return {name: len(found.partitions) for name, found in listed.topics.items()}


def confluent_delete(bootstrap: str, topic: str) -> None:
    admin = AdminClient(logins.librdkafka(bootstrap))  # kept in a variable, because it must outlive the answer
    admin.delete_topics([topic])[topic].result(PATIENCE_S)


def confluent_offsets(bootstrap: str, topic: str, times: tuple[int, ...]) -> Offsets:
    with confluent.open_consumer(bootstrap) as consumer:
        beginning, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)
        at = {}
        for time in times:
            (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, time)], PATIENCE_S)
            # the library returns the end if there is no such record
            at[time] = found.offset if 0 <= found.offset < end else None
        return Offsets(beginning, end, at)


# --- aiokafka ---


async def _aiokafka_admin(bootstrap: str, action: Callable[[AIOKafkaAdminClient], object]) -> object:
    admin = AIOKafkaAdminClient(**logins.aiokafka(bootstrap))
    await admin.start()
    try:
        return await action(admin)  # type: ignore[misc]
    finally:
        await admin.close()


def aiokafka_create(bootstrap: str, topic: str, partitions: int) -> None:
    asked = [AiokafkaTopic(topic, partitions, 1, topic_configs={"retention.ms": "60000"})]
    asyncio.run(_aiokafka_admin(bootstrap, lambda admin: admin.create_topics(asked)))


def aiokafka_topics(bootstrap: str) -> dict[str, int]:
    found = asyncio.run(_aiokafka_admin(bootstrap, lambda admin: admin.describe_topics()))
    assert isinstance(found, list)
    return {each["topic"]: len(each["partitions"]) for each in found}


def aiokafka_delete(bootstrap: str, topic: str) -> None:
    asyncio.run(_aiokafka_admin(bootstrap, lambda admin: admin.delete_topics([topic])))


def aiokafka_offsets(bootstrap: str, topic: str, times: tuple[int, ...]) -> Offsets:
    async def ask() -> Offsets:
        partition = AiokafkaPartition(topic, 0)
        async with AIOKafkaConsumer(**logins.aiokafka(bootstrap)) as consumer:
            at = {}
            for time in times:
                found = (await consumer.offsets_for_times({partition: time}))[partition]
                at[time] = found.offset if found is not None else None
            beginning = (await consumer.beginning_offsets([partition]))[partition]
            end = (await consumer.end_offsets([partition]))[partition]
            return Offsets(beginning, end, at)

    return asyncio.run(ask())


# --- kafka-python ---


def kafka_python_create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = KafkaAdminClient(**logins.kafka_python(bootstrap))
    try:
        admin.create_topics([KafkaPythonTopic(topic, partitions, 1, topic_configs={"retention.ms": "60000"})])
    finally:
        admin.close()


def kafka_python_topics(bootstrap: str) -> dict[str, int]:
    admin = KafkaAdminClient(**logins.kafka_python(bootstrap))
    try:
        return {each["name"]: len(each["partitions"]) for each in admin.describe_topics()}
    finally:
        admin.close()


def kafka_python_delete(bootstrap: str, topic: str) -> None:
    admin = KafkaAdminClient(**logins.kafka_python(bootstrap))
    try:
        admin.delete_topics([topic])
    finally:
        admin.close()


def kafka_python_offsets(bootstrap: str, topic: str, times: tuple[int, ...]) -> Offsets:
    consumer = KafkaConsumer(**logins.kafka_python(bootstrap))
    try:
        partition = KafkaPythonPartition(topic, 0)
        at = {}
        for time in times:
            found = consumer.offsets_for_times({partition: time})[partition]
            at[time] = found.offset if found is not None else None
        beginning = consumer.beginning_offsets([partition])[partition]
        return Offsets(beginning, consumer.end_offsets([partition])[partition], at)
    finally:
        consumer.close()


class Admin(NamedTuple):
    create: Callable[[str, str, int], None]
    topics: Callable[[str], dict[str, int]]
    delete: Callable[[str, str], None]
    offsets: Callable[[str, str, tuple[int, ...]], Offsets]


ADMINS = {
    "confluent": Admin(confluent_create, confluent_topics, confluent_delete, confluent_offsets),
    "aiokafka": Admin(aiokafka_create, aiokafka_topics, aiokafka_delete, aiokafka_offsets),
    "kafka-python": Admin(kafka_python_create, kafka_python_topics, kafka_python_delete, kafka_python_offsets),
}
ALL = pytest.mark.parametrize("library", ADMINS)


@ALL
def test_topics_are_created_listed_and_deleted(library: str, broker: LocalBroker, topic: str) -> None:
    # A topic has its partitions as soon as the call returns. A topic that is created again is empty.
    admin = ADMINS[library]
    for _ in range(2):
        admin.create(broker.bootstrap, topic, 3)
        assert admin.topics(broker.bootstrap)[topic] == 3
        sent = [Sent(2, b"key", b"value", (), 1000)]
        confluent.send(broker.bootstrap, topic, sent, Delivery())
        assert confluent.receive(broker.bootstrap, topic, 3, 1) == sent
        admin.delete(broker.bootstrap, topic)
        assert topic not in admin.topics(broker.bootstrap)


@pytest.mark.parametrize("library", ("confluent", "kafka-python"))
def test_an_error_code_becomes_the_error_of_the_library(library: str, broker: LocalBroker, topic: str) -> None:
    # A topic is created twice and deleted twice: each library raises its error for the code. (aiokafka raises none
    # here.)
    admin = ADMINS[library]
    admin.create(broker.bootstrap, topic, 1)
    with pytest.raises(Exception, match=r"(?i)already.?exists"):
        admin.create(broker.bootstrap, topic, 1)
    admin.delete(broker.bootstrap, topic)
    with pytest.raises(Exception, match=r"(?i)unknown.?topic"):
        admin.delete(broker.bootstrap, topic)


@ALL
def test_offsets_at_both_ends_and_by_time(library: str, broker: LocalBroker, topic: str) -> None:
    # A lookup by time finds the record with the lowest offset among those at or after it, and none after the last.
    broker.create_topic(topic)
    assert ADMINS[library].offsets(broker.bootstrap, topic, (0,)) == Offsets(0, 0, {0: None})
    for timestamp in TIMES:
        confluent.send(broker.bootstrap, topic, [Sent(0, b"key", b"value", (), timestamp)], Delivery())
    found = ADMINS[library].offsets(broker.bootstrap, topic, (0, 1000, 1001, 2000, 3000, 3001))
    assert found == Offsets(0, 3, {0: 0, 1000: 0, 1001: 1, 2000: 1, 3000: 1, 3001: None})
