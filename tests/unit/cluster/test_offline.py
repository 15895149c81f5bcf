"""A broker gives up partitions that its disk has taken from it: who leads them then, and when it serves them again."""

import pytest

from ottla.cluster import changes as change
from ottla.cluster.changes import NO_LEADER, CreatePartition, CreateTopic, Endpoint
from ottla.cluster.image import EMPTY, Image, PartitionImage
from ottla.cluster.offline import AT_ONCE_MAX, take_replicas_offline
from ottla.cluster.registration import BrokerRegistration, fence_broker, register_broker, unfence_broker
from ottla.errors import ErrorCode, KafkaError

TOPIC_ID = b"t" * 16


def cluster(brokers: int, partitions: int = 1) -> Image:
    """Every broker keeps every partition, all are in sync, broker 1 leads."""
    image = EMPTY
    for broker in range(1, brokers + 1):
        newcomer = BrokerRegistration(
            broker, (bytes([broker]) * 16,), (Endpoint("PLAINTEXT", "localhost", 9092, "PLAINTEXT"),)
        )
        decision = register_broker(image, newcomer, "cluster")
        image = image.replay(image.version + 1, decision.changes)
        image = image.replay(image.version + 1, unfence_broker(image, broker, decision.result).changes)
    replicas = tuple(range(1, brokers + 1))
    made: list[change.Change] = [CreateTopic(TOPIC_ID, "orders")]
    made += [CreatePartition(TOPIC_ID, index, replicas, replicas, 1) for index in range(partitions)]
    return image.replay(image.version + 1, made)


def after(image: Image, broker: int, *indexes: int) -> Image:
    decision = take_replicas_offline(
        image, broker, image.brokers[broker].epoch, [(TOPIC_ID, index) for index in indexes]
    )
    return image.replay(image.version + 1, decision.changes)


def state(image: Image, index: int = 0) -> tuple[int, tuple[int, ...], list[int]]:
    partition = partition_of(image, index)
    return partition.leader, partition.isr, image.offline_replicas(partition)


def partition_of(image: Image, index: int = 0) -> PartitionImage:
    topic = image.topic_by_id(TOPIC_ID)
    assert topic is not None
    return topic.partitions[index]


def restarted(image: Image, broker: int, directories: tuple[bytes, ...] | None = None) -> Image:
    before = image.brokers[broker]
    image = image.replay(
        image.version + 1,
        [change.RegisterBroker(broker, directories or before.directories, before.endpoints, None, clean=True)],
    )
    return image.replay(image.version + 1, [change.UnfenceBroker(broker, image.version)])


def test_nobody_leads_what_only_a_failed_directory_has_until_the_broker_registers_again() -> None:
    """The broker stays eligible, but it is not elected while its directory is away."""
    image = after(cluster(1), 1, 0)
    assert state(image) == (NO_LEADER, (), [1])
    assert (partition_of(image).elr, partition_of(image).last_known_leader) == ((1,), 1)
    assert after(image, 1, 0).topics_by_name == image.topics_by_name, "once is enough"
    unfenced = image.replay(image.version + 1, [change.UnfenceBroker(1, image.brokers[1].epoch)])
    assert state(unfenced)[0] == NO_LEADER
    assert state(restarted(image, 1)) == (1, (1,), [])


def test_another_replica_leads() -> None:
    """The one with the failed directory is out of sync and offline."""
    image = after(cluster(3), 1, 0)
    assert state(image) == (2, (2, 3), [1])
    assert partition_of(image).offline == (1,)


def test_one_that_is_alive_leads() -> None:
    """A fenced broker is passed over."""
    image = cluster(3)
    image = image.replay(image.version + 1, fence_broker(image, 2, image.brokers[2].epoch).changes)
    assert state(after(image, 1, 0))[0] == 3


def test_a_follower_leaves_the_in_sync_replicas() -> None:
    """The leader stays."""
    assert state(after(cluster(2), 2, 0)) == (1, (1,), [2])


def test_a_lost_log_never_leads_by_itself() -> None:
    """The last replica came back empty: nobody leads, also after further restarts."""
    image = cluster(2)
    image = image.replay(image.version + 1, fence_broker(image, 2, image.brokers[2].epoch).changes)
    epoch = image.brokers[1].epoch
    decision = take_replicas_offline(image, 1, epoch, [(TOPIC_ID, 0)], lost=True)
    image = image.replay(image.version + 1, decision.changes)
    assert state(image) == (NO_LEADER, (), [2])
    assert not take_replicas_offline(image, 1, epoch, [(TOPIC_ID, 0)], lost=True).changes, "once is enough"
    assert state(restarted(restarted(image, 1), 1))[0] == NO_LEADER


def test_the_only_replica_leads_although_its_log_was_never_on_disk() -> None:
    """The broker was killed right after the topic was created. All of its directories are there."""
    image = cluster(1)
    image = image.replay(
        image.version + 1,
        [change.RegisterBroker(1, image.brokers[1].directories, image.brokers[1].endpoints, None, clean=False)],
    )
    epoch = image.brokers[1].epoch
    assert not take_replicas_offline(image, 1, epoch, [(TOPIC_ID, 0)], lost=True).changes, "or it would be repeated"
    assert state(image)[0] == NO_LEADER
    image = image.replay(image.version + 1, unfence_broker(image, 1, epoch).changes)
    assert state(image) == (1, (1,), [])


def test_an_emptied_broker_never_leads_by_itself() -> None:
    """None of its directories is one that it had: every log is gone, and the metadata remembers it."""
    image = restarted(cluster(1), 1, (b"new" + bytes(13),))
    assert image.brokers[1].lost_directories == (b"\x01" * 16,)
    assert state(restarted(image, 1))[0] == NO_LEADER


def test_a_broker_without_one_of_its_directories_is_not_eligible() -> None:
    """Which logs were in it is not known here, so none counts as complete while another replica does."""
    more = b"more" + bytes(12)
    image = cluster(2)
    two = change.SetConfig(change.ConfigResource.TOPIC, "orders", "min.insync.replicas", "2")
    image = restarted(image.replay(image.version + 1, [two]), 2, (b"\x02" * 16, more))
    assert partition_of(image).elr == (2,)
    image = restarted(image, 2, (b"\x02" * 16,))
    assert (partition_of(image).isr, partition_of(image).elr) == ((1,), ())
    assert image.brokers[2].lost_directories == (more,)
    assert restarted(image, 2, (more, b"\x02" * 16)).brokers[2].lost_directories == ()


def test_what_is_not_named_is_not_touched_and_what_is_gone_does_no_harm() -> None:
    image = after(cluster(1, partitions=2), 1, 1, 7)
    assert [state(image, index)[0] for index in (0, 1)] == [1, NO_LEADER]
    image = cluster(1)
    assert not take_replicas_offline(image, 1, image.brokers[1].epoch, [(b"?" * 16, 0)]).changes


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
        take_replicas_offline(image, 1, image.brokers[1].epoch - 1, [(TOPIC_ID, 0)])
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
