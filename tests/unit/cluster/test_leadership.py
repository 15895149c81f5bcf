"""Who leads after brokers stop, crash, lose disks and come back (KIP-966)."""

import time
from dataclasses import replace

import pytest

from ottla.cluster import changes as change
from ottla.cluster.changes import NO_LEADER, ConfigResource
from ottla.cluster.image import EMPTY, Image
from tests.unit.cluster.clusters import (
    TOPIC_ID,
    cluster,
    configured,
    fenced,
    partition,
    registered,
    started,
    step,
    stopping,
    unfenced,
    with_isr,
)


def shape(image: Image) -> tuple[int, tuple[int, ...], tuple[int, ...], int]:
    state = partition(image)
    return state.leader, state.isr, state.elr, state.last_known_leader


def test_replicas_become_eligible_once_too_few_are_in_sync() -> None:
    """With min.insync.replicas in sync, records are committed that the others lack; below, nothing is committed."""
    image = cluster(min_isr=2)
    image = fenced(image, 1)
    assert shape(image) == (2, (2, 3), (), NO_LEADER)
    image = fenced(image, 2)
    assert shape(image) == (3, (3,), (2,), NO_LEADER)
    image = fenced(image, 3)
    assert shape(image) == (NO_LEADER, (), (2, 3), 3)
    assert partition(image).leader_epoch == 3


def test_an_eligible_replica_that_comes_back_cleanly_leads() -> None:
    """It has every committed record. The others stay eligible while too few are in sync."""
    image = fenced(cluster(min_isr=2), 1, 2, 3)
    image = started(image, 1)
    assert shape(image) == (NO_LEADER, (), (2, 3), 3), "broker 1 left before the last records were committed"
    image = started(image, 2)
    assert shape(image) == (2, (2,), (3,), NO_LEADER)
    assert not partition(image).recovering
    image = with_isr(image, (2, 1))
    assert shape(image) == (2, (2, 1), (), NO_LEADER), "2 and 1 commit without 3 from here on"


def test_after_a_power_cut_the_complete_replica_leads_not_the_last_one() -> None:
    """Two brokers lose power. The one that was fenced last lost its tail; it waits for the other."""
    image = fenced(cluster(2, (1, 2), min_isr=2), 1, 2)
    image = started(image, 2, clean=False)
    assert shape(image) == (NO_LEADER, (), (1,), 2)
    image = started(image, 1)
    assert shape(image) == (1, (1,), (), NO_LEADER)
    assert not partition(image).recovering


def test_the_last_known_leader_leads_when_nobody_is_eligible() -> None:
    """Both came back from a crash. Nobody has more than the last leader; it leads, and is marked."""
    image = fenced(cluster(2, (1, 2), min_isr=2), 1, 2)
    image = started(image, 1, clean=False)
    assert shape(image)[0] == NO_LEADER
    image = started(image, 2, clean=False)
    assert shape(image) == (2, (2,), (), NO_LEADER)
    assert partition(image).recovering
    assert not partition(with_isr(image, (2, 1))).recovering


def test_the_last_known_leader_leads_as_soon_as_nobody_else_is_eligible() -> None:
    """It is running already when the last eligible replica turns out to have lost records."""
    image = started(fenced(cluster(2, (1, 2), min_isr=2), 1, 2), 2, clean=False)
    image = registered(image, 1, clean=False)
    assert shape(image) == (2, (2,), (), NO_LEADER)


def test_an_unclean_broker_leaves_the_isr_of_a_partition_that_others_lead() -> None:
    """A fast restart: the old process was never fenced."""
    image = registered(cluster(), 2, clean=False)
    assert shape(image) == (1, (1, 3), (), NO_LEADER)
    image = registered(cluster(min_isr=3), 2, clean=False)
    assert shape(image) == (1, (1, 3), (), NO_LEADER)
    image = registered(cluster(min_isr=3), 2)
    assert shape(image) == (1, (1, 3), (2,), NO_LEADER), "a clean restart keeps what was committed"


