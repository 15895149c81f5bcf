"""A broker registers, serves, is replaced: what its epoch protects from."""

import time
from dataclasses import replace

import pytest

from ottla.cluster import changes as change
from ottla.cluster.changes import ConfigResource, Endpoint, SupportedFeature
from ottla.cluster.encoding import encode
from ottla.cluster.image import EMPTY, Image
from ottla.cluster.registration import (
    BrokerRegistration,
    become_controller,
    begin_shutdown,
    count_leaderships,
    fence_broker,
    register_broker,
    unfence_broker,
    unregister_broker,
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


def test_a_process_that_never_died_is_clean() -> None:
    """Its session expired and it registers again: the epoch that it had is the newest."""
    image, epoch = serving(EMPTY)
    image, _ = registered(image, replace(BROKER, previous_epoch=epoch))
    assert image.brokers[1].clean
    image, _ = registered(image, replace(BROKER, previous_epoch=epoch))
    assert not image.brokers[1].clean, "another process registered in between"


def test_a_process_that_does_not_know_its_epoch_is_clean() -> None:
    """Its registration got no answer and was made all the same; the next one comes from the same process."""
    same = replace(BROKER, incarnation=b"i" * 16)
    image, _ = serving(EMPTY, same)
    image, _ = registered(image, same)
    assert image.brokers[1].clean
    image, _ = registered(image, replace(same, incarnation=b"j" * 16))
    assert not image.brokers[1].clean


def test_what_a_broker_registers_with_is_kept() -> None:
    """Directories, features, incarnation and rack are in the image and in its snapshot."""
    features = (SupportedFeature("a", 0, 3),)
    newcomer = replace(BROKER, directories=(b"a" * 16, b"b" * 16), features=features, incarnation=b"i" * 16, rack="r")
    image, _ = registered(EMPTY, newcomer)
    broker = image.brokers[1]
    assert (broker.directories, broker.features, broker.incarnation, broker.rack) == (
        (b"a" * 16, b"b" * 16),
        features,
        b"i" * 16,
        "r",
    )
    assert EMPTY.replay(image.version, image.snapshot()) == image


def test_directories_that_cannot_be_registered() -> None:
    """A copied data directory has the id of another broker's."""
    image, _ = serving(EMPTY)
    for directories in ((), (b"x" * 16, b"x" * 16), BROKER.directories, (bytes(16),) * 1001):
        other = replace(BROKER, broker_id=2, directories=directories)
        assert code_of(lambda other=other: register_broker(image, other, "cluster")) is ErrorCode.INVALID_REGISTRATION


@pytest.mark.parametrize(
    "features", [(SupportedFeature("a", 0, 1),), (SupportedFeature("a", 3, 4),), (SupportedFeature("b", 0, 9),)]
)
def test_a_broker_without_a_feature_of_the_cluster_is_refused(features: tuple[SupportedFeature, ...]) -> None:
    """It would not understand what the others agreed on."""
    image, _ = serving(EMPTY)
    image = image.replay(image.version + 1, [change.SetFeature("a", 2)])
    newcomer = replace(BROKER, broker_id=2, directories=(b"2" * 16,), features=features)
    assert code_of(lambda: register_broker(image, newcomer, "cluster")) is ErrorCode.UNSUPPORTED_VERSION
    able = replace(newcomer, features=(*features, SupportedFeature("a", 1, 2)))
    assert registered(image, able)[1] == image.version + 1


def test_the_first_broker_sets_what_elections_depend_on() -> None:
    """Every broker elects by the same settings, so those that a broker was started with go into the metadata."""
    newcomer = replace(BROKER, election_settings={"min.insync.replicas": "2", "log.dirs": "x"})
    image, _ = registered(EMPTY, newcomer)
    assert dict(image.config(ConfigResource.BROKER, "")) == {"min.insync.replicas": "2"}
    other = replace(BROKER, broker_id=2, directories=(b"2" * 16,), election_settings={"min.insync.replicas": "3"})
    assert dict(registered(image, other)[0].config(ConfigResource.BROKER, "")) == {"min.insync.replicas": "2"}


def test_a_broker_that_is_about_to_stop() -> None:
    """It serves no longer; registering again ends it."""
    image, epoch = serving(EMPTY)
    stopping = image.replay(image.version + 1, begin_shutdown(image, 1, epoch).changes)
    assert stopping.brokers[1].shutting_down
    assert not stopping.serves(1)
    assert [broker.id for broker in stopping.alive_brokers()] == [1], "clients can still reach it"
    assert not begin_shutdown(stopping, 1, epoch).changes, "once is enough"
    assert EMPTY.replay(stopping.version, stopping.snapshot()) == stopping
    assert serving(stopping)[0].serves(1)
    assert code_of(lambda: begin_shutdown(image, 1, epoch - 1)) is ErrorCode.STALE_BROKER_EPOCH


def test_unregistering() -> None:
    """Only a broker that is gone; its replicas are offline until they are reassigned."""
    image, epoch = serving(EMPTY)
    partition = change.CreatePartition(b"t" * 16, 0, (1,), (1,), 1)
    image = image.replay(image.version + 1, [change.CreateTopic(b"t" * 16, "orders"), partition])
    assert count_leaderships(image, 1) == 1
    assert code_of(lambda: unregister_broker(image, 1)) is ErrorCode.INVALID_REQUEST
    assert code_of(lambda: unregister_broker(image, 2)) is ErrorCode.BROKER_ID_NOT_REGISTERED
    image = image.replay(image.version + 1, fence_broker(image, 1, epoch).changes)
    image = image.replay(image.version + 1, unregister_broker(image, 1).changes)
    state = image.topics_by_name["orders"].partitions[0]
    assert (image.broker(1), state.leader, image.offline_replicas(state)) == (None, -1, [1])
    assert count_leaderships(image, 1) == 0
    assert EMPTY.replay(image.version, image.snapshot()) == image
