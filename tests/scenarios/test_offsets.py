"""ListOffsets and OffsetForLeaderEpoch: special timestamps, ordinary ones, leader epochs, and what is refused."""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.testing import LocalBroker
from ottla.testing import broker as local_broker
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.raw_client import RawClient
from tests.scenarios.client_calls import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    append,
    connect,
    list_offset,
    make_batch,
    produce_batch,
)

EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6


def epoch_end(client: RawClient, topic: str, epoch: int, current: int = -1, version: int = 4) -> Any:
    asked = OffsetForLeaderPartition(leader_epoch=epoch, current_leader_epoch=current)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])])
    return client.request(request, version).topics[0].partitions[0]


@pytest.fixture(params=("running", "stop", "kill"))
def full(request: pytest.FixtureRequest) -> Iterator[RawClient]:
    """A topic with offsets 0 to 5 in three batches with timestamps 100 101 | 300 301 | 200 201; restarted or not."""
    with local_broker() as broker:
        broker.create_topic("times")
        broker.create_topic("empty")
        with connect(broker) as client:
            for timestamp in (100, 300, 200):
                append(client, "times", b"x", b"y", timestamp=timestamp)
        if request.param != "running":
            getattr(broker, request.param)()
            broker.restart()
        with connect(broker) as client:
            yield client


def test_special_timestamps_are_looked_up(full: RawClient) -> None:
    # Earliest and latest have no timestamp, the largest timestamp has its record, and nothing is on tiered storage.
    found = {time: list_offset(full, "times", time) for time in range(-1, -7, -1)}
    assert all(each.error_code == 0 for each in found.values())
    assert {time: (each.offset, each.timestamp) for time, each in found.items()} == {
        LATEST: (6, -1),
        EARLIEST: (0, -1),
        MAX_TIMESTAMP: (3, 301),
        EARLIEST_LOCAL: (0, -1),
        LATEST_TIERED: (-1, -1),
        EARLIEST_PENDING_UPLOAD: (-1, -1),
    }


def test_an_empty_partition(full: RawClient) -> None:
    found = [list_offset(full, "empty", time) for time in (LATEST, EARLIEST, MAX_TIMESTAMP, 0, 5)]
    assert [(each.error_code, each.offset, each.timestamp) for each in found] == [
        (0, 0, -1),
        (0, 0, -1),
        (0, -1, -1),
        (0, -1, -1),
        (0, -1, -1),
    ]


@pytest.mark.parametrize(
    ("time", "offset", "timestamp"),
    [
        (0, 0, 100),
        (100, 0, 100),
        (101, 1, 101),
        (102, 2, 300),
        (200, 2, 300),
        (300, 2, 300),
        (301, 3, 301),
        (302, -1, -1),
        (2**62, -1, -1),
    ],
)
def test_the_first_record_at_or_after_a_timestamp(time: int, offset: int, timestamp: int, full: RawClient) -> None:
    # The record with the lowest offset counts, although later records may have lower timestamps.
    found = list_offset(full, "times", time)
    assert (found.error_code, found.offset, found.timestamp) == (0, offset, timestamp)


@pytest.mark.parametrize(
    ("time", "first_version"), [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (-6, 11), (-7, 12)]
)
def test_a_special_timestamp_is_refused_in_versions_that_do_not_have_it(
    time: int, first_version: int, client: RawClient, topic: str
) -> None:
    append(client, topic, b"x")
    for version in range(1, 12):
        code = list_offset(client, topic, time, version=version).error_code
        assert code == (0 if version >= first_version else ErrorCode.UNSUPPORTED_VERSION), version


def test_unknown_and_repeated_partitions(client: RawClient, topic: str) -> None:
    # Each partition has its own code. A partition that is asked for twice is refused, as in Kafka.
    assert list_offset(client, "nobody", LATEST).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in (0, 0, 5)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=partitions)])
    (answered,) = client.request(request, 11).topics
    codes = {(each.partition_index, each.error_code) for each in answered.partitions}
    assert (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) in codes
    assert (0, ErrorCode.INVALID_REQUEST) in codes


def test_each_start_begins_an_epoch_that_ends_where_the_next_begins() -> None:
    # Three starts, three epochs. An epoch without records ends where the one before it does; a future one is unknown.
    with local_broker() as broker:
        broker.create_topic("epochs")
        epochs = []
        for _ in range(3):
            with connect(broker) as client:
                append(client, "epochs", b"x", b"y")
                epochs.append(list_offset(client, "epochs", LATEST).leader_epoch)
            broker.restart()
        assert epochs == sorted(set(epochs))
        with connect(broker) as client:
            for number, epoch in enumerate(epochs):
                found = epoch_end(client, "epochs", epoch)
                assert (found.error_code, found.leader_epoch, found.end_offset) == (0, epoch, 2 * number + 2)
            now = list_offset(client, "epochs", LATEST).leader_epoch
            assert now > epochs[-1]
            beyond = epoch_end(client, "epochs", now + 5)
            assert (beyond.error_code, beyond.leader_epoch, beyond.end_offset) == (0, -1, -1)
            assert list_offset(client, "epochs", EARLIEST).leader_epoch == epochs[0]


def test_the_wrong_leader_epoch_is_refused_everywhere() -> None:
    # An older one is fenced, a newer one unknown: ListOffsets and OffsetForLeaderEpoch (Fetch has its own test).
    with local_broker() as broker:
        broker.create_topic("fenced")
        broker.restart()
        with connect(broker) as client:
            produce_batch(client, "fenced", make_batch(b"x"))
            now = list_offset(client, "fenced", LATEST).leader_epoch
            for given, code in (
                (now, 0),
                (now - 1, ErrorCode.FENCED_LEADER_EPOCH),
                (now + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
            ):
                assert list_offset(client, "fenced", LATEST, leader_epoch=given).error_code == code
                assert epoch_end(client, "fenced", 0, current=given).error_code == code


def test_epochs_of_an_unknown_partition(shared_broker: LocalBroker, client: RawClient) -> None:
    assert epoch_end(client, "nobody", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