def test_a_replaced_disk_never_leads_while_a_complete_replica_exists() -> None:
    """Whether the broker calls itself clean or not: its directory ids are new."""
    image = fenced(cluster(2, (1, 2), min_isr=2), 1, 2)
    image = started(image, 2, directories=[b"new" + bytes(13)])
    assert shape(image) == (NO_LEADER, (), (1,), NO_LEADER)
    assert shape(started(image, 1))[0] == 1


def test_min_insync_replicas_is_no_more_than_the_replication_factor() -> None:
    """As leaders count it: a topic with fewer replicas can be written to."""
    image = fenced(cluster(2, (1, 2), min_isr=3), 1)
    assert shape(image) == (2, (2,), (1,), NO_LEADER)
    image = fenced(cluster(1, (1,), min_isr=3), 1)
    assert shape(image) == (NO_LEADER, (), (1,), 1)


def test_a_smaller_min_insync_replicas_ends_eligibility() -> None:
    """From that entry on, the leader commits alone."""
    image = fenced(cluster(min_isr=2), 1, 2)
    assert shape(image) == (3, (3,), (2,), NO_LEADER)
    assert shape(configured(image, "min.insync.replicas", "1")) == (3, (3,), (), NO_LEADER)
    assert shape(configured(image, "min.insync.replicas", "3")) == (3, (3,), (2,), NO_LEADER)
    assert shape(configured(image, "min.insync.replicas", None)) == (3, (3,), (), NO_LEADER)


def test_the_smallest_setting_of_any_broker_counts() -> None:
    """A topic without its own setting follows the broker that leads it, and any broker may lead."""
    image = step(cluster(), change.SetConfig(ConfigResource.BROKER, "", "min.insync.replicas", "2"))
    assert shape(fenced(image, 1, 2)) == (3, (3,), (2,), NO_LEADER)
    image = step(fenced(image, 1, 2), change.SetConfig(ConfigResource.BROKER, "3", "min.insync.replicas", "1"))
    assert shape(image) == (3, (3,), (), NO_LEADER)


def test_unclean_election_by_the_topics_setting() -> None:
    """Any running replica leads, at once or when the setting is made; what others had no longer counts."""
    image = fenced(cluster(min_isr=2), 2)
    image = started(image, 2)
    image = fenced(image, 3, 1)
    assert shape(image) == (NO_LEADER, (), (1, 3), 1)
    allowed = configured(image, "unclean.leader.election.enable", "true")
    assert shape(allowed) == (2, (2,), (), NO_LEADER)
    assert partition(allowed).recovering
    assert partition(allowed).leader_epoch == partition(image).leader_epoch + 1
    assert shape(started(allowed, 1)) == (2, (2,), (), NO_LEADER)
    everywhere = step(image, change.SetConfig(ConfigResource.BROKER, "", "unclean.leader.election.enable", "true"))
    assert shape(everywhere) == shape(allowed)


def test_unclean_election_prefers_clean_candidates_and_then_the_last_leader() -> None:
    """Losing less is better."""
    image = fenced(cluster(unclean=True), 1)
    assert (partition(image).leader, partition(image).isr, partition(image).recovering) == (2, (2, 3), False)
    behind = with_isr(cluster(min_isr=2, unclean=True), (1, 3))  # broker 2 runs, and lacks records
    assert shape(fenced(behind, 1)) == (3, (3,), (1,), NO_LEADER)
    eligible = started(fenced(behind, 3), 3)
    assert shape(eligible) == (1, (1,), (3,), NO_LEADER)
    assert shape(fenced(eligible, 1)) == (3, (3,), (1,), NO_LEADER)
    image = with_isr(image, (2,))
    image = fenced(image, 3, 2)
    image = started(image, 2, clean=False)
    assert shape(image) == (2, (2,), (), NO_LEADER)


