"""`ottla.log`: a log in this process that keeps its promises, in a directory that a broker serves later."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

import ottla.log
import ottla.testing
from ottla.errors import ErrorCode
from ottla.log import DirectoryError, EventLog, KafkaError, LogClosed, Record
from tests.clients.confluent import take_messages

HOUR_MS = 3_600_000


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    with ottla.log.open(tmp_path) as opened:
        yield opened


def values(records: Iterator[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def test_records_come_back_as_they_were_appended(log: EventLog) -> None:
    orders = log.topic("orders")
    assert orders.append(b"one", key=b"alice", headers=[("source", b"shop"), ("none", None)], timestamp_ms=17) == 0
    assert orders.append(None, key=b"alice") == 1
    first, second = orders.read()
    assert first == Record(0, 17, b"alice", b"one", (("source", b"shop"), ("none", None)))
    assert (second.offset, second.key, second.value) == (1, b"alice", None)
    assert second.timestamp > HOUR_MS
    assert (orders.start_offset(), orders.end_offset(), orders.partitions, log.topics) == (0, 2, 1, ["orders"])


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_many_records_are_one_batch(log: EventLog, compression: str) -> None:
    orders = log.topic("orders")
    records = [(b"k%d" % each, b"v%d" % each, (), 1000 + each) for each in range(700)]
    assert orders.append_many(records, compression=compression) == range(700)
    assert orders.append_many(orders.read(699)) == range(700, 701)
    assert orders.append_many([]) == range(701, 701)
    assert values(orders.read(698)) == [b"v698", b"v699", b"v699"]
    with pytest.raises(ValueError, match="none of none, gzip"):
        orders.append_many(records, compression="brotli")


def test_reading_starts_at_an_offset_or_a_time(log: EventLog) -> None:
    orders = log.topic("orders")
    for hour in range(5):
        orders.append(b"%d" % hour, timestamp_ms=hour * HOUR_MS)
    assert values(orders.read(3)) == [b"3", b"4"]
    assert values(orders.read(since=datetime.fromtimestamp(2 * 3600 - 1, UTC))) == [b"2", b"3", b"4"]
    assert values(orders.read(since=4 * HOUR_MS + 1)) == []
    assert orders.offset_at(4 * HOUR_MS + 1) == orders.end_offset() == 5
    with pytest.raises(ValueError, match="not both"):
        orders.read(1, since=1)
    with pytest.raises(KafkaError) as refused:
        next(orders.read(6))
    assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_reader_passes_over_what_was_trimmed(log: EventLog) -> None:
    orders = log.topic("orders")
    for each in range(4):
        orders.append(b"%d" % each)
    orders.trim(2)
    assert values(orders.read(0)) == values(orders.read()) == [b"2", b"3"]
    assert orders.start_offset() == 2


def test_a_follower_gets_new_records_until_the_log_is_closed(tmp_path: Path) -> None:
    log = ottla.log.open(tmp_path)
    orders = log.topic("orders")
    orders.append(b"before")
    seen: list[bytes | None] = []
    followed = orders.read(follow=True)
    assert next(followed).value == b"before"
    follower = Thread(target=lambda: seen.extend(values(followed)))
    follower.start()
    assert [orders.append(b"%d" % each) for each in range(100)] == list(range(1, 101))
    log.close()
    follower.join()
    assert seen == [b"%d" % each for each in range(len(seen))]  # some, or all of them
    with pytest.raises(LogClosed):
        orders.append(b"too late")
    with pytest.raises(LogClosed):
        orders.end_offset()
    log.close()


def test_threads_append_side_by_side(log: EventLog) -> None:
    orders = log.topic("orders", partitions=2)
    offsets: list[int] = []
    threads = [
        Thread(target=lambda: offsets.extend(orders.append(b"x", partition=1) for _ in range(50))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(offsets) == list(range(200))
    assert (orders.end_offset(0), orders.end_offset(1)) == (0, 200)


def test_topics_have_settings_and_can_be_deleted(log: EventLog) -> None:
    small = log.topic("small", settings={"max.message.bytes": "200"})
    with pytest.raises(KafkaError) as refused:
        small.append(b"x" * 300)
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert small.end_offset() == 0
    with pytest.raises(KafkaError) as refused:
        log.topic("other", settings={"no.such.setting": "1"})
    assert refused.value.code == ErrorCode.INVALID_CONFIG
    log.delete("small")
    assert log.topics == []
    with pytest.raises(KafkaError) as refused:
        log.delete("small")
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_compacted_topic_demands_keys(log: EventLog) -> None:
    users = log.topic("users", settings={"cleanup.policy": "compact"})
    with pytest.raises(KafkaError) as refused:
        users.append(b"no key")
    assert refused.value.code == ErrorCode.INVALID_RECORD


def test_a_directory_is_open_once(log: EventLog, tmp_path: Path) -> None:
    with pytest.raises(DirectoryError):
        ottla.log.open(tmp_path)


def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys, ottla.log\n"
        "orders = ottla.log.open(sys.argv[1]).topic('orders')\n"
        "for each in range(500): orders.append(b'%d' % each)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False, env=dict(os.environ))
    assert ended.returncode == -signal.SIGKILL
    with ottla.log.open(tmp_path) as log:
        assert values(log.topic("orders").read()) == [b"%d" % each for each in range(500)]


def test_a_broker_serves_the_same_files(tmp_path: Path) -> None:
    with ottla.log.open(tmp_path) as log:
        log.topic("orders").append_many([(b"k", b"%d" % each, (), 1) for each in range(10)], compression="lz4")
        log.topic("orders").flush()
    with ottla.testing.broker(snapshot=tmp_path) as broker:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
        consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
        assert [message.value() for message in take_messages(consumer, 10)] == [b"%d" % each for each in range(10)]
        consumer.close()


def test_the_example_of_the_page_works(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/event-log.md").read_text()
    program, printed = re.findall(r"^```(?:python)?\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[:2]
    ended = subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path, capture_output=True, text=True)
    assert ended.stdout == printed
