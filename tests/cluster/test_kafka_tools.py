"""Apache Kafka's own tools and Java client against three brokers: describe, reassign, elect, and a failover."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.peers.apache_kafka import SHORT_LIVED_JVM, java_command, run_tool
from tests.cluster.load import create_topic, read_log, wait_for
from tests.cluster.processes import OttlaNodes, run_nodes
from tests.patience import PATIENCE_S
from tests.samples import sample_size

pytestmark = pytest.mark.usefixtures("zookeeper_jars", "kafka_tools")

TOOLS = "org.apache.kafka.tools"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNodes]:
    settings = {"auto.leader.rebalance.enable": "false"}  # a tool elects leaders here
    with run_nodes(tmp_path_factory.mktemp("tools") / "cluster", settings=settings) as running:
        yield running


def describe(nodes: OttlaNodes, *options: str) -> str:
    return run_tool(f"{TOOLS}.TopicCommand", "--bootstrap-server", nodes.bootstrap, "--describe", *options)


def test_under_replicated_partitions_are_listed_until_the_broker_is_back(nodes: OttlaNodes) -> None:
    # kafka-topics --describe, with and without the filters for trouble.
    create_topic(nodes.bootstrap, "described", 3)
    nodes.wait_in_sync("described")
    assert "ReplicationFactor: 3" in describe(nodes, "--topic", "described")
    assert describe(nodes, "--under-replicated-partitions").strip() == ""
    nodes.brokers[2].kill()
    nodes.wait_in_sync("described", 2)
    listed = describe(nodes, "--topic", "described", "--under-replicated-partitions")
    assert len(re.findall(r"Partition: \d", listed)) == 3
    assert describe(nodes, "--topic", "described", "--under-min-isr-partitions").strip() == ""
    assert len(re.findall(r"Partition: \d", describe(nodes, "--topic", "described", "--at-min-isr-partitions"))) == 3
    assert describe(nodes, "--topic", "described", "--unavailable-partitions").strip() == ""
    nodes.brokers[2].start()
    nodes.wait_in_sync("described")
    assert describe(nodes, "--topic", "described", "--under-replicated-partitions").strip() == ""


def test_leaders_are_elected_by_kafka_leader_election(nodes: OttlaNodes) -> None:
    # The preferred leader comes back when it is asked for.
    create_topic(nodes.bootstrap, "elected", 3)
    nodes.wait_in_sync("elected")
    nodes.brokers[1].kill()
    nodes.wait_for(lambda: all(leader != 1 for leader, _ in nodes.find_partitions("elected").values()), "others lead")
    nodes.brokers[1].start()
    nodes.wait_in_sync("elected")
    options = ("--bootstrap-server", nodes.bootstrap, "--election-type", "preferred", "--all-topic-partitions")
    run_tool(f"{TOOLS}.LeaderElectionCommand", *options)
    nodes.wait_for(
        lambda: sorted(leader for leader, _ in nodes.find_partitions("elected").values()) == [1, 2, 3],
        "preferred leaders",
    )


def test_a_partition_is_reassigned_by_kafka_reassign_partitions(nodes: OttlaNodes, tmp_path: Path) -> None:
    # From two replicas to others and back to one order, and verified until it is complete.
    create_topic(nodes.bootstrap, "reassigned", 1)
    nodes.wait_in_sync("reassigned")
    plan = tmp_path / "plan.json"
    for replicas in ([3, 1], [2, 3, 1]):
        partition = {"topic": "reassigned", "partition": 0, "replicas": replicas}
        plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
        options = ("--bootstrap-server", nodes.bootstrap, "--reassignment-json-file", str(plan))
        run_tool(f"{TOOLS}.reassign.ReassignPartitionsCommand", *options, "--execute")
        nodes.wait_in_sync("reassigned", len(replicas))
        nodes.wait_for(lambda: is_reassigned(nodes, plan, replicas), "the reassignment is known everywhere")  # noqa: B023
    listed = run_tool(f"{TOOLS}.reassign.ReassignPartitionsCommand", "--bootstrap-server", nodes.bootstrap, "--list")
    assert "No partition reassignments found." in listed


def is_reassigned(nodes: OttlaNodes, plan: Path, replicas: list[int]) -> bool:
    """Whether the tools show the new replicas. They ask any broker, which may not have replayed the change yet."""
    options = ("--bootstrap-server", nodes.bootstrap, "--reassignment-json-file", str(plan), "--verify")
    verified = run_tool(f"{TOOLS}.reassign.ReassignPartitionsCommand", *options)
    shown = describe(nodes, "--topic", "reassigned")
    return "Reassignment of partition reassigned-0 is completed." in verified and (
        f"Replicas: {','.join(map(str, replicas))}" in shown
    )


def test_log_directories_are_described_by_kafka_log_dirs(nodes: OttlaNodes) -> None:
    # Of all three brokers, with the replicas in them.
    create_topic(nodes.bootstrap, "in-directories", 1)
    nodes.wait_in_sync("in-directories")
    wanted = {broker_id: ["in-directories-0"] for broker_id in nodes.brokers}
    nodes.wait_for(lambda: describe_directories(nodes, "in-directories") == wanted, "all brokers have the replica")


def describe_directories(nodes: OttlaNodes, topic: str) -> dict[int, list[str]]:
    """The replicas of a topic that each broker has, as kafka-log-dirs prints them."""
    options = ("--bootstrap-server", nodes.bootstrap, "--describe", "--topic-list", topic)
    printed = run_tool(f"{TOOLS}.LogDirsCommand", *options)
    (document,) = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return {
        broker["broker"]: [each["partition"] for directory in broker["logDirs"] for each in directory["partitions"]]
        for broker in document["brokers"]
    }


def test_the_java_producer_gets_over_a_failover(nodes: OttlaNodes, tmp_path: Path) -> None:
    # VerifiableProducer prints each record with its offset; a leader is killed while it sends. Nothing is lost.
    (partition,) = create_topic(nodes.bootstrap, "java", 1)
    nodes.wait_in_sync("java")
    count = sample_size(1000, 3000)
    config = tmp_path / "producer.properties"
    config.write_text("retries=2147483647\n")  # the client's default, which the tool changes to none
    options: tuple[str, ...] = (
        "--bootstrap-server",
        nodes.bootstrap,
        "--topic",
        "java",
        "--max-messages",
        str(count),
        "--acks",
        "-1",
    )
    options = (*options, "--throughput", "500", "--command-config", str(config))
    command = java_command(f"{TOOLS}.VerifiableProducer", *options, options=(*SHORT_LIVED_JVM, "-Xmx256M"))
    output = tmp_path / "producer.txt"
    with output.open("w") as written:
        producer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=written, stderr=subprocess.STDOUT)
    try:
        wait_for(lambda: "producer_send_success" in output.read_text(), "the producer works", output.read_text)
        leader = nodes.brokers[nodes.find_partitions("java")[0][0]]
        leader.kill()
        assert producer.wait(PATIENCE_S) == 0, output.read_text()[-2000:]
        leader.start()
    finally:
        producer.kill()
        producer.wait()
    lines = [json.loads(line) for line in output.read_text().splitlines() if line.startswith("{")]
    errors = [line for line in lines if line["name"] == "producer_send_error"]
    assert errors == [], errors[:3]
    acknowledged = {line["value"]: line["offset"] for line in lines if line["name"] == "producer_send_success"}
    found = read_log(nodes.bootstrap, partition, committed=False)
    assert len(acknowledged) == count
    assert {value.decode(): offset for offset, value in found} == acknowledged
    assert len(found) == count
