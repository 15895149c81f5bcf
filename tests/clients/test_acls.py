"""ACLs of users who log in over SASL_SSL, with librdkafka: allowed, denied, and revoked while a client is connected."""

import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

import ottla.testing
from ottla.testing import LocalBroker
from tests.clients.confluent import take_messages
from tests.patience import PATIENCE_S

QUIET: dict[str, Any] = {"log_level": 0, "error_cb": lambda error: None}
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
DENIED = KafkaError.TOPIC_AUTHORIZATION_FAILED
FAST = {"topic.metadata.refresh.interval.ms": 100}
"""librdkafka learns by its metadata that a topic may be used again."""

_numbers = count()


class Secured:
    """A broker with two users, and its administrator."""

    def __init__(self, broker: LocalBroker) -> None:
        self.broker = broker
        self.users: dict[str, dict[str, Any]] = {
            name: {**broker.create_user(name), **QUIET} for name in ("alice", "bob")
        }
        self._admin = AdminClient({**broker.client_settings, **QUIET})

    def create_topic(self, prefix: str = "orders") -> str:
        name = f"{prefix}-{next(_numbers)}"
        self.broker.create_topic(name)
        return name

    def add(self, user: str, *rule: Any) -> None:
        binding = build_rule(user, *rule)
        self._admin.create_acls([binding])[binding].result(PATIENCE_S)

    def remove(self, user: str, operation: AclOperation, resource: ResourceType, name: str) -> None:
        asked = build_rule(user, operation, resource, name, kind=AclBindingFilter)
        assert len(self._admin.delete_acls([asked])[asked].result(PATIENCE_S)) == 1


def build_rule(
    user: str,
    operation: AclOperation,
    resource: ResourceType,
    name: str,
    permission: AclPermissionType = ALLOW,
    pattern: ResourcePatternType = LITERAL,
    kind: Any = AclBinding,
) -> Any:
    return kind(resource, name, pattern, f"User:{user}", "*", operation, permission)


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with ottla.testing.broker(security="sasl_ssl", acls=True) as broker:
        yield Secured(broker)


def send(producer: Producer, topic: str, value: bytes = b"v") -> KafkaError | None:
    """Send one record. Returns its error."""
    found: list[KafkaError | None] = []

    def note(error: KafkaError | None, _: Message) -> None:
        found.append(error)

    producer.produce(topic, value, on_delivery=note)
    assert producer.flush(PATIENCE_S) == 0
    (error,) = found
    return error


def send_as(secured: Secured, user: str, topic: str) -> int:
    """The error code of one record by a new client; 0 if it was taken."""
    error = send(Producer(secured.users[user]), topic)
    return 0 if error is None else int(error.code())


def list_topics(secured: Secured, user: str) -> set[str]:
    return set(AdminClient(secured.users[user]).list_topics(timeout=PATIENCE_S).topics)


def find_error(consumer: Consumer) -> int:
    """Poll until an error comes."""
    while True:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if (error := message.error()) is not None:
            return int(error.code())


def test_one_user_is_allowed_and_the_other_is_not(secured: Secured) -> None:
    topic = secured.create_topic()
    assert send_as(secured, "alice", topic) == DENIED
    secured.add("alice", WRITE, TOPIC, topic)
    assert send_as(secured, "alice", topic) == 0
    assert send_as(secured, "bob", topic) == DENIED
    assert (topic in list_topics(secured, "alice"), topic in list_topics(secured, "bob")) == (True, False)
    # A topic that is not there looks the same to somebody without rights.
    assert send_as(secured, "bob", "absent") == DENIED


def test_rules_for_everybody_prefixes_and_denials(secured: Secured) -> None:
    topic = secured.create_topic("shop")
    secured.add("*", WRITE, TOPIC, "shop-", ALLOW, PREFIXED)
    assert [send_as(secured, user, topic) for user in ("alice", "bob")] == [0, 0]
    secured.add("bob", WRITE, TOPIC, topic, DENY)
    assert [send_as(secured, user, topic) for user in ("alice", "bob")] == [0, DENIED]


