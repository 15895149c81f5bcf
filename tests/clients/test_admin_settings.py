"""Settings and partitions through the admin clients of the libraries: described, altered, added."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AiokafkaPartitions
from aiokafka.admin.config_resource import ConfigResource as AiokafkaResource
from aiokafka.admin.config_resource import ConfigResourceType as AiokafkaKind
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewPartitions
from kafka.admin import ConfigResource as KafkaPythonResource
from kafka.admin import ConfigResourceType as KafkaPythonKind
from kafka.admin import KafkaAdminClient

from ottla.testing import LocalBroker
from tests.clients import logins
from tests.clients.test_admin import confluent_topics
from tests.patience import PATIENCE_S

RETENTION = "retention.ms"


# --- confluent-kafka ---


def confluent_describe(bootstrap: str, topic: str) -> str:
    admin = AdminClient(logins.librdkafka(bootstrap))
    (asked,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return str(asked.result(PATIENCE_S)[RETENTION].value)


def confluent_alter(bootstrap: str, topic: str, value: str) -> None:
    admin = AdminClient(logins.librdkafka(bootstrap))
    entry = ConfigEntry(RETENTION, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    (altered,) = admin.incremental_alter_configs([resource]).values()
    altered.result(PATIENCE_S)


def confluent_grow(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient(logins.librdkafka(bootstrap))
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(PATIENCE_S)


# --- aiokafka ---


async def _aiokafka(bootstrap: str, call: str, *arguments: object) -> list[object]:
    admin = AIOKafkaAdminClient(**logins.aiokafka(bootstrap))
    await admin.start()
    try:
        answer = await getattr(admin, call)(*arguments)
        return answer if isinstance(answer, list) else [answer]
    finally:
        await admin.close()


def aiokafka_describe(bootstrap: str, topic: str) -> str:
    resource = AiokafkaResource(AiokafkaKind.TOPIC, topic, {RETENTION: None})
    (answer,) = asyncio.run(_aiokafka(bootstrap, "describe_configs", [resource]))
    ((code, message, _, _, (entry,)),) = answer.resources  # type: ignore[attr-defined]
    assert code == 0, message
    return str(entry[1])


def aiokafka_alter(bootstrap: str, topic: str, value: str) -> None:
    resource = AiokafkaResource(AiokafkaKind.TOPIC, topic, {RETENTION: value})
    (answer,) = asyncio.run(_aiokafka(bootstrap, "alter_configs", [resource]))
    ((code, message, *_),) = answer.resources  # type: ignore[attr-defined]
    assert code == 0, message


def aiokafka_grow(bootstrap: str, topic: str, partitions: int) -> None:
    (answer,) = asyncio.run(_aiokafka(bootstrap, "create_partitions", {topic: AiokafkaPartitions(partitions)}))
    ((_, code, message),) = answer.topic_errors  # type: ignore[attr-defined]
    assert code == 0, message


# --- kafka-python ---


def kafka_python_describe(bootstrap: str, topic: str) -> str:
    admin = KafkaAdminClient(**logins.kafka_python(bootstrap))
    try:
        found = admin.describe_configs([KafkaPythonResource(KafkaPythonKind.TOPIC, topic)])
    finally:
        admin.close()
    return str(found["topic"][topic][RETENTION]["value"])


def kafka_python_alter(bootstrap: str, topic: str, value: str) -> None:
    admin = KafkaAdminClient(**logins.kafka_python(bootstrap))
    try:
        admin.alter_configs([KafkaPythonResource(KafkaPythonKind.TOPIC, topic, {RETENTION: value})])
    finally:
        admin.close()


def kafka_python_grow(bootstrap: str, topic: str, partitions: int) -> None:
    admin = KafkaAdminClient(**logins.kafka_python(bootstrap))
    try:
        admin.create_partitions({topic: partitions})
    finally:
        admin.close()


class Admin(NamedTuple):
    describe: Callable[[str, str], str]
    """The topic's retention.ms."""
    alter: Callable[[str, str, str], None]
    grow: Callable[[str, str, int], None]


ADMINS = {
    "confluent": Admin(confluent_describe, confluent_alter, confluent_grow),
    "aiokafka": Admin(aiokafka_describe, aiokafka_alter, aiokafka_grow),
    "kafka-python": Admin(kafka_python_describe, kafka_python_alter, kafka_python_grow),
}


@pytest.mark.parametrize("library", ADMINS)
def test_settings_are_described_and_altered(library: str, broker: LocalBroker, topic: str) -> None:
    # A setting that one library has changed is described by every library.
    broker.create_topic(topic, retention_ms=60_000)
    ADMINS[library].alter(broker.bootstrap, topic, "70000")
    assert [admin.describe(broker.bootstrap, topic) for admin in ADMINS.values()] == ["70000"] * len(ADMINS)


@pytest.mark.parametrize("library", ADMINS)
def test_partitions_can_be_added_but_not_removed(library: str, broker: LocalBroker, topic: str) -> None:
    # New partitions are visible as soon as the call returns. Each library raises an error if there would be fewer.
    broker.create_topic(topic, 2)
    ADMINS[library].grow(broker.bootstrap, topic, 4)
    assert confluent_topics(broker.bootstrap)[topic] == 4
    with pytest.raises(Exception, match=r"(?i)invalid.?partitions|would not be an increase|fewer|has 4"):
        ADMINS[library].grow(broker.bootstrap, topic, 3)
