"""Records are deleted up to the middle of a batch. Every replica is copied all the same, and begins there."""

import os
import shutil
from collections.abc import Iterator

import pytest

import ottla.testing
from ottla.broker.broker import Broker
from ottla.cluster.entities import PartitionImage
from ottla.errors import ErrorCode
from ottla.records import batch
from ottla.testing import LocalCluster
from ottla.testing.local_cluster import ClusterBroker, wait_until
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.cluster.test_fixture_faults import ask
from tests.raw_client import RawClient
from tests.unit.replication.small_cluster import read

TOPIC = "purged"
START, END = 25, 40


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """Four batches of ten records on brokers 1 and 2, deleted up to the middle of the third."""
    with ottla.testing.cluster(brokers=3) as local:
        local.create_topic(TOPIC, replication_factor=3)
        reassign(local, 1, 2)
        leader = local.brokers[find_state(local.brokers[0]).leader - 1]
        with RawClient(leader.host, leader.port) as client:
            for _ in range(4):
                client.produce(TOPIC, 0, bytes(batch.encode([(None, b"%d" % each, (), 0) for each in range(10)])))
        deleted = DeleteRecordsTopic(name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=0, offset=START)])
        answer = ask(leader, DeleteRecordsRequest(topics=[deleted], timeout_ms=60_000), 2)
        assert answer.topics[0].partitions[0].low_watermark == START
        yield local


def reassign(cluster: LocalCluster, *replicas: int) -> None:
    """The first of the replicas leads in the end."""
    wanted = ReassignableTopic(
        name=TOPIC, partitions=[ReassignablePartition(partition_index=0, replicas=list(replicas))]
    )
    answer = ask(cluster.brokers[0], AlterPartitionReassignmentsRequest(topics=[wanted], timeout_ms=60_000), 0)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
    wait_until(lambda: all(isr_at(broker) == sorted(replicas) for broker in cluster.brokers))


def find_state(broker: ClusterBroker) -> PartitionImage:
    return broker.inspect(lambda each: each.node.image.topics_by_name[TOPIC].partitions[0])


def isr_at(broker: ClusterBroker) -> list[int]:
    """Who is in sync, as one broker knows it; nobody while replicas come or go."""
    state = find_state(broker)
    return [] if state.adding or state.removing else sorted(state.isr)


def find_records(broker: Broker) -> tuple[int, list[tuple[int, int, bytes | None]]]:
    log = broker.node.replicas.get(TOPIC, 0).log
    return log.log_start_offset, read(log)


def check_replicas(*brokers: ClusterBroker) -> None:
    wait_until(lambda: all(broker.inspect(find_records)[0] == START for broker in brokers))
    for broker in brokers:
        _, records = broker.inspect(find_records)
        assert [offset for offset, _, _ in records] == list(range(START, END))
        assert [value for _, _, value in records] == [b"%d" % (offset % 10) for offset in range(START, END)]


def test_a_partition_is_reassigned_to_a_new_broker(cluster: LocalCluster) -> None:
    first, second, third = cluster.brokers
    reassign(cluster, 3, 1)
    check_replicas(first, third)
    reassign(cluster, 3, 2)
    check_replicas(second, third)


def test_a_follower_that_lost_its_disk_is_filled_again(cluster: LocalCluster) -> None:
    first, second, _ = cluster.brokers
    second.stop()
    shutil.rmtree(second.directory)
    os.mkdir(second.directory)
    second.restart()
    wait_until(lambda: isr_at(first) == [1, 2])
    check_replicas(first, second)


def test_a_replica_moves_to_another_directory_and_survives_a_kill(cluster: LocalCluster) -> None:
    first, second, _ = cluster.brokers
    first.stop()
    moved_to = os.path.join(first.directory, "two")
    first._config = first._config.with_changes({"log.dirs": f"{first.directory},{moved_to}"})
    first.restart()
    wait_until(lambda: isr_at(first) == [1, 2])
    topic = AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])
    answer = ask(first, AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=moved_to, topics=[topic])]), 2)
    assert answer.results[0].partitions[0].error_code == ErrorCode.NONE
    wait_until(lambda: first.inspect(lambda each: each.node.replicas.get(TOPIC, 0).log.directory).startswith(moved_to))
    check_replicas(first, second)
    first.kill()
    first.restart()
    wait_until(lambda: isr_at(first) == [1, 2])
    check_replicas(first, second)
