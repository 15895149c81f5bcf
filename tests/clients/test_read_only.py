"""`ottla up --read-only`: clients read, groups work, nothing can be written, and no byte of the directory changes."""

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.clients import confluent
from tests.clients.child import SOURCE, ottla_up
from tests.clients.files import contents
from tests.patience import PATIENCE_S

TOPIC = "orders"
COUNT = 2_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a broker that was killed."""
    directory = tmp_path / "data"
    with ottla_up(directory) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
        for number in range(COUNT):
            producer.produce(TOPIC, b"%d" % number)
        assert producer.flush(PATIENCE_S) == 0
        broker.kill()
    return directory


def read_in_a_group(bootstrap: str, count: int) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    try:
        values = [int(message.value() or b"") for message in confluent.take_messages(consumer, count)]
        consumer.commit(asynchronous=False)
        return values
    finally:
        consumer.close()


def test_a_killed_brokers_directory_is_served_and_not_changed(data: Path) -> None:
    before = contents(data)
    with ottla_up(data, read_only=True) as broker:
        half = COUNT // 2
        first = read_in_a_group(broker.bootstrap, half)
        assert first == list(range(len(first))) and len(first) >= half
        rest = read_in_a_group(broker.bootstrap, COUNT - len(first))
        assert first + rest == list(range(COUNT)), "the group went on where it had committed"
        assert broker.terminate() == 0
    assert contents(data) == before


def test_requests_that_would_change_something_are_refused(data: Path) -> None:
    with ottla_up(data, read_only=True) as broker:
        refused: list[KafkaError | None] = []
        producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 20_000})
        producer.produce(TOPIC, b"more", on_delivery=lambda error, message: refused.append(error))
        producer.flush(PATIENCE_S)
        assert [error and error.code() for error in refused] == [KafkaError.POLICY_VIOLATION]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        with pytest.raises(KafkaException, match="olicy"):
            admin.delete_topics([TOPIC])[TOPIC].result(PATIENCE_S)
        assert TOPIC in admin.list_topics(timeout=PATIENCE_S).topics
        assert admin.list_topics("made-by-asking", timeout=PATIENCE_S).topics["made-by-asking"].error is not None


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--read-only", "away"], "No such file or directory"),
        (["--read-only", ".", "--data", "."], "cannot be used together"),
    ],
)
def test_a_directory_that_cannot_be_served_is_reported_in_one_line(
    tmp_path: Path, arguments: list[str], reason: str
) -> None:
    command = [sys.executable, "-m", "ottla", "up", "--port", "0", *arguments]
    ended = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True)
    assert ended.returncode in (1, 2)
    assert reason in ended.stderr and len(ended.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
