"""Adding partitions: never fewer, as many replicas as the topic has, and changes that fit the image."""

from collections.abc import Sequence
from random import Random

import pytest

from ottla.cluster import changes as change
from ottla.cluster.changes import Endpoint
from ottla.cluster.image import EMPTY, Image
from ottla.cluster.partitions import create_partitions
from ottla.cluster.topics import NewTopic, create_topic
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError


def cluster(brokers: int, replication_factor: int = 1, partitions: int = 2) -> Image:
    image = EMPTY
    for broker_id in range(1, brokers + 1):
        endpoint = Endpoint("PLAINTEXT", "localhost", 9091 + broker_id, "PLAINTEXT")
        register = change.RegisterBroker(broker_id, (bytes([broker_id]) * 16,), (endpoint,))
        image = image.replay(image.version + 1, [register])
        image = image.replay(image.version + 1, [change.UnfenceBroker(broker_id, image.version)])
    topic = NewTopic("orders", partitions, replication_factor)
    return image.replay(image.version + 1, create_topic(image, topic, BrokerConfig.of({}), Random(1)).changes)


def wait_for_growth(image: Image, count: int, assignments: Sequence[Sequence[int]] | None = None) -> Image:
    return image.replay(image.version + 1, create_partitions(image, "orders", count, assignments, Random(2)).changes)


def refusal(
    image: Image, count: int, assignments: Sequence[Sequence[int]] | None = None, name: str = "orders"
) -> KafkaError:
    with pytest.raises(KafkaError) as refused:
        create_partitions(image, name, count, assignments, Random(2))
    return refused.value


def test_new_partitions_follow_the_old_ones() -> None:
    """The old ones stay as they are; the new ones have as many replicas, all in sync, and a leader."""
    before = cluster(3, replication_factor=2)
    after = wait_for_growth(before, 5)
    partitions = after.topics_by_name["orders"].partitions
    assert partitions[:2] == before.topics_by_name["orders"].partitions
    assert len(partitions) == 5
    for partition in partitions[2:]:
        assert len(set(partition.replicas)) == 2
        assert (partition.isr, partition.leader, partition.leader_epoch) == (
            partition.replicas,
            partition.replicas[0],
            0,
        )


def test_an_assignment_is_kept_as_given() -> None:
    """The first entry is for the first new partition; who is dead is not in sync."""
    image = cluster(3, replication_factor=2)
    image = image.replay(image.version + 1, [change.FenceBroker(2, image.brokers[2].epoch)])
    third, fourth = wait_for_growth(image, 4, [[2, 3], [3, 1]]).topics_by_name["orders"].partitions[2:]
    assert (third.replicas, third.isr, third.leader) == ((2, 3), (3,), 3)
    assert (fourth.replicas, fourth.isr, fourth.leader) == ((3, 1), (3, 1), 3)


@pytest.mark.parametrize("count", [-1, 0, 1, 2])
def test_never_fewer_nor_the_same(count: int) -> None:
    """INVALID_PARTITIONS with both numbers in the message."""
    error = refusal(cluster(1), count)
    assert error.code is ErrorCode.INVALID_PARTITIONS
    assert "2 partition" in error.message
    assert str(count) in error.message


@pytest.mark.parametrize(
    ("assignments", "said"),
    [
        ([], "given for 0"),
        ([[1], [1]], "given for 2"),
        ([[]], "no replica"),
        ([[9]], "no broker 9"),
        ([[1, 1]], "twice"),
        ([[1, 2]], "2 replica"),
    ],
)
def test_assignments_that_cannot_be(assignments: Sequence[Sequence[int]], said: str) -> None:
    """INVALID_REPLICA_ASSIGNMENT, and the message says what is wrong."""
    error = refusal(cluster(2), 3, assignments)
    assert error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert said in error.message


def test_refusals() -> None:
    """A topic that is not there, more partitions than any entry holds, nobody alive."""
    assert refusal(cluster(1), 3, name="other").code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(cluster(1), 100_000).code is ErrorCode.INVALID_PARTITIONS
    image = cluster(2, replication_factor=2)
    for broker_id in (1, 2):
        image = image.replay(image.version + 1, [change.FenceBroker(broker_id, image.brokers[broker_id].epoch)])
    assert refusal(image, 3).code is ErrorCode.INVALID_REPLICATION_FACTOR
