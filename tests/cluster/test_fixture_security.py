"""`ottla.testing.cluster(security=..., acls=True)`: brokers log in at each other, users have rights, quotas hold."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, ThrottleEvent, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

import ottla.testing
from ottla.cluster.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.testing import LocalCluster
from tests.clients.confluent import take_messages
from tests.cluster.coordination import find_leader, open_client, wait_until_in_sync
from tests.patience import PATIENCE_S
from tests.scenarios.quota_requests import alter

QUIET: dict[str, Any] = {"log_level": 0, "error_cb": lambda error: None, "reconnect.backoff.max.ms": 100}
RIGHTS = [
    (ResourceType.TOPIC, "orders", AclOperation.READ),
    (ResourceType.TOPIC, "orders", AclOperation.WRITE),
    (ResourceType.TOPIC, "pictures", AclOperation.WRITE),
    (ResourceType.GROUP, "shop", AclOperation.READ),
    (ResourceType.TRANSACTIONAL_ID, "shop-1", AclOperation.WRITE),
]


@pytest.fixture(scope="module", params=["sasl_ssl", "ssl"])
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    with ottla.testing.cluster(brokers=3, security=request.param, acls=True, quota_window_num=2) as cluster:
        for topic in ("orders", "pictures"):
            cluster.create_topic(topic, partitions=3, min_insync_replicas=2)
        yield cluster


@pytest.fixture(scope="module")
def alice(cluster: LocalCluster) -> dict[str, Any]:
    """A client of a user who may use the topics, one group and one transactional id, and nothing else."""
    settings = cluster.create_user("alice")
    admin = AdminClient({**cluster.client_settings, **QUIET})
    everything = (ResourcePatternType.LITERAL, name_alice(cluster), "*")
    rules = [AclBinding(kind, name, *everything, what, AclPermissionType.ALLOW) for kind, name, what in RIGHTS]
    for created in admin.create_acls(rules).values():
        created.result(PATIENCE_S)
    return {**settings, **QUIET}


def name_alice(cluster: LocalCluster) -> str:
    security = cluster.brokers[0].security
    assert security is not None
    return security.name_principal("alice")


def send(producer: Producer, name: bytes) -> set[bytes]:
    """Three records for each partition."""
    failures: list[KafkaError] = []
    values = [b"%s %d" % (name, number) for number in range(9)]

    def note(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    for number, value in enumerate(values):
        producer.produce("orders", value, partition=number % 3, on_delivery=note)
    assert (producer.flush(PATIENCE_S), failures) == (0, [])
    return set(values)


def test_a_quota_that_is_set_at_one_broker_holds_at_all(cluster: LocalCluster, alice: dict[str, Any]) -> None:
    """Quotas of a user are found by the name of the login. Every broker throttles, not only the one that was asked.
    Each of them leads one partition, because none was killed yet."""
    events: list[ThrottleEvent] = []
    producer = Producer({**alice, "throttle_cb": events.append, "linger.ms": 0})
    user = name_alice(cluster).removeprefix("User:")
    with open_client(cluster) as client:
        (entry,) = client.ask_any(alter({"user": user}, producer_byte_rate=100_000.0)).entries
        assert entry.error_code == 0
        while {event.broker_id for event in events if event.throttle_time > 0} != {1, 2, 3}:
            for partition in range(3):
                producer.produce("pictures", bytes(60_000), partition=partition)
            assert producer.flush(PATIENCE_S) == 0
            producer.poll(0)
        (entry,) = client.ask_any(alter({"user": user}, producer_byte_rate=None)).entries
        assert entry.error_code == 0


def test_records_groups_and_transactions_survive_the_loss_of_a_leader(
    cluster: LocalCluster, alice: dict[str, Any]
) -> None:
    """Followers log in at leaders, or nothing would be in sync; coordinators log in to write markers. A user with
    rights to a topic, a group and a transactional id needs no others, also at the brokers that take over."""
    consumer = Consumer(
        {**alice, "group.id": "shop", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    )
    consumer.subscribe(["orders"])
    producer = Producer({**alice, "acks": "all"})
    transactional = Producer({**alice, "transactional.id": "shop-1"})
    try:
        sent = send(producer, b"plain")
        assert {message.value() for message in take_messages(consumer, 9)} == sent
        transactional.init_transactions(PATIENCE_S)
        transactional.begin_transaction()
        send(transactional, b"aborted")
        transactional.abort_transaction(PATIENCE_S)
        transactional.begin_transaction()
        sent = send(transactional, b"committed")
        done = [TopicPartition("orders", partition, 3) for partition in range(3)]
        transactional.send_offsets_to_transaction(done, consumer.consumer_group_metadata(), PATIENCE_S)
        transactional.commit_transaction(PATIENCE_S)
        assert {message.value() for message in take_messages(consumer, 9)} == sent
        assert [each.offset for each in consumer.committed(done, PATIENCE_S)] == [3, 3, 3]
        wait_until_in_sync(cluster, "orders", CONSUMER_OFFSETS, TRANSACTION_STATE)
        leader = find_leader(cluster, "orders", 0)
        leader.kill()
        sent = send(producer, b"later")
        assert {message.value() for message in take_messages(consumer, 9)} == sent
        leader.restart()
        wait_until_in_sync(cluster, "orders", CONSUMER_OFFSETS, TRANSACTION_STATE)
    finally:
        consumer.close()
