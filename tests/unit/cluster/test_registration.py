"""A broker registers, serves, is replaced: what its epoch protects from."""

import time
from dataclasses import replace

import pytest

from ottla.cluster import changes as change
from ottla.cluster.changes import Endpoint, encode
from ottla.cluster.image import EMPTY, Image
from ottla.cluster.registration import (
    BrokerRegistration,
    become_controller,
    fence_broker,
    register_broker,
    unfence_broker,
)
from ottla.errors import ErrorCode, KafkaError

BROKER = BrokerRegistration(1, (b"\x01" * 16,), (Endpoint("PLAINTEXT", "localhost", 9092, "PLAINTEXT"),))


def registered(image: Image, newcomer: BrokerRegistration = BROKER) -> tuple[Image, int]:
    decision = register_broker(image, newcomer, "cluster")
    return image.replay(image.version + 1, decision.changes), decision.result


def serving(image: Image, newcomer: BrokerRegistration = BROKER) -> tuple[Image, int]:
    image, epoch = registered(image, newcomer)
    return image.replay(image.version + 1, unfence_broker(image, newcomer.broker_id, epoch).changes), epoch


def code_of(decide: object) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        decide()  # type: ignore[operator]
    return refused.value.code


def test_the_first_registration_founds_the_cluster() -> None:
    """The epoch is the entry's version, and the cluster gets its id once."""
    image, epoch = registered(EMPTY)
    assert (image.cluster_id, epoch, image.brokers[1].epoch) == ("cluster", 1, 1)
    assert image.brokers[1].fenced
    assert image.brokers[1].clean
    again, epoch = registered(image)
    assert (again.cluster_id, epoch) == ("cluster", 2)


@pytest.mark.parametrize(("stopped_at", "clean"), [(None, False), (1, True), (7, False)])
def test_a_clean_stop_is_one_of_the_previous_epoch(stopped_at: int | None, clean: bool) -> None:
    """A clean-shutdown file of an older life proves nothing about the last one."""
    image, _ = serving(EMPTY)
    image, _ = registered(image, replace(BROKER, stopped_at_epoch=stopped_at))
    assert image.brokers[1].clean is clean


def test_a_second_broker_with_the_same_id_is_refused_while_the_first_serves() -> None:
    """Another data directory is another broker; once the first is fenced its place can be taken."""
    image, epoch = serving(EMPTY)
    twin = replace(BROKER, directories=(b"\x02" * 16,))
    assert code_of(lambda: register_broker(image, twin, "cluster")) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    fenced = image.replay(image.version + 1, fence_broker(image, 1, epoch).changes)
    assert registered(fenced, twin)[0].brokers[1].directories == (b"\x02" * 16,)


def test_a_directory_of_another_cluster_is_refused() -> None:
    """Data of one cluster never joins another."""
    image, _ = registered(EMPTY)
    assert code_of(lambda: register_broker(image, BROKER, "other")) is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_a_replaced_process_decides_nothing() -> None:
    """Its epoch is over; an unknown broker has none."""
    image, old = serving(EMPTY)
    image, new = serving(image)
    for decider in (unfence_broker, fence_broker, become_controller):
        assert code_of(lambda decider=decider: decider(image, 1, old)) is ErrorCode.STALE_BROKER_EPOCH
        assert code_of(lambda decider=decider: decider(image, 9, 1)) is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert list(unfence_broker(image, 1, new).changes) == []
    controlled = image.replay(image.version + 1, become_controller(image, 1, new).changes)
    assert controlled.controller is not None
    assert controlled.controller.epoch == controlled.version


def test_restarting_with_many_partitions_is_one_small_entry() -> None:
    """20,000 partitions change leader epoch twice with two records, in well under a second."""
    image, _ = serving(EMPTY)
    for number in range(20):
        topic_id = bytes([number + 1]) * 16
        partitions = [change.CreatePartition(topic_id, index, (1,), (1,), 1) for index in range(1000)]
        image = image.replay(image.version + 1, [change.CreateTopic(topic_id, f"t{number}"), *partitions])
    started = time.process_time()
    decision = register_broker(image, replace(BROKER, stopped_at_epoch=1), "cluster")
    assert len(encode(decision.changes)) < 400
    image, _ = serving(image, replace(BROKER, stopped_at_epoch=1))
    assert time.process_time() - started < 2
    leaders = {(p.leader, p.leader_epoch, p.recovering) for topic in image.topics() for p in topic.partitions}
    assert leaders == {(1, 2, False)}
