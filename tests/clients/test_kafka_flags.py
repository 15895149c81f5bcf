"""The same command lines to Apache Kafka's own tools and to `ottla kafka` print the same facts.

Every step of a script is done by both, each with names of its own: `mine` stands for `peer` in the one and for `ours`
in the other.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import ottla.testing
from benchmarks.peers.apache_kafka import ToolFailure, run_tool
from ottla.testing import LocalBroker
from tests.patience import PATIENCE_S
from tests.unit.cli.every_command import run

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("kafka_tools")]

CLASSES = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "configs": "kafka.admin.ConfigCommand",
    "acls": "org.apache.kafka.tools.AclCommand",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
}
FAILED = ["failed"]
NOTES = ("WARNING", "Warn", "Option --")
"""How lines begin that are no facts, such as those about flags that were renamed."""
_VARYING = re.compile(r"(?<=TopicId: )\S+|(?<=log_dirs\":\[\")[^\"]+")


@pytest.fixture(scope="module")
def operated() -> Iterator[LocalBroker]:
    with ottla.testing.broker(log_retention_ms=-1) as broker:  # records of these tests are years old
        yield broker


def compare(broker: LocalBroker, tool: str, line: str, stdin: str = "") -> list[str]:
    """Run a command line with both tools. Returns the words of each line that they print, sorted and joined again."""
    words = ["--bootstrap-server", broker.bootstrap, *line.split()]
    try:
        theirs = read_facts(run_tool(CLASSES[tool], *rename(words, "peer"), stdin=stdin), "peer")
    except ToolFailure:
        theirs = FAILED
    ended = run(["kafka", tool, *rename(words, "ours")], stdin.encode())
    ours = FAILED if ended.status else read_facts(ended.output, "ours")
    assert ours == theirs, (line, ended)
    return ours


def rename(words: Sequence[str], name: str) -> list[str]:
    return [word.replace("mine", name) for word in words]


def read_facts(printed: str, name: str) -> list[str]:
    """The lines with single spaces, in an order of their own, without warnings and what differs from topic to topic.

    Each tool lists those unsupported APIs that its own client knows, so these are left out too.
    """
    shown = _VARYING.sub("...", re.sub(rf"\b{name}\b", "mine", printed))
    lines = (" ".join(text.split()) for text in shown.splitlines())
    return sorted(text for text in lines if text and not text.startswith(NOTES) and "UNSUPPORTED" not in text)


def test_topics(operated: LocalBroker) -> None:
    def both(line: str) -> list[str]:
        return compare(operated, "topics", line)

    both("--create --topic mine-a --partitions 2 --replication-factor 1 --config retention.ms=100000")
    assert both("--create --topic mine-a") == FAILED
    assert both("--create --topic mine-a --if-not-exists") == []
    both("--create --topic mine-b --replica-assignment 1,1,1")
    assert both("--create --topic mine-c --partitions 1 --replication-factor 3") == FAILED
    assert len(both("--list --topic mine.*")) == 2
    assert len(both("--describe --topic mine-a")) == 3
    both("--describe --topic mine-.*")
    both("--describe --topic mine-.* --topics-with-overrides")
    for choice in ("under-replicated", "unavailable", "under-min-isr", "at-min-isr"):
        both(f"--describe --topic mine-a --{choice}-partitions")
    both("--alter --topic mine-a --partitions 4")
    assert both("--alter --topic mine-a --partitions 3") == FAILED
    assert both("--describe --topic mine-none") == FAILED
    assert both("--delete --topic mine-none") == FAILED
    both("--delete --topic mine-none --if-exists")
    both("--delete --topic mine-a,mine-b")
    assert both("--list --topic mine.*") == []


@pytest.fixture(scope="module")
def read(operated: LocalBroker) -> LocalBroker:
    """A broker with a group of each side, which has read 2 of 5 records."""
    producer = Producer({"bootstrap.servers": operated.bootstrap})
    operated.create_topic("shared", partitions=2)
    producer.produce("shared", b"value")
    for name in ("peer", "ours"):
        operated.create_topic(f"{name}-read", partitions=2)
        operated.create_topic(f"{name}-done")
        for number in range(5):
            producer.produce(f"{name}-read", b"value", partition=0, timestamp=1_700_000_000_000 + 60_000 * number)
        producer.flush(PATIENCE_S)
        consumer = Consumer({"bootstrap.servers": operated.bootstrap, "group.id": f"{name}-group"})
        stored = [TopicPartition(f"{name}-read", 0, 2), TopicPartition(f"{name}-done", 0, 0)]
        consumer.commit(offsets=stored, asynchronous=False)
        consumer.close()
    return operated


def test_consumer_groups(read: LocalBroker) -> None:
    def both(line: str) -> list[str]:
        return compare(read, "consumer-groups", line)

    for what in ("", "--offsets --verbose", "--state", "--state --verbose", "--members", "--members --verbose"):
        both(f"--describe --group mine-group {what}")
    reset = "--reset-offsets --group mine-group --topic mine-read"
    for how in (
        *("--to-earliest", "--to-latest", "--to-current", "--to-offset 3", "--to-offset 99"),
        *("--to-datetime 2023-11-14T22:15:00.000", "--by-duration PT1H"),
    ):
        both(f"{reset} {how} --dry-run")
    both("--reset-offsets --group mine-group --topic mine-read:0 --shift-by -1 --dry-run --export")
    both("--reset-offsets --group mine-group --topic mine-read:0 --shift-by 1 --execute")
    assert any("mine-read 0 3 5 2" in fact for fact in both("--describe --group mine-group"))
    both("--reset-offsets --group mine-group --all-topics --to-earliest --execute")
    both("--delete-offsets --group mine-group --topic mine-done")
    both("--describe --group mine-group")
    both("--delete --group mine-group")


def test_members(read: LocalBroker) -> None:
    """Members of both protocols are shown with their partitions, in every table."""
    for protocol in ("classic", "consumer"):
        group = f"read-{protocol}"
        settings = {"bootstrap.servers": read.bootstrap, "group.id": group, "group.protocol": protocol}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
        consumer.subscribe(["shared"])
        while consumer.poll(0.1) is None:
            pass
        consumer.commit(asynchronous=False)
        for what in ("", "--verbose", "--state --verbose", "--members --verbose"):
            assert compare(read, "consumer-groups", f"--describe --group {group} {what}")
        compare(read, "consumer-groups", "--list --state --type")
        consumer.close()


def test_get_offsets(read: LocalBroker) -> None:
    def both(line: str) -> list[str]:
        return compare(read, "get-offsets", line)

    assert both("--topic mine-read") == ["mine-read:0:5", "mine-read:1:0"]
    for line in (
        *("--topic mine-re.d --time -2 --partitions 0", "--topic mine-read --time earliest"),
        *(
            "--topic-partitions mine-read:1,mine-done",
            "--topic-partitions mine-.*:0-1",
            "--topic-partitions mine-read:-1",
        ),
        *("--topic mine-read --time 1700000060001", "--topic mine-.* --time max-timestamp", "--topic mine-none"),
        "--topic mine-.* --exclude-internal-topics --time -4",
    ):
        both(line)


def test_configs(read: LocalBroker) -> None:
    def both(line: str) -> list[str]:
        return compare(read, "configs", line)

    both("--alter --topic mine-read --add-config cleanup.policy=[compact,delete],retention.ms=500000000000")
    assert len(both("--describe --entity-type topics --entity-name mine-read")) == 3
    both("--describe --topic mine-read --all")
    both("--alter --entity-type topics --entity-name mine-read --delete-config retention.ms,cleanup.policy")
    both("--describe --topic mine-read")
    assert both("--alter --topic mine-read --add-config retention.ms=never") == FAILED
    both("--alter --user mine --add-config producer_byte_rate=10485760,consumer_byte_rate=2000")
    pair = "--entity-type users --entity-name mine --entity-type clients --entity-default"
    both(f"--alter {pair} --add-config request_percentage=50")
    both("--alter --user mine --add-config SCRAM-SHA-256=[iterations=8192,password=secret]")
    both("--alter --ip-defaults --add-config connection_creation_rate=123456789")
    for line in (
        *("--user mine", "--entity-type users --entity-name mine --entity-type clients", "--entity-type ips"),
        *("--ip-defaults", "--broker 1", "--broker-defaults", "--entity-type client-metrics"),
        *("--broker 1 --all", "--entity-type broker-loggers --entity-name 1"),
    ):
        both(f"--describe {line}")
    both("--alter --user mine --delete-config SCRAM-SHA-256")
    both("--alter --user mine --delete-config producer_byte_rate")
    both("--describe --user mine")


def test_records(read: LocalBroker) -> None:
    """What one producer has sent with keys and headers, both consumers print, with every property."""
    for name in ("peer", "ours"):
        read.create_topic(f"{name}-said")
    how = "--topic mine-said --reader-property parse.key=true --reader-property parse.headers=true"
    sent = "a:1,b:2\tkey\tvalue\nNONE\tNONE\tNONE\n"
    compare(read, "console-producer", f"{how} --reader-property null.marker=NONE --sync", sent)
    compare(read, "console-producer", "--topic mine-said --compression-codec zstd --request-required-acks 1", "last\n")
    shown = " ".join(f"--property print.{what}=true" for what in ("key", "headers", "offset", "partition", "delivery"))
    for line in (
        f"--topic mine-said --from-beginning --max-messages 3 {shown}",
        "--topic mine-said --partition 0 --offset 1 --max-messages 1 --formatter-property null.literal=none",
        "--include mine-said --from-beginning --max-messages 3 --isolation-level read_committed",
        "--topic mine-said --group mine-listeners --from-beginning --max-messages 3 --consumer-property client.id=a",
    ):
        assert compare(read, "console-consumer", line)


def test_operations(read: LocalBroker, tmp_path: Path) -> None:
    files = {
        "offsets": {"partitions": [{"topic": "shared", "partition": 0, "offset": 0}], "version": 1},
        "plan": {"partitions": [{"topic": "shared", "partition": 0, "replicas": [1]}], "version": 1},
        "topics": {"topics": [{"topic": "shared"}], "version": 1},
    }
    for name, document in files.items():
        (tmp_path / name).write_text(json.dumps(document))
    assert len(compare(read, "delete-records", f"--offset-json-file {tmp_path}/offsets")) == 3
    compare(read, "leader-election", "--election-type preferred --all-topic-partitions")
    compare(read, "leader-election", "--election-type preferred --topic shared --partition 0")
    moving = f"--reassignment-json-file {tmp_path}/plan"
    for line in (f"--execute {moving}", f"--verify {moving}", "--list"):
        assert compare(read, "reassign-partitions", line)
    compare(read, "reassign-partitions", f"--generate --topics-to-move-json-file {tmp_path}/topics --broker-list 1")
    assert len(compare(read, "broker-api-versions", "")) > 50
    assert compare(read, "features", "describe")


def test_transactions(read: LocalBroker) -> None:
    producer = Producer({"bootstrap.servers": read.bootstrap, "transactional.id": "writer"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("shared", b"value", partition=1)
    producer.flush(PATIENCE_S)
    for line in ("list", "describe-producers --topic shared --partition 1", "find-hanging --broker-id 1"):
        assert compare(read, "transactions", line)
    assert compare(read, "transactions", "describe --transactional-id none") == FAILED
    producer.commit_transaction(PATIENCE_S)


def test_acls() -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with ottla.testing.broker(authorizer_class_name=authorizer, super_users="User:ANONYMOUS") as broker:

        def both(line: str) -> list[str]:
            return compare(broker, "acls", line)

        both("--add --allow-principal User:a --allow-host 10.0.0.1 --operation Read --operation Write --topic mine-t")
        both("--add --allow-principal User:b --producer --topic mine- --resource-pattern-type prefixed")
        both("--add --allow-principal User:c --consumer --topic mine-t --group mine-g")
        both("--add --deny-principal User:d --operation DescribeConfigs --topic mine-t --deny-host 10.0.0.2")
        both("--list --topic mine-t")
        both("--list --topic mine-t --resource-pattern-type match")
        both("--remove --force --allow-principal User:a --allow-host 10.0.0.1 --operation Read --topic mine-t")
        assert len(both("--list --topic mine-t")) == 5
        both("--remove --force --topic mine-t")
        assert both("--list --topic mine-t") == []
        assert both("--add --allow-principal nobody --topic mine-t") == FAILED
