"""Retention: what clients see of it, and which files are left on disk."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from ottla.errors import ErrorCode
from ottla.records.batch import encode
from ottla.testing import LocalBroker
from ottla.testing import broker as local_broker
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.patience import PATIENCE_MS, PATIENCE_S
from tests.raw_client import RawClient
from tests.scenarios.client_calls import EARLIEST, LATEST, append, connect, list_offset

TOPIC = "orders"
VALUE = bytes(400_000)
SEGMENT_BYTES = 1 << 20
DAY_MS = 86_400_000


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with local_broker(log_retention_check_interval_ms=60_000, log_initial_task_delay_ms=0) as running:
        yield running


def fill_topic(broker: LocalBroker, **settings: Any) -> Path:
    """Send six records with the present time into three segments. Returns the directory of the partition."""
    broker.create_topic(TOPIC, segment_bytes=SEGMENT_BYTES, **settings)
    with connect(broker) as client:
        for _ in range(6):
            append(client, TOPIC, VALUE, timestamp=broker.now_ms)
    return Path(broker.directory) / f"{TOPIC}-0"


def read_bounds(broker: LocalBroker) -> tuple[int, int]:
    with connect(broker) as client:
        return list_offset(client, TOPIC, EARLIEST).offset, list_offset(client, TOPIC, LATEST).offset


def list_logs(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.log"))


def test_records_are_deleted_when_they_are_too_old(broker: LocalBroker, caplog: pytest.LogCaptureFixture) -> None:
    # The active segment is rolled first, and deleted too. The log continues at the same offset, also after a restart.
    caplog.set_level("INFO")
    directory = fill_topic(broker, retention_ms=2 * DAY_MS, file_delete_delay_ms=5000)
    broker.advance(days=1)
    assert read_bounds(broker) == (0, 6)
    broker.advance(days=1, minutes=2)
    assert read_bounds(broker) == (6, 6)
    assert "orders-0: retention drops segments 0, 2, 4: older than retention.ms=172800000" in caplog.text
    assert list_logs(directory) == ["00000000000000000006.log"]
    assert len(list(directory.glob("*.log.deleted"))) == 3
    broker.advance(seconds=6)
    assert not list(directory.glob("*.deleted"))
    broker.kill()
    broker.restart()
    assert read_bounds(broker) == (6, 6)
    with connect(broker) as client:
        assert append(client, TOPIC, b"new", timestamp=broker.now_ms) == 6
        assert client.fetch(TOPIC, 0, 0).error_code == 1


def test_records_are_deleted_when_the_log_is_too_large(broker: LocalBroker) -> None:
    directory = fill_topic(broker, retention_bytes=SEGMENT_BYTES)
    broker.advance(minutes=2)
    assert read_bounds(broker) == (2, 6)
    assert list_logs(directory) == [f"{base:020}.log" for base in (2, 4)]


@pytest.mark.parametrize("policy", ["compact", ""])
def test_without_the_delete_policy_nothing_is_deleted_by_age_or_size(policy: str, broker: LocalBroker) -> None:
    broker.create_topic(TOPIC, cleanup_policy=policy, retention_ms=1, retention_bytes=1)
    with connect(broker) as client:
        for number in range(3):
            client.produce(TOPIC, 0, make_keyed_batch(b"%d" % number, broker.now_ms))
    broker.advance(days=30)
    assert read_bounds(broker) == (0, 3)


def make_keyed_batch(key: bytes, timestamp: int) -> bytearray:
    return encode([(key, b"value", (), timestamp)])


def test_a_topic_with_both_policies_deletes_by_age_and_size(broker: LocalBroker) -> None:
    broker.create_topic(TOPIC, cleanup_policy="compact,delete", retention_ms=DAY_MS)
    with connect(broker) as client:
        client.produce(TOPIC, 0, make_keyed_batch(b"a", broker.now_ms))
    broker.advance(days=2)
    assert read_bounds(broker) == (1, 1)


def test_a_changed_retention_setting_takes_effect_at_the_next_check(broker: LocalBroker) -> None:
    # The broker's default is seven days; the topic then gets one day.
    fill_topic(broker)
    broker.advance(days=6)
    assert read_bounds(broker) == (0, 6)
    entry = ConfigEntry("retention.ms", str(DAY_MS), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
    broker.advance(minutes=2)
    assert read_bounds(broker) == (6, 6)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_delete_records_goes_up_to_the_high_watermark_and_survives_a_restart(end: str, broker: LocalBroker) -> None:
    # An offset past the high watermark is refused and changes nothing. Up to it the log is empty, and goes on at the
    # same offset after a restart.
    fill_topic(broker)
    with connect(broker) as client:
        assert delete_records(client, 7) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert read_bounds(broker) == (0, 6)
        assert delete_records(client, 6) == (0, 6)
    getattr(broker, end)()
    broker.restart()
    assert read_bounds(broker) == (6, 6)
    with connect(broker) as client:
        assert append(client, TOPIC, b"new") == 6


def delete_records(client: RawClient, offset: int) -> tuple[int, int]:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=TOPIC, partitions=[partition])], timeout_ms=PATIENCE_MS
    )
    result = client.request(request, 2).topics[0].partitions[0]
    return result.error_code, result.low_watermark


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_files_that_wait_for_their_deletion_are_removed_by_the_next_start(end: str, broker: LocalBroker) -> None:
    # Segments removed by retention wait for file.delete.delay.ms when the broker ends: none comes back, none stays.
    directory = fill_topic(broker, retention_bytes=SEGMENT_BYTES)
    broker.advance(minutes=2)
    assert list(directory.glob("*.log.deleted"))
    getattr(broker, end)()
    (directory / "00000000000000000002.index.deleted").touch()
    (directory / "00000000000000000003.log.cleaned").write_bytes(b"half")
    (directory / "00000000000000000001.index").touch()
    broker.restart()
    assert read_bounds(broker) == (2, 6)
    assert not [path for path in directory.iterdir() if path.suffix in (".deleted", ".cleaned")]
    assert not (directory / "00000000000000000001.index").exists()
