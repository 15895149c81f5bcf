"""kcat, with whatever librdkafka the system has. Skipped where it is not installed.

It creates a topic by writing to it; it cannot alter or delete one.
"""

import json
import subprocess
from typing import Any

import pytest

from ottla.testing import LocalBroker
from tests.clients import confluent, logins
from tests.clients.messages import CODECS, Delivery, Sent
from tests.needs import require_program
from tests.patience import PATIENCE_S


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    require_program("kcat")


def kcat(broker: LocalBroker, *arguments: str, stdin: str = "") -> str:
    """Run kcat, which must succeed. Returns what it prints."""
    command = ["kcat", *logins.kcat(broker.bootstrap), "-m", str(PATIENCE_S), "-q", *arguments]
    done = subprocess.run(command, input=stdin.encode(), capture_output=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def consume(broker: LocalBroker, topic: str, *arguments: str) -> list[dict[str, Any]]:
    """Consume every record up to the end, as kcat prints it in JSON."""
    return [json.loads(line) for line in kcat(broker, "-C", "-t", topic, "-e", "-J", *arguments).splitlines()]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_in_both_directions(codec: str, broker: LocalBroker, topic: str) -> None:
    # kcat sends keys, headers and tombstones to a topic that its first record creates, and reads what another client
    # sent.
    lines = "".join(f"key {number}:value {number} größe\n" for number in range(300)) + "gone:\n"
    produce = ("-P", "-t", topic, "-p", "0", "-K", ":", "-Z", "-H", "trace=7", "-X", f"compression.codec={codec}")
    kcat(broker, *produce, stdin=lines)
    received = confluent.receive(broker.bootstrap, topic, 1, 301)
    expected: list[tuple[bytes | None, bytes | None]] = [
        (b"key %d" % number, f"value {number} größe".encode()) for number in range(300)
    ]
    assert [(each.key, each.value) for each in received] == [*expected, (b"gone", None)]
    assert {each.headers for each in received} == {(("trace", b"7"),)}
    sent = [Sent(0, b"k", b"v %d" % number, (("h", b"x"),), 1000 + number) for number in range(50)]
    confluent.send(broker.bootstrap, topic, sent, Delivery(codec, idempotent=True))
    found = consume(broker, topic, "-o", "301")
    assert [(each["key"], each["payload"], each["headers"], each["ts"]) for each in found] == [
        ("k", f"v {number}", ["h", "x"], 1000 + number) for number in range(50)
    ]


def test_metadata_and_offsets(broker: LocalBroker, topic: str) -> None:
    # -L lists brokers and partitions; -Q finds an offset by time; consuming stops at a time.
    broker.create_topic(topic, 2)
    for timestamp in (1000, 3000, 2000):
        confluent.send(broker.bootstrap, topic, [Sent(1, b"key", b"%d" % timestamp, (), timestamp)], Delivery())
    listed = json.loads(kcat(broker, "-L", "-J", "-t", topic))
    (described,) = listed["topics"]
    assert (described["topic"], len(described["partitions"])) == (topic, 2)
    assert [each["name"] for each in listed["brokers"]] == [broker.bootstrap]
    assert kcat(broker, "-Q", "-t", f"{topic}:1:1500").split() == [topic, "[1]", "offset", "1"]
    assert [each["payload"] for each in consume(broker, topic, "-p", "1", "-o", "s@2000")] == ["3000", "2000"]


def test_an_unknown_topic_is_an_error(broker: LocalBroker, topic: str) -> None:
    # A consumer creates no topic: kcat prints one line and does not wait.
    with pytest.raises(AssertionError, match="Unknown topic"):
        kcat(broker, "-C", "-t", topic, "-p", "0", "-e", "-X", "allow.auto.create.topics=false")
