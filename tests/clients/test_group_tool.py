"""Offsets of a group as an administrator handles them: with Kafka's own command, and with librdkafka's admin client."""

from itertools import count

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.peers.apache_kafka import run_tool
from ottla.testing import LocalBroker
from tests.clients import logins
from tests.patience import PATIENCE_S

COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"

_numbers = count()


@pytest.fixture
def group(broker: LocalBroker, topic: str) -> str:
    """A group that has read 2 of 5 records of one partition and all of another topic."""
    name = f"administered-{next(_numbers)}"
    broker.create_topic(topic)
    broker.create_topic(f"{topic}-done")
    producer = Producer(logins.librdkafka(broker.bootstrap))
    for _ in range(5):
        producer.produce(topic, b"value")
    producer.produce(f"{topic}-done", b"value")
    producer.flush(PATIENCE_S)
    consumer = Consumer({**logins.librdkafka(broker.bootstrap), "group.id": name})
    stored = [TopicPartition(topic, 0, 2), TopicPartition(f"{topic}-done", 0, 1)]
    consumer.commit(offsets=stored, asynchronous=False)
    consumer.close()
    return name


def run_command(broker: LocalBroker, *arguments: str) -> list[list[str]]:
    """Run kafka-consumer-groups. Returns the words of each line that it prints."""
    printed = run_tool(COMMAND, *logins.tool(broker.bootstrap), *arguments)
    return [line.split() for line in printed.splitlines() if line.strip()]


@pytest.mark.usefixtures("kafka_tools")
def test_kafkas_own_command(broker: LocalBroker, topic: str, group: str) -> None:
    """The group is described with its lag, its offsets are reset, some of them are deleted, then the group is."""
    described = run_command(broker, "--describe", "--group", group)[1:]
    assert [line[:6] for line in described] == [
        [group, topic, "0", "2", "5", "3"],
        [group, f"{topic}-done", "0", "1", "1", "0"],
    ]
    reset = run_command(broker, "--group", group, "--reset-offsets", "--shift-by", "-1", "--topic", topic, "--execute")
    assert reset[1:] == [[group, topic, "0", "1"]]
    forgotten = run_command(broker, "--group", group, "--delete-offsets", "--topic", f"{topic}-done")
    assert forgotten[-1] == [f"{topic}-done", "0", "Successful"]
    assert [line[:4] for line in run_command(broker, "--describe", "--group", group)[1:]] == [[group, topic, "0", "1"]]
    assert "successful" in " ".join(run_command(broker, "--delete", "--group", group)[0])
    assert [group] not in run_command(broker, "--list")


def test_librdkafkas_admin_client(broker: LocalBroker, topic: str, group: str) -> None:
    """Offsets are listed and changed, and are gone after the group is deleted."""
    admin = AdminClient(logins.librdkafka(broker.bootstrap))
    assert list_offsets(admin, group) == {topic: 2, f"{topic}-done": 1}
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 4)])
    for future in admin.alter_consumer_group_offsets([wanted]).values():
        future.result(timeout=PATIENCE_S)
    assert list_offsets(admin, group) == {topic: 4, f"{topic}-done": 1}
    for future in admin.delete_consumer_groups([group]).values():
        future.result(timeout=PATIENCE_S)
    assert list_offsets(admin, group) == {}
    (again,) = admin.delete_consumer_groups([group]).values()
    with pytest.raises(KafkaException, match="GROUP_ID_NOT_FOUND"):
        again.result(timeout=PATIENCE_S)


def list_offsets(admin: AdminClient, group: str) -> dict[str, int]:
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {each.topic: each.offset for each in future.result(timeout=PATIENCE_S).topic_partitions}
