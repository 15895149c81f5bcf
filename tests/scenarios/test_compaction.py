"""Compaction by a real broker and its cleaner process, while clients read and write."""

import logging
import os
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from ottla.records import batch
from ottla.replication import compaction
from ottla.storage.directories import CLEAN_ENDS, decode_checkpoint
from ottla.testing import LocalBroker
from ottla.testing import broker as local_broker
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.exposition import Exposition
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient
from tests.scenarios.client_calls import connect, create_topic, decode_records, delete_topic, produce_batch
from tests.scenarios.test_metrics import metrics

COMPACTED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}
CLEANING = "kafka_log_logcleanermanager"


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cleaner process ends as soon as it has nothing to do."""
    monkeypatch.setattr(compaction, "IDLE_S", 0.0)


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with local_broker(log_cleaner_backoff_ms=50, metrics_port=0) as running:
        yield running


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} does not come true"
        time.sleep(0.05)


def fill(client: RawClient, topic: str, batches: int, keys: int = 20, mark: str = "") -> None:
    """Send batches of ten records, about 1 KB each."""
    for number in range(batches):
        rows = [
            (b"k%d" % ((number * 10 + place) % keys), b"%s%d " % (mark.encode(), number) + b"x" * 80, (), 1000)
            for place in range(10)
        ]
        assert produce_batch(client, topic, batch.encode(rows)).error_code == 0


def read_all(client: RawClient, topic: str) -> list[batch.Record]:
    found: list[batch.Record] = []
    offset = 0
    while records := decode_records(client.fetch(topic, 0, offset)):
        found += records
        offset = records[-1].offset + 1
    return found


def latest(records: list[batch.Record]) -> dict[bytes | None, tuple[int, bytes | None]]:
    return {record.key: (record.offset, record.value) for record in records}


def set_config(client: RawClient, topic: str, name: str, value: str) -> None:
    change = AlterableConfig(name=name, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[change])
    answer = client.request(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0, answer


def clean_end(broker: LocalBroker, topic: str) -> int:
    try:
        with open(os.path.join(broker.directory, CLEAN_ENDS), "rb") as file:
            return decode_checkpoint(file.read()).get(TopicPartition(topic, 0), 0)
    except FileNotFoundError:
        return 0


def children() -> list[int]:
    return [child.pid for child in psutil.Process().children() if is_cleaner(child)]


def is_cleaner(child: psutil.Process) -> bool:
    try:
        return "cleaner" in " ".join(child.cmdline())
    except psutil.NoSuchProcess:  # the process ended meanwhile, and its parent may not have waited for it yet
        return False


def value(page: Exposition, name: str) -> float:
    return sum(page.families[name].samples.values())


def test_a_topic_is_compacted_while_clients_read_and_write(broker: LocalBroker) -> None:
    # The last value of each key stays at its offset, readers miss none of them, and the cleaner process ends.
    with connect(broker) as client:
        assert create_topic(client, "table", configs=COMPACTED).error_code == 0
        fill(client, "table", 100)
        before = latest(read_all(client, "table"))
        for turn in range(200):
            fill(client, "table", 1, mark=f"{turn} ")
            seen = latest(read_all(client, "table"))
            assert seen.keys() == before.keys()
            if clean_end(broker, "table") > 900:
                break
            time.sleep(0.05)
        wait_until(lambda: clean_end(broker, "table") > 900, "compaction")
        end = clean_end(broker, "table")
        after = read_all(client, "table")
        assert len([record for record in after if record.offset < end]) <= len(before)
        assert latest(after).keys() == before.keys()
        wait_until(lambda: not children(), "the end of the child")
        page = metrics(broker)
        assert value(page, "ottla_compactions_total") >= 1
        read, written = (value(page, f"ottla_compaction_{what}_bytes_total") for what in ("read", "written"))
        assert read > written > 0
        expected = latest(after)
    broker.stop()
    broker.restart()
    with connect(broker) as client:
        assert latest(read_all(client, "table")) == expected


def test_a_damaged_log_is_reported_and_does_not_stop_the_others(
    broker: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = {**COMPACTED, "min.cleanable.dirty.ratio": "1"}
    with connect(broker) as client, caplog.at_level(logging.ERROR, "ottla.replication.compaction"):
        create_topic(client, "broken", configs=waiting)
        create_topic(client, "sound", configs=COMPACTED)
        fill(client, "broken", 60)
        path = os.path.join(broker.directory, "broken-0", f"{0:020d}.log")
        with open(path, "r+b") as file:
            file.seek(100)
            file.write(b"\xff\xff\xff")
        set_config(client, "broken", "min.cleanable.dirty.ratio", "0.01")
        wait_until(lambda: value(metrics(broker), f"{CLEANING}_uncleanable_partitions_count") == 1, "the report")
        fill(client, "sound", 60)
        wait_until(lambda: clean_end(broker, "sound") > 0, "compaction of the other one")
        assert value(metrics(broker), f"{CLEANING}_uncleanable_bytes") > 0
    lines = [record.getMessage() for record in caplog.records if "cannot be compacted" in record.getMessage()]
    assert len(lines) == 1 and "broken-0" in lines[0] and "damaged at byte 0" in lines[0]


def test_a_topic_that_is_deleted_meanwhile_leaves_nothing_behind() -> None:
    # Compaction is throttled, so that it is still running. A new topic of the same name begins empty.
    with (
        local_broker(log_cleaner_backoff_ms=50, log_cleaner_io_max_bytes_per_second=100_000) as broker,
        connect(broker) as client,
    ):
        create_topic(client, "table", configs=COMPACTED)
        fill(client, "table", 100)
        directory = os.path.join(broker.directory, "table-0")
        wait_until(lambda: any(name.endswith(".cleaned") for name in os.listdir(directory)), "a compaction")
        assert delete_topic(client, "table") == 0
        assert create_topic(client, "table", configs=COMPACTED).error_code == 0
        wait_until(lambda: not children(), "the end of the child")
        assert read_all(client, "table") == []
        fill(client, "table", 1)
        assert len(read_all(client, "table")) == 10


def test_a_kill_during_compaction_leaves_the_log_as_it_was(broker: LocalBroker) -> None:
    with connect(broker) as client:
        create_topic(client, "table", configs={**COMPACTED, "cleanup.policy": "delete"})
        fill(client, "table", 100)
        before = latest(read_all(client, "table"))
        set_config(client, "table", "cleanup.policy", "compact")
        directory = os.path.join(broker.directory, "table-0")
        wait_until(
            lambda: any(".cleaned" in name or ".deleted" in name for name in os.listdir(directory)), "a compaction"
        )
    broker.kill()
    wait_until(lambda: not children(), "the end of the child")
    broker.restart()
    assert not [name for name in os.listdir(directory) if name.endswith((".cleaned", ".swap"))]
    with connect(broker) as client:
        assert latest(read_all(client, "table")) == before


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_the_child_ends_with_its_broker(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setattr(compaction, "IDLE_S", 1000.0)
    with connect(broker) as client:
        create_topic(client, "table", configs=COMPACTED)
        fill(client, "table", 60)
        wait_until(lambda: clean_end(broker, "table") > 0, "compaction")
    assert children()
    getattr(broker, end)()
    assert not children()
