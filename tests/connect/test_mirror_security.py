"""A mirror between two clusters with logins and ACLs, one of them over TLS, without Spark."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

import ottla.testing
from ottla.client.client import Client
from ottla.connect.connectors.mirror.mirror_source import MirrorSource
from ottla.testing import LocalBroker
from tests.connect.local_runs import run_locally
from tests.connect.mirrors import A_DAY_MS, COPIED_ACLS, QUICK, add_acls, list_acls
from tests.patience import PATIENCE_S

IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


@pytest.fixture(scope="module")
def source() -> Iterator[LocalBroker]:
    with ottla.testing.broker(security="sasl_ssl", acls=True, log_initial_task_delay_ms=A_DAY_MS) as running:
        yield running


@pytest.fixture(scope="module")
def target() -> Iterator[LocalBroker]:
    with ottla.testing.broker(security="sasl_plaintext", acls=True, log_initial_task_delay_ms=A_DAY_MS) as running:
        yield running


def produce(settings: dict[str, str], topic: str, *values: str) -> list[KafkaError | None]:
    errors: list[KafkaError | None] = []

    def remember(error: KafkaError | None, _: Message) -> None:
        errors.append(error)

    producer = Producer(settings)
    for value in values:
        producer.produce(topic, value, on_delivery=remember)
    assert producer.flush(PATIENCE_S) == 0
    return errors


def consume(settings: dict[str, str], topic: str, count: int) -> list[str]:
    consumer = Consumer({**settings, "group.id": "readers", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        found: list[str] = []
        while len(found) < count:
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            assert message.error() is None, message.error()
            found.append((message.value() or b"").decode())
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize(("topic", "policy", "mirrored"), [("guarded", "", "A.guarded"), ("same", IDENTITY, "same")])
def test_rights_follow_the_topic(
    source: LocalBroker, target: LocalBroker, topic: str, policy: str, mirrored: str
) -> None:
    """Who may read the topic may read its copy. Nobody may write to it because of that, and what is denied stays so."""
    here, there = Client(source.client_settings), Client(target.client_settings)
    source.create_topic(topic)
    add_acls(here, topic)
    assert produce(source.client_settings, topic, "one", "two") == [None, None]
    config = {
        "name": f"secured-{topic}",
        "source.cluster.alias": "A",
        "target.cluster.alias": "B",
        "topics": topic,
        **QUICK,
        **{f"source.cluster.{name}": text for name, text in source.java_settings.items()},
        **({"replication.policy.class": policy} if policy else {}),
    }
    assert run_locally(target, MirrorSource, config) is None
    assert list_acls(there, mirrored) == COPIED_ACLS
    users = {name: target.create_user(name) for name in ("reader", "writer")}
    add_acls(there, "readers", is_group=True)
    assert consume(users["reader"], mirrored, 2) == ["one", "two"]
    [refused] = produce(users["writer"], mirrored, "three")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    for client in (here, there):
        client.close()