def test_controlled_shutdown_hands_over_and_keeps_what_nobody_can_take() -> None:
    """Where others are in sync one of them leads; the only replica leads until it is gone."""
    image = stopping(cluster(min_isr=3), 1)
    assert shape(image) == (2, (2, 3), (1,), NO_LEADER)
    assert not image.serves(1)
    alone = stopping(cluster(3, (1,)), 1)
    assert shape(alone) == (1, (1,), (), NO_LEADER)
    assert shape(fenced(alone, 1)) == (NO_LEADER, (), (1,), 1)
    assert shape(started(fenced(alone, 1), 1)) == (1, (1,), (), NO_LEADER)


def test_a_stopping_leader_hands_over_as_soon_as_another_is_in_sync() -> None:
    """It accepted a follower while it was waiting to stop."""
    image = stopping(with_isr(cluster(2, (1, 2)), (1,)), 1)
    assert shape(image)[0] == 1
    assert shape(with_isr(image, (1, 2))) == (2, (2,), (), NO_LEADER)


def test_controlled_shutdown_is_never_unclean() -> None:
    """A replica that is behind must not lead because its leader is asked to stop."""
    image = with_isr(cluster(2, (1, 2), unclean=True), (1,))
    assert shape(stopping(image, 1))[0] == 1
    assert shape(fenced(stopping(image, 1), 1))[0] == 2


def test_a_stopping_broker_is_not_elected() -> None:
    """It would have to hand over again."""
    image = stopping(cluster(), 2)
    assert shape(fenced(image, 1)) == (3, (3,), (), NO_LEADER)


def test_leaders_are_elected_in_the_order_of_the_replicas() -> None:
    """Not in the order of the ISR."""
    image = with_isr(cluster(3, (3, 1, 2)), (3, 2, 1))
    assert shape(fenced(image, 3)) == (1, (2, 1), (), NO_LEADER)


def test_unregistering_a_broker_forgets_what_it_had() -> None:
    """If its id comes back, nothing is known about its disk."""
    image = fenced(cluster(2, (1, 2), min_isr=2), 1, 2)
    image = step(image, change.UnregisterBroker(2))
    assert shape(image) == (NO_LEADER, (), (1,), NO_LEADER)
    assert image.offline_replicas(partition(image)) == [1, 2]
    assert shape(started(image, 2))[0] == NO_LEADER
    assert shape(started(started(image, 2), 1))[0] == 1


@pytest.mark.parametrize("brokers", [3, 10])
def test_three_thousand_partitions_fail_over_in_one_small_entry(brokers: int) -> None:
    """Replay is what every broker does before it can lead: it must not take long."""
    image = cluster(brokers, (1, 2, 3), min_isr=2, partitions=3000)
    started_at = time.process_time()
    after = fenced(image, 1)
    elapsed = time.process_time() - started_at
    assert {state.leader for state in after.topics_by_name["orders"].partitions} == {2}
    assert elapsed < 0.5, "some 20 ms; the limit is for a slow machine"
    back = unfenced(registered(after, 1), 1)
    assert back.topics_by_name["orders"].partitions == after.topics_by_name["orders"].partitions


def test_a_digest_tells_images_apart_and_versions_not() -> None:
    """Brokers at different versions with the same contents agree; any difference shows."""
    image = cluster()
    assert step(image, change.SetFeature("nothing", 0)).digest() == image.digest()
    assert EMPTY.replay(image.version, image.snapshot()).digest() == image.digest()
    assert with_isr(image, (1, 2)).digest() != image.digest()
    assert configured(image, "retention.ms", "1").digest() != image.digest()
    assert step(image, change.VerifyDigest(image.digest())) == replace(image, version=image.version + 1)
    with pytest.raises(ValueError, match="replay it differently"):
        step(with_isr(image, (1,)), change.VerifyDigest(image.digest()))
    assert TOPIC_ID in image.topic_names
