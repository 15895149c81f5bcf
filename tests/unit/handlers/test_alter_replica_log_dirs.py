"""AlterReplicaLogDirs: replicas move between the data directories of a broker, and DescribeLogDirs shows them on the
way."""

import asyncio

from ottla.broker.broker import Broker
from ottla.cluster.changes import NO_LEADER, ChangePartition, CreatePartition, CreateTopic, RegisterBroker
from ottla.errors import ErrorCode
from ottla.handlers import alter_replica_log_dirs, describe_log_dirs
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.simulation.loop import simulate
from tests.unit.handlers.one_broker import call
from tests.unit.handlers.three_brokers import change
from tests.unit.replication.three_directories import TOPIC, create, directory_of, filled
from tests.unit.storage.logs import new_disk


def alter(broker: Broker, path: str, partition: int, topic: str = TOPIC) -> int:
    asked = AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[partition])])
    answer = alter_replica_log_dirs.handle(broker.node, call(AlterReplicaLogDirsRequest(dirs=[asked])))
    return answer.results[0].partitions[0].error_code


def describe(broker: Broker) -> dict[tuple[str, int], bool]:
    """Directory and partition -> whether the replica is on its way to that directory."""
    answer = describe_log_dirs.handle(broker.node, call(DescribeLogDirsRequest(topics=None)))
    return {
        (directory.log_dir, partition.partition_index): partition.is_future_key
        for directory in answer.results
        for topic in directory.topics
        for partition in topic.partitions
        if topic.name == TOPIC
    }


def test_a_replica_moves_to_another_directory_and_is_shown_in_both_meanwhile() -> None:
    async def scenario() -> None:
        broker = await filled(new_disk())
        before = directory_of(broker, TOPIC, 0)
        target = next(path for path in ("/one", "/two", "/three") if path != before)
        assert alter(broker, target, 0) == ErrorCode.NONE
        assert describe(broker)[before, 0] is False
        assert describe(broker)[target, 0] is True
        while directory_of(broker, TOPIC, 0) != target:
            await asyncio.sleep(0.1)
        assert (before, 0) not in describe(broker)
        assert describe(broker)[target, 0] is False
        assert broker.node.replicas.get(TOPIC, 0).log.end_offset == 1
        await broker.stop(1)

    simulate(scenario())


def test_the_directory_of_a_partition_that_does_not_exist_yet_is_remembered() -> None:
    async def scenario() -> None:
        broker = await filled(new_disk())
        for index in range(3):
            assert alter(broker, "/three", index, "later") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await create(broker, "later", 3)
        assert {directory_of(broker, "later", index) for index in range(3)} == {"/three"}
        await broker.stop(1)

    simulate(scenario())


def test_the_directory_of_a_replica_that_is_still_elsewhere_is_remembered() -> None:
    async def scenario() -> None:
        broker = await filled(new_disk())
        topic_id, others = b"e" * 16, (7, 8)
        for other in others:
            await change(broker, RegisterBroker(other, (bytes([other]) * 16,), ()))
        await change(
            broker, CreateTopic(topic_id, "elsewhere"), CreatePartition(topic_id, 0, others, others, NO_LEADER)
        )
        assert alter(broker, "/three", 0, "elsewhere") == ErrorCode.REPLICA_NOT_AVAILABLE
        here = (broker.node.broker_id, *others)
        await change(broker, ChangePartition(topic_id, 0, 0, replicas=here))
        assert directory_of(broker, "elsewhere", 0) == "/three"
        await broker.stop(1)

    simulate(scenario())


def test_what_cannot_be_moved_is_answered_with_the_reason() -> None:
    async def scenario() -> None:
        broker = await filled(new_disk())
        home = directory_of(broker, TOPIC, 0)
        assert alter(broker, "/nowhere", 0) == ErrorCode.LOG_DIR_NOT_FOUND
        assert alter(broker, home, 7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert alter(broker, home, 0, "missing") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert alter(broker, home, 0) == ErrorCode.NONE, "it is there already"
        await broker.stop(1)

    simulate(scenario())
