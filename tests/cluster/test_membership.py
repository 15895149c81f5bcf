"""How brokers join a cluster, are refused, and come back."""

import os
import shutil
from collections.abc import Iterator

import pytest

import ottla.testing
from ottla.broker.alone import CLUSTER_COPY
from ottla.cluster.local_copy import DIRECTORY
from ottla.cluster.memory_store import MemoryStore
from ottla.cluster.metadata_log import LogBehind
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.storage.directories import DirectoryError
from ottla.testing import LocalCluster
from ottla.testing.cuts import BrokerNetwork
from ottla.testing.local_cluster import ClusterBroker, wait_until
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.raw_client import RawClient

TOPIC = "orders"


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with ottla.testing.cluster(brokers=3) as local:
        yield local


def epoch_of(witness: ClusterBroker, broker: ClusterBroker) -> int:
    """The epoch of a broker's registration, as another broker knows it."""
    image = witness.inspect(lambda each: each.node.image.broker(broker.id))
    assert image is not None
    return image.epoch


def serves(witness: ClusterBroker, broker: ClusterBroker) -> bool:
    return witness.inspect(lambda each: each.node.image.serves(broker.id))


def list_topics(broker: ClusterBroker) -> dict[str, int]:
    """Each topic with its number of partitions that have a leader."""
    with RawClient(broker.host, broker.port) as client:
        answer = client.request(MetadataRequest(topics=None), 12)
    assert isinstance(answer, MetadataResponse)
    return {topic.name or "": sum(partition.leader_id > 0 for partition in topic.partitions) for topic in answer.topics}


def test_a_broker_whose_session_expired_registers_again_by_itself(cluster: LocalCluster) -> None:
    expired, witness, _ = cluster.brokers
    before = epoch_of(witness, expired)
    cluster.store.expire(expired.store_name)
    wait_until(lambda: epoch_of(witness, expired) > before and serves(witness, expired))
    cluster.create_topic(TOPIC, partitions=3)
    assert list_topics(expired)[TOPIC] == 3


def test_a_broker_that_was_fenced_registers_again_by_itself(cluster: LocalCluster) -> None:
    fenced, witness, _ = cluster.brokers
    before = epoch_of(witness, fenced)
    witness.inspect(lambda each: each.participation._fencing.note_gone(fenced.id, before))  # type: ignore[attr-defined]
    wait_until(lambda: epoch_of(witness, fenced) > before and serves(witness, fenced))


def test_a_broker_without_a_number_gets_one_and_keeps_it(cluster: LocalCluster) -> None:
    witness = cluster.brokers[0]
    new = ClusterBroker(0, {}, cluster.store, BrokerNetwork())
    new._config = new._config.with_changes({"node.id": None, "broker.id": "-1"})
    try:
        for _ in range(2):
            new.restart()
            new.id = new.inspect(lambda each: each.node.broker_id)
            assert new.id == 1001
            wait_until(lambda: serves(witness, new))
            new.stop()
    finally:
        new.close()


@pytest.mark.parametrize("is_copy", [False, True], ids=["empty", "copy"])
def test_a_second_broker_with_the_same_id_is_refused(cluster: LocalCluster, is_copy: bool) -> None:
    """Also if somebody has copied the directory of the first one, with its identity."""
    first = cluster.brokers[0]
    settings = {"zookeeper_session_timeout_ms": 100}
    second = ClusterBroker(first.id, settings, cluster.store, BrokerNetwork())
    try:
        if is_copy:
            shutil.copytree(first.directory, second.directory, dirs_exist_ok=True)
        cluster.store.session_timeout_s = 0.1  # of the next session: a foreign node is waited for that long
        with pytest.raises(KafkaError) as refusal:
            second.restart()
        assert refusal.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert f"id {first.id}" in refusal.value.message
        assert serves(cluster.brokers[1], first)
    finally:
        second.close()


def test_a_broker_alone_brings_its_topics_into_a_new_cluster() -> None:
    with ottla.testing.broker(node_id=1) as alone:
        alone.create_topic(TOPIC, partitions=3)
        alone.create_topic("settings", cleanup_policy="compact")
        alone.stop()
        with ottla.testing.cluster(brokers=2) as cluster:
            first, second = cluster.brokers
            for broker in cluster.brokers:
                broker.stop()
            cluster.store = MemoryStore()
            shutil.rmtree(first.directory)
            shutil.copytree(alone.directory, first.directory)
            shutil.rmtree(second.directory)
            for broker in cluster.brokers:
                broker._store = cluster.store
                broker.restart()
            wait_until(lambda: list_topics(second) == {TOPIC: 3, "settings": 1})
            config = second.inspect(lambda each: dict(each.node.image.topic_configs("settings")))
            assert config == {"cleanup.policy": "compact"}
            first.stop()
            first.restart()
            wait_until(lambda: list_topics(first) == {TOPIC: 3, "settings": 1})
            assert not [path for path in _names(first.directory) if path.endswith("-stray")]


def test_a_broker_alone_is_refused_by_a_cluster_that_has_topics(cluster: LocalCluster) -> None:
    with ottla.testing.broker(node_id=4) as alone:
        alone.create_topic(TOPIC)
        alone.stop()
        joining = ClusterBroker(4, {}, cluster.store, BrokerNetwork())
        try:
            shutil.rmtree(joining.directory)
            shutil.copytree(alone.directory, joining.directory)
            with pytest.raises(DirectoryError, match="belongs to cluster"):
                joining.restart()
            assert f"{TOPIC}-0" in _names(joining.directory)
        finally:
            joining.close()


def test_an_emptied_store_is_refused(cluster: LocalCluster) -> None:
    cluster.create_topic(TOPIC)
    broker = cluster.brokers[0]
    broker.stop()
    store = broker._store = MemoryStore()
    with pytest.raises(LogBehind, match=r"in the store in memory ends.*zookeeper\.connect.*ottla cluster restore"):
        broker.restart()
    shutil.rmtree(os.path.join(broker.directory, CLUSTER_COPY))  # as a version of Ottla without copies left it
    with pytest.raises(DirectoryError, match="the store in memory is empty"):
        broker.restart()
    assert f"{TOPIC}-0" in _names(broker.directory), "its data is left as it is"
    assert not store.commits, "and so is the store, which may be that of another cluster"


def test_a_directory_of_a_cluster_is_not_opened_without_it() -> None:
    assert CLUSTER_COPY == DIRECTORY
    with ottla.testing.cluster(brokers=1) as cluster:
        (broker,) = cluster.brokers
        cluster.create_topic(TOPIC)
        broker.stop()
        with ottla.testing.broker() as alone:
            alone.stop()
            shutil.rmtree(alone.directory)
            shutil.copytree(broker.directory, alone.directory)
            with pytest.raises(DirectoryError, match="--zookeeper"):
                alone.restart()
            assert f"{TOPIC}-0" in _names(alone.directory)


def test_the_settings_name_the_store() -> None:
    from ottla.cluster.zookeeper import ZooKeeper

    store = ZooKeeper.of(BrokerConfig.of({"zookeeper.connect": "one:2181,two:2181/path"}))
    assert isinstance(store, ZooKeeper)
    assert store.addresses == "one:2181,two:2181"


def _names(directory: str) -> list[str]:
    return os.listdir(directory)
