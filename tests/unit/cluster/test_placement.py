"""Replica placement: distinct brokers, an even load, racks kept apart."""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ottla.cluster.image import BrokerImage
from ottla.cluster.placement import place


def broker(broker_id: int, rack: str | None = None) -> BrokerImage:
    return BrokerImage(broker_id, 1, (), rack, False, True)


@given(st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=9), st.integers(1, 40), st.data())
def test_replicas_are_distinct_and_leaders_even(racks: list[str | None], partitions: int, data: st.DataObject) -> None:
    """Any brokers, any racks: no broker twice in a partition, and no broker leads two more than another."""
    brokers = [broker(number, rack) for number, rack in enumerate(racks)]
    factor = data.draw(st.integers(1, len(brokers)))
    placed = place(brokers, partitions, factor, Random(data.draw(st.integers(0, 1000))))
    assert len(placed) == partitions
    assert all(len(set(replicas)) == factor and set(replicas) <= set(range(len(brokers))) for replicas in placed)
    leaders = Counter(replicas[0] for replicas in placed)
    counts = [leaders[number] for number in range(len(brokers))]
    assert max(counts) - min(counts) <= 1
    used = min(factor, len(set(racks)))
    assert all(len({racks[number] for number in replicas}) == used for replicas in placed)


def test_followers_are_even_and_a_failed_leader_is_replaced_by_all_others() -> None:
    """Whole turns of the circle: each broker keeps as many replicas, and the second replicas of one leader vary."""
    placed = place([broker(number) for number in range(5)], 20, 3, Random(3))
    kept = Counter(number for replicas in placed for number in replicas)
    assert set(kept.values()) == {12}
    assert {replicas[1] for replicas in placed if replicas[0] == 0} == {1, 2, 3, 4}


def test_the_same_seed_gives_the_same_placement() -> None:
    """All chance comes from the random that was passed in."""
    brokers = [broker(number, "ab"[number % 2]) for number in range(4)]
    assert place(brokers, 7, 2, Random(5)) == place(list(reversed(brokers)), 7, 2, Random(5))
