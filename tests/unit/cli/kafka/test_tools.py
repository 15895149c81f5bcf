"""`ottla kafka`: its tools are found by their names, do what their flags say, and refuse what they do not know."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import ottla.testing
from ottla.cli.kafka import TOOLS
from ottla.testing import LocalBroker
from tests.patience import PATIENCE_S
from tests.unit.cli.every_command import Ended, run


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with ottla.testing.broker() as running:
        yield running


def kafka(broker: LocalBroker, line: str, stdin: bytes = b"") -> Ended:
    tool, *flags = line.split()
    return run(["kafka", tool, "--bootstrap-server", broker.bootstrap, *flags], stdin)


def words(broker: LocalBroker, line: str, stdin: bytes = b"") -> list[list[str]]:
    """The words of each line that is printed by a tool that succeeds."""
    ended = kafka(broker, line, stdin)
    assert ended.status == 0, ended
    return [text.split() for text in ended.output.splitlines() if text.strip()]


@pytest.mark.parametrize("tool", TOOLS)
def test_every_tool_has_help_and_refuses_unknown_flags(tool: str) -> None:
    for name in (tool, f"kafka-{tool}", f"kafka-{tool}.sh"):
        shown = run(["kafka", name, "--help"])
        assert shown.status == 0
        assert "--bootstrap-server" in shown.output
    refused = run(["kafka", tool, "--no-such-flag"])
    assert refused.status == 2
    assert refused.errors.count("\n") == 1
    assert refused.errors.startswith(f"ottla kafka {tool}")


def test_an_unknown_tool() -> None:
    ended = run(["kafka", "kafka-topic.sh", "--list"])
    assert (ended.status, ended.errors) == (
        2,
        "ottla: kafka: there is no tool 'kafka-topic.sh'; did you mean 'topics'?\n",
    )
    assert "there are topics" in run(["kafka", "run-class"]).errors


def test_topics(broker: LocalBroker) -> None:
    assert words(broker, "topics --create --topic a --partitions 2 --config retention.ms=9000") == [
        ["Created", "topic", "a."]
    ]
    head, first, second = kafka(broker, "topics --describe --topic a").output.splitlines()
    assert head.split("\t")[2:] == [
        "PartitionCount: 2",
        "ReplicationFactor: 1",
        "Configs: min.insync.replicas=1,retention.ms=9000",
    ]
    assert first == "\tTopic: a\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: "
    assert "Partition: 1" in second
    assert kafka(broker, f"topics --describe --topic-id {head.split()[3]}").output.splitlines()[0] == head
    words(broker, "topics --alter --topic a --partitions 3")
    assert words(broker, "topics --list") == [["a"]]
    assert "does not exist; did you mean 'a'" in kafka(broker, "topics --describe --topic A").errors
    words(broker, "topics --delete --topic a")
    assert kafka(broker, "topics --delete --topic a").status == 1
    assert kafka(broker, "topics --list --delete --topic a").status == 2


def test_groups_and_offsets(broker: LocalBroker) -> None:
    broker.create_topic("read")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(5):
        producer.produce("read", b"value")
    producer.flush(PATIENCE_S)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("read", 0, 2)], asynchronous=False)
    consumer.close()
    assert words(broker, "get-offsets --topic read") == [["read:0:5"]]
    assert words(broker, "consumer-groups --list --state") == [["GROUP", "STATE"], ["readers", "Empty"]]
    described = words(broker, "consumer-groups --describe --group readers")
    assert described[1] == ["readers", "read", "0", "2", "5", "3", "-", "-", "-"]
    planned = words(broker, "consumer-groups --reset-offsets --group readers --topic read --shift-by -1")
    assert planned[1] == ["readers", "read", "0", "1"]
    words(broker, "consumer-groups --reset-offsets --group readers --all-topics --to-latest --execute")
    assert words(broker, "consumer-groups --describe --group readers")[1][3:6] == ["5", "5", "0"]
    assert "did you mean 'readers'" in kafka(broker, "consumer-groups --describe --group reader").errors
    words(broker, "consumer-groups --delete --group readers")
    assert words(broker, "consumer-groups --list") == []


def test_records(broker: LocalBroker) -> None:
    """Lines become records with keys and headers, in a topic that comes into being, and are printed again."""
    lines = b"a:1,b:2\tkey\tvalue\nNONE\tNONE\tNONE\n"
    flags = "--property parse.key=true --reader-property parse.headers=true --property null.marker=NONE"
    words(broker, f"console-producer --topic said {flags}", lines)
    shown = "--property print.key=true --formatter-property print.headers=true --property print.offset=true"
    reading = f"console-consumer --topic said --from-beginning --max-messages 2 {shown}"
    assert words(broker, reading) == [
        ["Offset:0", "a:1,b:2", "key", "value"],
        ["Offset:1", "NO_HEADERS", "null", "null"],
    ]
    assert words(broker, "console-consumer --include sai. --group ears --from-beginning --max-messages 1") == [
        ["value"]
    ]
    ended = kafka(broker, "console-producer --topic said --property parse.key=true", b"value\n")
    assert (ended.status, "line 1: no key separator" in ended.errors) == (1, True)
    wrong = "console-consumer --topic said --from-beginning --value-deserializer LongDeserializer"
    assert "5 bytes are not the 8 of a Long" in kafka(broker, wrong).errors
    assert kafka(broker, "console-consumer --topic none").status == 1


def test_an_empty_name_of_a_topic_is_refused(broker: LocalBroker) -> None:
    ended = run(["kafka", "console-consumer", "--bootstrap-server", broker.bootstrap, "--topic", ""])
    assert (ended.status, ended.errors) == (2, "ottla: Empty topic name at index 0 isn't allowed\n")


def test_settings_and_quotas(broker: LocalBroker) -> None:
    broker.create_topic("set")
    words(broker, "configs --alter --topic set --add-config cleanup.policy=[compact,delete],retention.ms=5000000")
    assert [line[0] for line in words(broker, "configs --describe --topic set")[1:]] == [
        "cleanup.policy=compact,delete",
        "retention.ms=5000000",
    ]
    words(broker, "configs --alter --user alice --add-config producer_byte_rate=10485760")
    (shown,) = words(broker, "configs --describe --entity-type users --entity-name alice")
    assert shown[-1] == "producer_byte_rate=1.048576E7"
    words(broker, "configs --alter --user alice --add-config SCRAM-SHA-256=[iterations=8192,password=secret]")
    assert words(broker, "configs --describe --user alice")[1][-1] == "SCRAM-SHA-256=iterations=8192"
    words(broker, "configs --alter --user alice --delete-config SCRAM-SHA-256")
    assert kafka(broker, "configs --alter --topic set --add-config retention.ms=never").status == 1
    assert "there is no group 'none'" in kafka(broker, "configs --describe --group none").errors
    assert kafka(broker, "configs --alter --entity-type topics --add-config retention.ms=1").status == 2
