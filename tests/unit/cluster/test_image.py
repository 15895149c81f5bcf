"""The image: what each change does to it, and that it can be written down and read back."""

import time

import pytest
from hypothesis import given, settings

from ottla.cluster import changes as change
from ottla.cluster.changes import Change, ConfigResource, Endpoint, TopicReplicas
from ottla.cluster.image import EMPTY, Image, PartitionImage, ReplayError
from tests.unit.cluster.histories import History, histories, replayed

ID = bytes(range(16))
OTHER = bytes(range(1, 17))
HERE = (Endpoint("PLAINTEXT", "localhost", 9092, "PLAINTEXT"),)


def step(image: Image, *changes: Change) -> Image:
    return image.replay(image.version + 1, changes)


def started(image: Image, broker_id: int, *, clean: bool = True) -> Image:
    image = step(image, change.RegisterBroker(broker_id, (bytes([broker_id]) * 16,), HERE, None, clean))
    return step(image, change.UnfenceBroker(broker_id, image.brokers[broker_id].epoch))


def with_topic(image: Image, replicas: tuple[int, ...]) -> Image:
    partition = change.CreatePartition(ID, 0, replicas, replicas, replicas[0])
    return step(image, change.CreateTopic(ID, "orders"), partition)


def only(image: Image) -> PartitionImage:
    partition = image.partition("orders", 0)
    assert partition is not None
    return partition


@given(histories())
@settings(max_examples=100, deadline=None)
def test_a_snapshot_replays_into_an_equal_image(history: History) -> None:
    """Nothing is lost or invented, and equal images write equal snapshots."""
    image = replayed(history)
    again = EMPTY.replay(image.version, image.snapshot())
    assert again == image
    assert again.snapshot() == image.snapshot()


@given(histories())
@settings(max_examples=100, deadline=None)
def test_every_partition_has_a_leader_that_serves_or_none(history: History) -> None:
    """The leader is in sync and running; a candidate that serves is not left out; epochs never go back."""
    image = EMPTY
    for changes in history:
        before, image = image, image.replay(image.version + 1, changes)
        for topic in image.topics():
            assert image.topic_by_id(topic.id) is topic
            for number, partition in enumerate(topic.partitions):
                isr, elr = set(partition.isr), set(partition.elr)
                assert isr | elr <= set(partition.replicas)
                assert not isr & elr
                if partition.leader >= 0:
                    assert partition.leader in partition.isr
                    assert not image.brokers[partition.leader].fenced
                    assert partition.leader not in partition.offline
                    assert partition.last_known_leader == -1
                else:
                    assert not any(image.serves(each) for each in (isr | elr) - set(partition.offline))
                old = before.topic_by_id(topic.id)
                if old is not None:
                    was = old.partitions[number]
                    assert partition.leader_epoch >= was.leader_epoch + (partition.leader != was.leader)
                    assert (partition.partition_epoch > was.partition_epoch) == (partition != was)


@given(histories(10))
@settings(max_examples=20, deadline=None)
def test_replay_leaves_the_old_image_alone(history: History) -> None:
    """Readers of an older version see what they saw."""
    image = replayed(history[:-1])
    before = image.snapshot()
    image.replay(image.version + 1, history[-1])
    assert image.snapshot() == before


def test_a_single_broker_leads_again_after_a_restart_at_a_new_epoch() -> None:
    """Registered, it is the only eligible replica; unfenced, it leads at a higher leader epoch."""
    image = with_topic(started(EMPTY, 1), (1,))
    registered = step(image, change.RegisterBroker(1, (b"\x01" * 16,), HERE, None, True))
    assert only(registered) == PartitionImage((1,), (), -1, 1, 1, elr=(1,), last_known_leader=1)
    assert registered.brokers[1].fenced
    assert registered.brokers[1].epoch == registered.version
    again = step(registered, change.UnfenceBroker(1, registered.version))
    assert only(again) == PartitionImage((1,), (1,), 1, 2, 2)


def test_a_single_broker_leads_again_after_a_crash() -> None:
    """Nobody has more than the last known leader. It is marked, because it may lack records that it acknowledged."""
    image = started(with_topic(started(EMPTY, 1), (1,)), 1, clean=False)
    assert only(image) == PartitionImage((1,), (1,), 1, 2, 2, recovering=True)


def test_a_fenced_leader_hands_over_to_the_first_replica_in_sync() -> None:
    """In the order of the replicas, not of the ISR; the fenced one leaves the ISR."""
    image = with_topic(started(started(started(EMPTY, 1), 2), 3), (1, 3, 2))
    image = step(image, change.FenceBroker(1, image.brokers[1].epoch))
    assert (only(image).leader, only(image).isr, only(image).leader_epoch) == (3, (3, 2), 1)


def test_a_controller_that_registers_again_has_lost_the_controllership() -> None:
    """A new process does not inherit what the old one won."""
    image = started(EMPTY, 1)
    image = step(image, change.BecomeController(1, image.brokers[1].epoch))
    assert image.controller is not None
    assert image.controller.epoch == image.version
    assert started(image, 1).controller is None


