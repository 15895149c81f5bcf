"""Partitions follow the metadata: replicas come and go, topics vanish behind a snapshot, many are created in steps."""

import asyncio
import errno
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from ottla.broker.broker import Broker
from ottla.cluster.image import Image, PartitionImage, TopicImage
from ottla.cluster.metadata_log import Entry
from ottla.cluster.partitions import create_partitions
from ottla.errors import ErrorCode, KafkaError
from ottla.replication.partition import Partition
from ottla.replication.reconciliation import CREATED_AT_ONCE
from tests.simulation.disk import SimulatedDisk
from tests.unit.replication.three_directories import DIRECTORIES, append, create, directory_of, settled, started

TOPIC = "orders"
DATA = ("/data",)
ME, OTHER = 1, 2


class NotedFetchers:
    """Notes what it is told, as `follow orders-0 from 2 at 7`."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def follow(self, partition: Partition) -> None:
        assert partition.state is not None
        self.told.append(f"follow {partition} from {partition.state.leader} at {partition.state.leader_epoch}")

    def leave(self, partition: Partition) -> None:
        self.told.append(f"leave {partition}")


def change_partition(image: Image, index: int, state: PartitionImage, *, version: int | None = None) -> Image:
    """The next image, in which a partition of the topic has another state."""
    topic = image.topics_by_name[TOPIC]
    partitions = tuple(state if each == index else old for each, old in enumerate(topic.partitions))
    changed = replace(topic, partitions=partitions)
    return replace(image, version=version or image.version + 1, topics_by_name=image.topics_by_name.set(TOPIC, changed))


def apply(broker: Broker, after: Image) -> None:
    """Apply an image as if an entry were replayed that is a snapshot, so that no change names what is different."""
    before = broker.node.metadata.image
    broker.node.metadata.image = after
    broker.node.replication.reconciliation.apply(before, after, ())


def state_of(broker: Broker, index: int = 0) -> PartitionImage:
    topic: TopicImage = broker.node.image.topics_by_name[TOPIC]
    return topic.partitions[index]


def leads(partition: Partition) -> bool:
    return partition.is_leader


def test_a_replica_that_moved_to_another_broker_is_removed() -> None:
    async def run() -> None:
        disk = SimulatedDisk(Random(1))
        broker = await started(disk, DATA)
        await create(broker, TOPIC, 2)
        partition = broker.node.replicas.get(TOPIC, 0)
        append(partition, b"kept elsewhere")
        moved = replace(state_of(broker), replicas=(OTHER,), isr=(OTHER,), leader=OTHER, leader_epoch=7)
        apply(broker, change_partition(broker.node.image, 0, moved, version=broker.node.image.version + 5))
        await settled()
        with pytest.raises(KafkaError) as refusal:
            broker.node.replicas.get(TOPIC, 0)
        assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert broker.node.replicas.get(TOPIC, 1).is_leader
        names = [name for name in disk.list("/data") if name.startswith(f"{TOPIC}-0")]
        assert len(names) == 1 and names[0].endswith("-delete")
        back = replace(moved, replicas=(OTHER, ME), leader_epoch=8)
        apply(broker, change_partition(broker.node.image, 0, back, version=broker.node.image.version + 5))
        await settled()
        again = broker.node.replicas.get(TOPIC, 0)
        assert (again.log.end_offset, again.is_leader) == (0, False), "it begins anew as an empty follower"
        broker.abort()

    asyncio.run(run())


@pytest.mark.parametrize("is_member", [True, False])
def test_a_topic_that_a_snapshot_does_not_know_is_out_of_service_and_kept(is_member: bool) -> None:
    # Also while the broker is out of the cluster, as it is when the store was emptied under it and filled by others.
    async def run() -> None:
        disk = SimulatedDisk(Random(1))
        broker = await started(disk, DATA)
        await create(broker, TOPIC, 2)
        append(broker.node.replicas.get(TOPIC, 0), b"precious")
        image = broker.node.image
        topic = image.topics_by_name[TOPIC]
        if not is_member:
            broker.node.replication.reconciliation.step_down()
        without = replace(
            image,
            version=image.version + 5,
            topics_by_name=image.topics_by_name.delete(TOPIC),
            topic_names=image.topic_names.delete(topic.id),
        )
        snapshot = Entry(without.version, b"", tuple(without.snapshot()), snapshot=True)
        broker.node.metadata.publish(snapshot, without)
        with pytest.raises(KafkaError) as refusal:
            broker.node.replicas.get(TOPIC, 0)
        assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert sum(name.endswith("-stray") for name in disk.list("/data")) == 2
        broker.abort()

    asyncio.run(run())


def test_only_partitions_count_where_new_ones_are_created() -> None:
    # A new partition goes to the directory with the fewest. What the start found there and set aside is none.
    async def run() -> None:
        disk = SimulatedDisk(Random(1))
        for path in (*DIRECTORIES, "/two/gone-0", "/two/gone-1", "/three/gone-2"):
            disk.make_directory(path)
        broker = await started(disk)
        await create(broker, TOPIC, len(DIRECTORIES))
        found = [directory_of(broker, TOPIC, index) for index in range(len(DIRECTORIES))]
        await broker.stop(1.0)
        assert found == list(DIRECTORIES)

    asyncio.run(run())


def test_fetchers_hear_of_every_new_leader_and_of_the_end_of_following() -> None:
    async def run() -> None:
        broker = await started(SimulatedDisk(Random(1)), DATA)
        await create(broker, TOPIC)
        fetchers = broker.node.replication.reconciliation.fetchers = NotedFetchers()
        state = replace(state_of(broker), replicas=(OTHER, ME), leader=OTHER, leader_epoch=7, isr=(OTHER,))
        for after in (
            state,
            replace(state, isr=(OTHER, ME), partition_epoch=9),  # the same leader: nothing to tell
            replace(state, leader_epoch=8),
            replace(state, leader=-1, leader_epoch=9),
            replace(state, leader=OTHER, leader_epoch=10),
            replace(state, leader=ME, leader_epoch=11),
        ):
            apply(broker, change_partition(broker.node.image, 0, after, version=broker.node.image.version + 5))
        name = f"{TOPIC}-0"
        assert fetchers.told == [
            f"follow {name} from 2 at 7",
            f"follow {name} from 2 at 8",
            f"leave {name}",
            f"follow {name} from 2 at 10",
            f"leave {name}",
        ]
        broker.abort()

    asyncio.run(run())


def test_a_broker_that_stepped_down_leads_nothing_until_it_begins_again() -> None:
    async def run() -> None:
        broker = await started(SimulatedDisk(Random(1)), DATA)
        await create(broker, TOPIC)
        partition = broker.node.replicas.get(TOPIC, 0)
        reconciliation = broker.node.replication.reconciliation
        waiting = partition.high_watermark.reach(partition.log.end_offset + 1)
        reconciliation.step_down()
        assert leads(partition) is False
        with pytest.raises(KafkaError) as refusal:
            await waiting
        assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await create(broker, "later")  # an entry of the metadata does not make it lead
        assert leads(partition) is False and not list(broker.node.replicas.of_topic("later"))
        reconciliation.begin()
        assert leads(partition) and broker.node.replicas.get("later", 0).is_leader
        broker.abort()

    asyncio.run(run())


def test_room_for_a_missing_replica_does_not_make_a_broker_lead_that_stepped_down() -> None:
    async def run() -> None:
        disk = SimulatedDisk(Random(1))
        broker = await started(disk, DATA)
        await create(broker, TOPIC)
        partition = broker.node.replicas.get(TOPIC, 0)
        disk.fail("append", errno.ENOSPC, f"/data/{TOPIC}-1/*", times=None)
        await broker.node.metadata.change(lambda image: create_partitions(image, TOPIC, 2, None, broker.node.random))
        assert leads(partition) and list(broker.node.replicas.of_topic(TOPIC)) == [0]
        reconciliation = broker.node.replication.reconciliation
        reconciliation.step_down()
        disk.heal()
        await reconciliation.create_missing()
        assert leads(partition) is False and list(broker.node.replicas.of_topic(TOPIC)) == [0]
        reconciliation.begin()
        assert leads(partition) and broker.node.replicas.get(TOPIC, 1).is_leader
        broker.abort()

    asyncio.run(run())


def test_many_partitions_are_created_in_steps() -> None:
    async def run() -> None:
        count = 5 * CREATED_AT_ONCE
        broker = await started(SimulatedDisk(Random(1)), DATA)
        counts = [0]

        async def watch() -> None:
            while counts[-1] < count:
                await asyncio.sleep(0)
                counts.append(len(broker.node.replicas.of_topic(TOPIC)))

        watching = asyncio.create_task(watch())
        await create(broker, TOPIC, count)
        await watching
        steps = [after - before for before, after in pairwise(counts) if after != before]
        assert steps == [CREATED_AT_ONCE] * 5, "one step in each iteration of the loop"
        await broker.node.replication.reconciliation.wait_until_created()
        assert all(broker.node.replicas.get(TOPIC, index).is_leader for index in range(count))
        broker.abort()

    asyncio.run(run())