def test_a_revocation_counts_for_an_open_connection(secured: Secured) -> None:
    """The clients stay connected. librdkafka asks again for a topic that it was refused."""
    topic = secured.create_topic()
    secured.add("alice", READ, TOPIC, topic)
    secured.add("alice", WRITE, TOPIC, topic)
    secured.add("alice", READ, GROUP, "unused")
    producer = Producer({**secured.users["alice"], **FAST})
    consumer = Consumer({**secured.users["alice"], **FAST, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    try:
        assert send(producer, topic, b"first") is None
        assert [message.value() for message in take_messages(consumer, 1)] == [b"first"]
        secured.remove("alice", READ, TOPIC, topic)
        assert find_error(consumer) == DENIED  # the fetch that waited at the broker too
        assert send(producer, topic, b"second") is None
        secured.remove("alice", WRITE, TOPIC, topic)
        error = send(producer, topic, b"never")
        assert error is not None and error.code() == DENIED
        secured.add("alice", READ, TOPIC, topic)
        while (message := consumer.poll(PATIENCE_S)) is None or message.error() is not None:
            assert message is None or message.error().code() == DENIED  # type: ignore[union-attr]
        assert message.value() == b"second"
    finally:
        consumer.close()


def test_a_group_needs_rights_of_its_own(secured: Secured) -> None:
    topic = secured.create_topic()
    secured.add("alice", READ, TOPIC, topic)
    secured.add("alice", WRITE, TOPIC, topic)
    assert send_as(secured, "alice", topic) == 0
    settings = {**secured.users["alice"], "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic])
    try:
        assert find_error(consumer) == KafkaError.GROUP_AUTHORIZATION_FAILED
        secured.add("alice", READ, GROUP, "readers")
        while (message := consumer.poll(PATIENCE_S)) is None or message.error() is not None:
            pass
        consumer.commit(message=message, asynchronous=False)
        secured.remove("alice", READ, GROUP, "readers")
        with pytest.raises(KafkaException) as raised:
            consumer.commit(message=message, asynchronous=False)
        assert raised.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    finally:
        consumer.close()
    for settings, expected in ((secured.users["bob"], False), (secured.broker.client_settings, True)):
        admin = AdminClient({**settings, **QUIET})
        listed = admin.list_consumer_groups(request_timeout=PATIENCE_S).result(PATIENCE_S)
        assert listed.errors == []
        assert ("readers" in {group.group_id for group in listed.valid}) is expected


def test_administration_is_not_for_users(secured: Secured) -> None:
    admin, theirs = AdminClient(secured.users["alice"]), secured.create_topic()
    rule = build_rule("alice", AclOperation.ALL, TOPIC, "*")
    asked: list[tuple[Any, int]] = [
        (admin.create_topics([NewTopic("mine", 1, 1)])["mine"], DENIED),
        (admin.create_acls([rule])[rule], KafkaError.CLUSTER_AUTHORIZATION_FAILED),
        (admin.delete_topics([theirs])[theirs], DENIED),
    ]
    for future, code in asked:
        with pytest.raises(KafkaException) as raised:
            future.result(PATIENCE_S)
        assert raised.value.args[0].code() == code
    assert "mine" not in list_topics(secured, "alice")


@pytest.mark.parametrize(
    "command",
    [("consume",), ("kafka", "console-consumer", "--from-beginning", "--max-messages", "20000", "--topic")],
    ids=["consume", "console-consumer"],
)
def test_commands_read_without_the_right_to_a_group(secured: Secured, command: tuple[str, ...]) -> None:
    # librdkafka reports that it may not find the coordinator of a group that it requires and nobody uses. So many
    # records take longer than that.
    topic = secured.create_topic()
    secured.add("alice", READ, TOPIC, topic)
    producer = Producer({**secured.broker.client_settings, **QUIET})
    for number in range(20_000):
        producer.produce(topic, b"%d" % number)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    login = secured.broker.find_client_settings("alice")
    bootstrap, setting = (
        ("--bootstrap-server", "--command-property") if command[0] == "kafka" else ("--bootstrap", "-X")
    )
    settings = [part for name, value in login.items() for part in (setting, f"{name}={value}")]
    options = [bootstrap, login["bootstrap.servers"], *settings]
    done = subprocess.run([sys.executable, "-m", "ottla", *command, topic, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(number) for number in range(20_000)]