def test_deleting_a_topic_takes_its_settings_along() -> None:
    """A topic of the same name starts afresh."""
    image = with_topic(started(EMPTY, 1), (1,))
    image = step(image, change.SetConfig(ConfigResource.TOPIC, "orders", "retention.ms", "5"))
    assert dict(image.config(ConfigResource.TOPIC, "orders")) == {"retention.ms": "5"}
    gone = step(image, change.DeleteTopic(ID))
    assert gone.topic("orders") is None
    assert not gone.config(ConfigResource.TOPIC, "orders")
    assert gone.topic_like("orders") is None
    assert with_topic(gone, (1,)).topic("orders") is not None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (change.SetClusterId("b"), "this is already cluster a"),
        (change.CreateTopic(OTHER, "orders"), "topic 'orders' is there already"),
        (change.CreateTopic(ID, "other"), "cannot be the id of a new topic"),
        (change.CreateTopic(bytes(16), "other"), "cannot be the id of a new topic"),
        (change.CreateTopic(b"x", "other"), "cannot be the id of a new topic"),
        (change.CreatePartition(OTHER, 0, (1,), (1,), 1), "no topic has id"),
        (change.CreatePartition(ID, 0, (1,), (1,), 1), "the next partition of 'orders' is 1, not 0"),
        (change.CreatePartition(ID, 1, (), (), -1), r"replicas \[\]"),
        (change.CreatePartition(ID, 1, (1, 1), (1,), 1), r"replicas \[1, 1\]"),
        (change.CreatePartition(ID, 1, (1,), (2,), 2), r"in-sync replicas \[2\] of \[1\]"),
        (change.CreatePartition(ID, 1, (1, 2), (1,), 2), r"leader 2 is not in sync: \[1\]"),
        (change.ChangePartition(ID, 1, 0), "topic 'orders' has no partition 1"),
        (change.ChangePartition(ID, 0, 9), "partition is at epoch 0, not 9"),
        (change.ChangePartition(ID, 0, 0, isr=(2,)), "in-sync replicas"),
        (change.ChangePartition(ID, 0, 0, leader=2), r"leader 2 is not in sync: \[1\]"),
        (change.ChangePartition(ID, 0, 0, adding=(2,)), r"adding \[2\] of \[1\]"),
        (
            change.TakeReplicasOffline(1, 2, (TopicReplicas(ID, (1,)),)),
            "broker 1 keeps no partition 1 of topic 'orders'",
        ),
        (change.TakeReplicasOffline(1, 2, (TopicReplicas(OTHER, (0,)),)), "no topic has id"),
        (change.BeginShutdown(9, 1), "broker 9 is not registered"),
        (change.SetElectionRules(7), "no election rules of level 7"),
        (change.VerifyDigest(bytes(16)), "two versions of Ottla replay it differently"),
        (change.DeleteTopic(OTHER), "no topic has id"),
        (change.SetConfig(ConfigResource.TOPIC, "x", "a", "b"), "no topic 'x' to configure"),
        (change.FenceBroker(9, 1), "broker 9 is not registered"),
        (change.UnfenceBroker(1, 9), "broker 1 is at epoch 2, not 9"),
        (change.UnregisterBroker(1), "broker 1 is not a fenced broker"),
        (change.RegisterBroker(-1, (ID,), ()), "broker -1 cannot register"),
        (change.RegisterBroker(1, (ID,), (), epoch=2), "broker 1 cannot register at epoch 2"),
        (change.BecomeController(1, 7), "broker 1 is at epoch 2, not 7"),
        (change.ReserveProducerIds(1, 2, 5, 10), "the next producer id is 0, not 5"),
        (change.ReserveProducerIds(1, 1, 0, 10), "broker 1 is at epoch 2, not 1"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_change_that_does_not_fit_is_refused(wrong: Change, message: str) -> None:
    """One line names the entry and the kind; the image stays as it was."""
    image = with_topic(started(step(EMPTY, change.SetClusterId("a")), 1), (1,))
    with pytest.raises(ReplayError, match=message) as refusal:
        step(image, change.SetFeature("f", 1), wrong)
    assert str(refusal.value).startswith(f"metadata entry 5, {type(wrong).__name__}: ")
    assert not image.features


def test_one_topic_among_many_costs_microseconds() -> None:
    """Creating a topic shares everything else: it may not cost a copy of 20,000 topics."""
    image = started(EMPTY, 1)
    for start in range(0, 20_000, 10_000):
        batch: list[Change] = []
        for number in range(start, start + 10_000):
            topic_id = (number + 1).to_bytes(16, "big")
            batch.append(change.CreateTopic(topic_id, f"topic-{number}"))
        image = step(image, *batch)
    started_at = time.process_time()
    for number in range(100):
        image = step(image, change.CreateTopic(b"\xff" * 15 + bytes([number]), f"new-{number}"))
    assert (time.process_time() - started_at) / 100 < 0.001
