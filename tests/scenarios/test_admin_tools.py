"""Apache Kafka's own admin tools against this broker: what an operator types, and what is then on the screen."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla.testing
from benchmarks.peers.apache_kafka import run_tool
from ottla.errors import ErrorCode
from ottla.records.batch import encode
from ottla.testing import LocalBroker
from tests.raw_client import RawClient
from tests.scenarios.client_calls import describe_topic

TOOLS = "org.apache.kafka.tools"
CONFIGS = "kafka.admin.ConfigCommand"


@pytest.fixture(scope="module")
def operated(kafka_tools: None) -> Iterator[LocalBroker]:
    with ottla.testing.broker() as broker:
        yield broker


def run_kafka_tool(broker: LocalBroker, tool: str, *options: str) -> str:
    """Run a tool, and return what it prints. Raises if the tool fails."""
    name = tool if "." in tool else f"{TOOLS}.{tool}"
    return run_tool(name, *options, "--bootstrap-server", broker.bootstrap)


def test_topics(operated: LocalBroker) -> None:
    """kafka-topics creates a topic with a setting, adds partitions, describes and deletes it."""
    run_kafka_tool(
        operated, "TopicCommand", "--create", "--topic", "a", "--partitions", "2", "--config", "retention.ms=1000"
    )
    run_kafka_tool(operated, "TopicCommand", "--alter", "--topic", "a", "--partitions", "3")
    head, *partitions = run_kafka_tool(operated, "TopicCommand", "--describe", "--topic", "a").strip().splitlines()
    assert "PartitionCount: 3" in head
    assert "Configs: min.insync.replicas=1,retention.ms=1000" in head
    assert ["Leader: 1" in line for line in partitions] == [True] * 3
    run_kafka_tool(operated, "TopicCommand", "--delete", "--topic", "a")
    with RawClient(operated.host, operated.port) as client:
        assert describe_topic(client, "a").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_settings(operated: LocalBroker) -> None:
    """kafka-configs changes settings of a topic and of all brokers, and shows each setting with its source."""
    operated.create_topic("b")
    run_kafka_tool(operated, CONFIGS, "--alter", "--topic", "b", "--add-config", "cleanup.policy=[compact,delete]")
    run_kafka_tool(operated, CONFIGS, "--alter", "--broker-defaults", "--add-config", "message.max.bytes=6000")
    shown = run_kafka_tool(operated, CONFIGS, "--describe", "--all", "--topic", "b")
    assert "DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete" in shown
    assert "max.message.bytes=6000 sensitive=false" in shown
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=6000, DEFAULT_CONFIG:message.max.bytes=1048588" in shown


def test_records_directories_and_features(operated: LocalBroker, tmp_path: Path) -> None:
    """kafka-delete-records, kafka-log-dirs and kafka-features work."""
    operated.create_topic("c")
    with RawClient(operated.host, operated.port) as client:
        client.produce("c", 0, encode([(None, b"x", (), 1)] * 5))
    offsets = tmp_path / "offsets.json"
    offsets.write_text(json.dumps({"version": 1, "partitions": [{"topic": "c", "partition": 0, "offset": 3}]}))
    deleted = run_kafka_tool(operated, "DeleteRecordsCommand", "--offset-json-file", str(offsets))
    assert "partition: c-0\tlow_watermark: 3" in deleted
    shown = run_kafka_tool(operated, "LogDirsCommand", "--describe", "--topic-list", "c").splitlines()[-1]
    (directory,) = json.loads(shown)["brokers"][0]["logDirs"]
    assert [partition["partition"] for partition in directory["partitions"]] == ["c-0"]
    assert directory["error"] is None
    features = run_tool(f"{TOOLS}.FeatureCommand", "--bootstrap-server", operated.bootstrap, "describe")
    assert "FinalizedVersionLevel: 4.3-IV0" in features
