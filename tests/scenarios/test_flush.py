"""With flush.messages=1 a record is neither acknowledged nor visible to consumers before it is on the disk."""

import errno
import os
import struct
from collections.abc import Iterator
from threading import Event

import pytest

from ottla.errors import ErrorCode
from ottla.testing import LocalBroker
from ottla.testing import broker as local_broker
from ottla.wire.produce import PartitionData, ProduceRequest, TopicData, read_response, write_request
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient
from tests.scenarios.client_calls import (
    LATEST,
    append,
    connect,
    decode_values,
    list_offset,
    make_batch,
    produce_batch,
    read_all_values,
)

PRODUCE_VERSION = 8
DEBUG = -2
"""The replica id with which ListOffsets returns the end of the log instead of the high watermark."""


class Disk:
    """Replaces fdatasync: a test can hold it back at a gate, or let it fail."""

    def __init__(self) -> None:
        self.open = Event()
        self.open.set()
        self.arrived = Event()
        self.calls = 0
        self.failure: OSError | None = None
        self._sync = os.fdatasync

    def __call__(self, descriptor: int) -> None:
        self.calls += 1
        self.arrived.set()
        assert self.open.wait(PATIENCE_S)
        if self.failure is not None:
            raise self.failure
        self._sync(descriptor)

    def close_gate(self) -> None:
        self.arrived.clear()
        self.open.clear()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    gated = Disk()
    monkeypatch.setattr(os, "fdatasync", gated)
    yield gated
    gated.open.set()


@pytest.fixture
def broker(disk: Disk) -> Iterator[LocalBroker]:
    with local_broker() as running:
        running.create_topic("safe", flush_messages=1)
        running.create_topic("fast")
        yield running


def send(client: RawClient, value: bytes, acks: int, correlation: int) -> None:
    """Send a produce request without waiting for its answer."""
    data = TopicData("safe", partitions=[PartitionData(0, memoryview(make_batch(value)))])
    header = struct.pack(">hhih", 0, PRODUCE_VERSION, correlation, -1)
    client.send_frame(write_request(PRODUCE_VERSION, ProduceRequest(None, acks, 20_000, [data]), header))


def answer(client: RawClient) -> tuple[int, int]:
    """Read the answer to a produce request. Returns error code and offset."""
    result = read_response(PRODUCE_VERSION, client.read_frame(), 4).topics[0].partitions[0]
    return result.error_code, result.base_offset


@pytest.mark.parametrize("acks", (-1, 1))
def test_an_acknowledgement_waits_for_the_disk_and_so_do_consumers(acks: int, disk: Disk, broker: LocalBroker) -> None:
    with connect(broker) as producer, connect(broker) as consumer:
        append(producer, "safe", b"first")
        disk.close_gate()
        send(producer, b"second", acks, 1)
        assert disk.arrived.wait(PATIENCE_S)
        assert decode_values(consumer.fetch("safe", 0, 0)) == [b"first"]
        fetched = consumer.fetch("safe", 0, 1, max_wait_ms=50)
        assert (decode_values(fetched), fetched.high_watermark) == ([], 1)
        assert list_offset(consumer, "safe", LATEST).offset == 1
        assert append(consumer, "fast", b"meanwhile") == 0
        disk.open.set()
        assert answer(producer) == (0, 1)
        assert decode_values(consumer.fetch("safe", 0, 1)) == [b"second"]


def test_many_producers_share_an_fsync(disk: Disk, broker: LocalBroker) -> None:
    # One fsync is running. All requests that come meanwhile share the next one: two calls for fifty acknowledgements.
    clients = [connect(broker) for _ in range(50)]
    with connect(broker) as first, connect(broker) as onlooker:
        append(first, "safe", b"first")
        disk.close_gate()
        before = disk.calls
        for number, client in enumerate(clients):
            send(client, b"%d" % number, -1, 1)
        assert disk.arrived.wait(PATIENCE_S)
        while list_offset(onlooker, "safe", LATEST, replica_id=DEBUG).offset < 51:
            pass  # waits until all are appended: the end of the log moves, the high watermark does not
        disk.open.set()
        offsets = []
        for client in clients:
            code, offset = answer(client)
            assert code == 0
            offsets.append(offset)
            client.close()
        assert sorted(offsets) == list(range(1, 51))
        assert disk.calls - before == 2


def test_a_failed_fsync_acknowledges_nothing(disk: Disk, broker: LocalBroker) -> None:
    # Every request that waited, and every later one in all partitions of that data directory, gets KAFKA_STORAGE_ERROR,
    # because nobody knows what else its disk has lost. After a restart the log has what is really on the disk.
    with connect(broker) as client, connect(broker) as consumer:
        append(client, "safe", b"first")
        disk.failure = OSError(errno.EIO, "the disk is broken")
        assert produce_batch(client, "safe", make_batch(b"lost?")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.failure = None
        assert produce_batch(client, "safe", make_batch(b"refused")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert consumer.fetch("safe", 0, 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert produce_batch(client, "fast", make_batch(b"refused")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    broker.kill()
    broker.restart()
    with connect(broker) as client:
        values = read_all_values(client, "safe")
        assert values in ([b"first"], [b"first", b"lost?"])
        assert append(client, "safe", b"next") == len(values)


def test_with_the_default_flush_settings_nobody_waits_for_the_disk(disk: Disk, broker: LocalBroker) -> None:
    # Kafka's default: a record is acknowledged when it is in the page cache.
    with connect(broker) as client:
        disk.close_gate()
        assert append(client, "fast", b"x") == 0
        assert decode_values(client.fetch("fast", 0, 0)) == [b"x"]


@pytest.mark.parametrize("end", ("kill", "stop"))
def test_acknowledged_records_survive_a_kill_and_a_stop(end: str, broker: LocalBroker) -> None:
    with connect(broker) as client:
        for number in range(20):
            append(client, "safe", b"%d" % number)
    getattr(broker, end)()
    broker.restart()
    with connect(broker) as client:
        assert read_all_values(client, "safe") == [b"%d" % number for number in range(20)]
