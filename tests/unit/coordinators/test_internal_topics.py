"""The replicas of internal topics: what brokers that start one after the other create, and what a broker alone does."""

from random import Random

import pytest

from ottla.cluster import changes as change
from ottla.cluster.changes import Endpoint
from ottla.cluster.image import EMPTY, Image
from ottla.config import BrokerConfig
from ottla.coordinators.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, InternalTopic
from ottla.errors import ErrorCode, KafkaError

DEFAULTS = BrokerConfig.of({})
SMALL = BrokerConfig.of(
    {"offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1"},
)
TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)


def cluster(brokers: int) -> Image:
    image = EMPTY
    for broker_id in range(1, brokers + 1):
        endpoint = Endpoint("PLAINTEXT", "localhost", 9091 + broker_id, "PLAINTEXT")
        image = image.replay(
            image.version + 1, [change.RegisterBroker(broker_id, (bytes([broker_id]) * 16,), (endpoint,))]
        )
        image = image.replay(image.version + 1, [change.UnfenceBroker(broker_id, image.version)])
    return image


def create(topic: InternalTopic, image: Image, config: BrokerConfig, *, is_member: bool) -> Image:
    return image.replay(image.version + 1, topic.create(image, config, Random(1), is_member=is_member).changes)


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_brokers_that_start_one_after_the_other_create_all_replicas(topic: InternalTopic) -> None:
    for alive in (1, 2):
        with pytest.raises(KafkaError) as refused:
            create(topic, cluster(alive), DEFAULTS, is_member=True)
        assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    image = create(topic, cluster(3), DEFAULTS, is_member=True)
    created = image.topic(topic.name)
    assert created is not None
    assert {len(partition.replicas) for partition in created.partitions} == {3}
    assert create(topic, image, DEFAULTS, is_member=True).topic(topic.name) is created


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_a_cluster_of_one_broker_says_so_in_its_settings(topic: InternalTopic) -> None:
    created = create(topic, cluster(1), SMALL, is_member=True).topic(topic.name)
    assert created is not None and {len(partition.replicas) for partition in created.partitions} == {1}


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_a_broker_alone_keeps_one_replica(topic: InternalTopic) -> None:
    created = create(topic, cluster(1), DEFAULTS, is_member=False).topic(topic.name)
    assert created is not None and {len(partition.replicas) for partition in created.partitions} == {1}


def test_transactions_need_two_replicas_in_sync() -> None:
    image = create(TRANSACTIONS_TOPIC, cluster(3), DEFAULTS, is_member=True)
    assert image.config(change.ConfigResource.TOPIC, TRANSACTIONS_TOPIC.name)["min.insync.replicas"] == "2"
