"""The same command lines to Apache Kafka's own tools and to `ottla kafka` print the same facts.

Every step of a script is done by both, each with names of its own: `mine` stands for `peer` in the one and for `ours`
in the other.
"""

import re
from collections.abc import Iterator, Sequence

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
}
FAILED = ["failed"]
_VARYING = re.compile(r"TopicId: \S+")


@pytest.fixture(scope="module")
def operated() -> Iterator[LocalBroker]:
    with ottla.testing.broker() as broker:
        yield broker


def compare(broker: LocalBroker, tool: str, line: str, stdin: str = "") -> list[str]:
    """Run a command line with both tools. Returns the words of each line that they print, sorted and joined again."""
    words = [*line.split(), "--bootstrap-server", broker.bootstrap]
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
    """The lines with single spaces, without warnings and what differs from topic to topic, in an order of their own."""
    shown = _VARYING.sub("TopicId: ...", printed.replace(name, "mine"))
    lines = (" ".join(text.split()) for text in shown.splitlines())
    return sorted(text for text in lines if text and not text.lower().startswith("warn"))


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
