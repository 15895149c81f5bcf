"""Plans that change how many replicas partitions have: even, over racks, and without moves that nobody needs."""

from collections import Counter

import pytest

from ottla.cli.cluster.factors import plan_factor
from ottla.cli.cluster.overview import BrokerState, Overview, PartitionState
from ottla.cli.cluster.plans import Plan
from ottla.cli.command_error import CommandError
from ottla.topic_partition import TopicPartition


def partition(topic: str, number: int, *replicas: int, in_sync: tuple[int, ...] | None = None) -> PartitionState:
    return PartitionState(TopicPartition(topic, number), replicas[0], replicas, in_sync or replicas, ())


def plan(partitions: list[PartitionState], racks: dict[int, str | None], factor: int) -> Plan:
    brokers = [BrokerState(number, f"host:{number}", rack, False) for number, rack in racks.items()]
    return plan_factor(Overview("id", brokers, partitions, {}, []), partitions, tuple(racks), factor)


def count(wanted: Plan, topic: str = "") -> tuple[Counter[int], Counter[int]]:
    """Replicas and preferred leaders by broker."""
    chosen = [replicas for where, replicas in wanted.items() if topic in ("", where.topic)]
    return Counter(broker for each in chosen for broker in each), Counter(each[0] for each in chosen)


def test_the_topics_of_a_single_broker_are_spread_evenly() -> None:
    # Each topic by itself, and the topics of one partition together.
    large = [partition(topic, number, 1) for topic in ("a", "b") for number in range(6)]
    small = [partition(f"small-{number}", 0, 1) for number in range(6)]
    wanted = plan([*large, *small], dict.fromkeys((1, 2, 3)), 2)
    assert all(len(set(replicas)) == 2 and 1 in replicas for replicas in wanted.values())
    for topic in ("a", "b"):
        assert count(wanted, topic) == ({1: 6, 2: 3, 3: 3}, {1: 2, 2: 2, 3: 2})
    assert count(wanted) == ({1: 18, 2: 9, 3: 9}, {1: 6, 2: 6, 3: 6})


def test_replicas_stay_where_they_are() -> None:
    partitions = [partition("t", 0, 1, 2), partition("t", 1, 2, 3), partition("t", 2, 3, 1)]
    racks: dict[int, str | None] = dict.fromkeys((1, 2, 3, 4))
    assert plan(partitions, racks, 2) == {each.where: each.replicas for each in partitions}
    more = plan(partitions, racks, 3)
    assert all(more[each.where][:2] == each.replicas for each in partitions)
    assert count(more) == ({1: 2, 2: 3, 3: 2, 4: 2}, {1: 1, 2: 1, 3: 1})


def test_replicas_on_other_brokers_leave() -> None:
    wanted = plan([partition("t", 0, 5, 1)], dict.fromkeys((1, 2)), 2)
    assert {where: sorted(replicas) for where, replicas in wanted.items()} == {TopicPartition("t", 0): [1, 2]}


def test_new_replicas_are_in_other_racks() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    wanted = plan([partition("t", number, 1) for number in range(12)], racks, 3)
    assert all({racks[broker] for broker in replicas} == {"a", "b", "c"} for replicas in wanted.values())
    assert count(wanted)[0] == {1: 12, 3: 6, 4: 6, 5: 6, 6: 6}


def test_what_is_in_sync_stays_when_replicas_leave() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "b", 3: "a"}
    assert plan([partition("t", 0, 1, 2, 3, in_sync=(3,))], racks, 1) == {TopicPartition("t", 0): (3,)}
    assert plan([partition("t", 0, 1, 2, 3)], racks, 2) == {TopicPartition("t", 0): (1, 2)}


def test_fewer_replicas_are_even_too() -> None:
    partitions = [partition("t", number, *((1, 2, 3) if number > 7 else (2, 1, 3))) for number in range(12)]
    assert count(plan(partitions, dict.fromkeys((1, 2, 3)), 2)) == ({1: 8, 2: 8, 3: 8}, {1: 4, 2: 4, 3: 4})


def test_too_few_brokers_are_refused() -> None:
    with pytest.raises(CommandError, match="3 replicas need as many brokers, and --over names 2 brokers"):
        plan([partition("t", 0, 1)], dict.fromkeys((1, 2)), 3)
