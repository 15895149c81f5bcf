"""A broker gives up partitions that its disk has taken from it: who leads them then, and who stays in sync."""

import pytest

from ottla.cluster import changes as change
from ottla.cluster.changes import NO_LEADER, CreatePartition, CreateTopic, Endpoint
from ottla.cluster.image import EMPTY, Image
from ottla.cluster.registration import BrokerRegistration, fence_broker, register_broker, unfence_broker
from ottla.cluster.resignation import AT_ONCE_MAX, resign_leadership
from ottla.errors import ErrorCode, KafkaError

TOPIC_ID = b"t" * 16


def cluster(brokers: int, partitions: int = 1) -> Image:
    """Every broker keeps every partition, all are in sync, broker 1 leads."""
    image = EMPTY
    for broker in range(1, brokers + 1):
        newcomer = BrokerRegistration(
            broker, bytes([broker]) * 16, (Endpoint("PLAINTEXT", "localhost", 9092, "PLAINTEXT"),)
        )
        decision = register_broker(image, newcomer, "cluster")
        image = image.replay(image.version + 1, decision.changes)
        image = image.replay(image.version + 1, unfence_broker(image, broker, decision.result).changes)
    replicas = tuple(range(1, brokers + 1))
    made: list[change.Change] = [CreateTopic(TOPIC_ID, "orders")]
    made += [CreatePartition(TOPIC_ID, index, replicas, replicas, 1) for index in range(partitions)]
    return image.replay(image.version + 1, made)


def after(image: Image, broker: int, *indexes: int) -> Image:
    decision = resign_leadership(image, broker, image.brokers[broker].epoch, [(TOPIC_ID, index) for index in indexes])
    return image.replay(image.version + 1, decision.changes)


def state(image: Image, index: int = 0) -> tuple[int, tuple[int, ...], list[int]]:
    topic = image.topic_by_id(TOPIC_ID)
    assert topic is not None
    partition = topic.partitions[index]
    return partition.leader, partition.isr, image.offline_replicas(partition)


def test_the_last_in_sync_replica_stays_one_and_nobody_leads() -> None:
    # It has every record: when its broker registers again, it leads again.
    image = after(cluster(1), 1, 0)
    assert state(image) == (NO_LEADER, (1,), [1])
    assert after(image, 1, 0).topics_by_name == image.topics_by_name, "once is enough"


def test_another_replica_leads() -> None:
    image = after(cluster(3), 1, 0)
    assert state(image) == (2, (2, 3), [])


def test_one_that_is_alive_leads() -> None:
    image = cluster(3)
    image = image.replay(image.version + 1, fence_broker(image, 2, image.brokers[2].epoch).changes)
    assert state(after(image, 1, 0))[0] == 3


def test_a_follower_leaves_the_in_sync_replicas() -> None:
    assert state(after(cluster(2), 2, 0)) == (1, (1,), [])


def test_what_is_not_named_is_not_touched_and_what_is_gone_does_no_harm() -> None:
    image = after(cluster(1, partitions=2), 1, 1, 7)
    assert [state(image, index)[0] for index in (0, 1)] == [1, NO_LEADER]
    image = cluster(1)
    assert not resign_leadership(image, 1, image.brokers[1].epoch, [(b"?" * 16, 0)]).changes


def test_an_entry_has_its_limit() -> None:
    # The rest is for the next call.
    image = cluster(1, partitions=AT_ONCE_MAX + 5)
    everything = range(AT_ONCE_MAX + 5)
    image = after(image, 1, *everything)
    assert sum(state(image, index)[0] == NO_LEADER for index in everything) == AT_ONCE_MAX
    image = after(image, 1, *everything)
    assert sum(state(image, index)[0] == NO_LEADER for index in everything) == AT_ONCE_MAX + 5


def test_a_broker_that_was_replaced_decides_nothing() -> None:
    image = cluster(1)
    with pytest.raises(KafkaError) as refused:
        resign_leadership(image, 1, image.brokers[1].epoch - 1, [(TOPIC_ID, 0)])
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
