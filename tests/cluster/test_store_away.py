"""A cluster whose store is away: clients of topics notice nothing, requests that change the metadata fail in time."""

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

import ottla.testing
from ottla.cli import client, main, topic
from ottla.cli.cluster import elections
from ottla.cluster.producer_ids import BLOCK
from ottla.errors import ErrorCode
from ottla.testing import LocalCluster
from ottla.testing.local_cluster import wait_until
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient

TIMEOUT_MS = 1500


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with ottla.testing.cluster(brokers=3) as local:
        yield local


def create(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=3)], timeout_ms=TIMEOUT_MS
    )


def test_changes_fail_in_time_and_records_go_on(cluster: LocalCluster) -> None:
    """Each error is REQUEST_TIMED_OUT with a reason; afterwards the same requests succeed."""
    cluster.create_topic("orders")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    pass_on(producer, consumer, b"before")
    cluster.stop_store()
    requests: list[tuple[Any, int, Callable[[Any], Any]]] = [
        (create("new"), 7, lambda answer: answer.topics[0]),
        (create("orders"), 7, lambda answer: answer.topics[0]),
        (
            DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")], timeout_ms=TIMEOUT_MS),
            6,
            lambda answer: answer.responses[0],
        ),
        (
            CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="orders", count=5)], timeout_ms=TIMEOUT_MS),
            3,
            lambda answer: answer.results[0],
        ),
        (
            UpdateFeaturesRequest(
                timeout_ms=TIMEOUT_MS,
                feature_updates=[FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)],
            ),
            1,
            lambda answer: answer,
        ),
    ]
    broker = cluster.brokers[1]
    with RawClient(broker.host, broker.port, timeout_s=PATIENCE_S) as client:
        for request, version, pick in requests:
            result = pick(client.request(request, version))
            assert result.error_code == ErrorCode.REQUEST_TIMED_OUT, type(request).__name__
            assert re.search(r"within [01]\.\d+ s", result.error_message), result.error_message
    pass_on(producer, consumer, b"meanwhile")
    cluster.heal()
    with RawClient(broker.host, broker.port, timeout_s=PATIENCE_S) as client:
        deadline = time.monotonic() + PATIENCE_S
        while client.request(create("later"), 7).topics[0].error_code not in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
            assert time.monotonic() < deadline
    pass_on(producer, consumer, b"after")
    consumer.close()


REASON = r"the metadata could not be changed within [01]\.\d+ s: the broker has no connection to ZooKeeper"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("topic", "create", "new"), REASON),
        (("topic", "alter", "orders", "--partitions", "9"), REASON),
        (("topic", "delete", "orders"), r"Request timed out: .*\. Is ZooKeeper, or the controller, away\?"),
    ],
    ids=("create", "alter", "delete"),
)
def test_a_command_says_why_nothing_can_be_changed(
    cluster: LocalCluster,
    words: tuple[str, ...],
    reason: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The command waits longer than the broker, so that the broker's error arrives.
    assert client.OPERATION_S < client.REQUEST_S
    cluster.create_topic("orders")
    cluster.stop_store()
    monkeypatch.setattr(client, "OPERATION_S", TIMEOUT_MS / 1000)
    monkeypatch.setattr(topic, "OPERATION_MS", TIMEOUT_MS)
    monkeypatch.setattr(client, "REQUEST_S", PATIENCE_S)
    monkeypatch.setattr(client, "RETRY_S", TIMEOUT_MS / 1000)
    assert main([*words, "-b", cluster.bootstrap]) == 1
    assert re.fullmatch(rf"ottla: topic '{words[2]}': {reason}\n", capsys.readouterr().err)


def test_a_producer_that_begins_while_the_store_is_away_is_served(cluster: LocalCluster) -> None:
    # Idempotence is the default of Java's producers. Each needs an id, which no broker can reserve meanwhile.
    cluster.create_topic("orders")
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    pass_on(Producer({"bootstrap.servers": cluster.bootstrap}), consumer, b"before")
    reserved = BLOCK * len(cluster.brokers)
    wait_until(lambda: cluster.brokers[0].inspect(lambda broker: broker.node.image.next_producer_id >= reserved))
    cluster.stop_store()
    settings = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True}
    for number in range(5):
        pass_on(Producer(settings), consumer, b"%d" % number)
    consumer.close()


def pass_on(producer: Producer, consumer: Consumer, value: bytes) -> None:
    """Write a record and read it back."""
    errors: list[Any] = []
    producer.produce("orders", value, on_delivery=lambda error, message: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert errors == [None]
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None and message.value() == value:
            return
    pytest.fail(f"{value!r} did not arrive")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "REQUEST_TIMED_OUT; brokers 1, 2, 3: no connection to ZooKeeper, so the metadata cannot change"),
        (("-t", "orders"), "the metadata could not be changed within .* s: the broker has no connection to ZooKeeper"),
    ],
    ids=("all", "some"),
)
def test_elect_says_why_no_leader_is_elected(
    cluster: LocalCluster,
    words: tuple[str, ...],
    reason: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The broker's answer has room for a reason only beside partitions that were named.
    cluster.create_topic("orders")
    cluster.stop_store()
    wait_until(lambda: all(broker.find_obstacle() is not None for broker in cluster.brokers))
    monkeypatch.setattr(elections, "OPERATION_MS", TIMEOUT_MS)
    monkeypatch.setattr(client, "REQUEST_S", PATIENCE_S)
    assert main(["cluster", "elect", *words, "-b", cluster.bootstrap]) == 1
    assert re.fullmatch(f"ottla: no leader was elected: {reason}\n", capsys.readouterr().err)


def test_commands_tell_that_the_store_is_away(cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    """All partitions are well, and still no broker may be stopped: nobody could lead what it leads."""

    def run(*words: str) -> tuple[int, str]:
        status = main([*words, "-b", cluster.bootstrap])
        return status, capsys.readouterr().out

    cluster.create_topic("orders", partitions=3)
    status, output = run("cluster", "status", "--check")
    assert (status, "ZooKeeper" in output) == (0, False), output
    cluster.cut_from_store(cluster.brokers[1])
    wait_until(lambda: cluster.brokers[1].find_obstacle() is not None)
    status, output = run("cluster", "status", "--check")
    sentence = "no connection to ZooKeeper, so the metadata cannot change"
    assert (status, output.splitlines()[-1]) == (1, f"broker 2: {sentence}"), output
    cluster.stop_store()
    status, output = run("cluster", "health")
    assert (status, output.splitlines()[-1]) == (1, f"brokers 1, 2, 3: {sentence}"), output
    status, output = run("cluster", "status", "--format", "json")
    assert (status, [each["obstacle"] for each in json.loads(output)["brokers"]]) == (0, [sentence] * 3)
    status, output = run("doctor")
    assert status == 1 and f"PROBLEM  metadata: brokers 1, 2, 3: {sentence}" in output, output
    cluster.heal()
    wait_until(lambda: run("cluster", "status", "--check")[0] == 0)
