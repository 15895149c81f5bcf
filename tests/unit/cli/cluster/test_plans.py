"""Plans of reassignments: what moves where, and Kafka's file format for it."""

import json
from typing import Any

import pytest

from ottla.cli.cluster.overview import BrokerState, Overview, PartitionState
from ottla.cli.cluster.plans import (
    Plan,
    leave_out_unchanged,
    plan_drain,
    plan_same_replicas,
    plan_spread,
    read_plan,
    write_plan,
)
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.topic_partition import TopicPartition


def partition(number: int, *replicas: int, topic: str = "t") -> PartitionState:
    return PartitionState(TopicPartition(topic, number), replicas[0], replicas, replicas, ())


def cluster(
    partitions: list[PartitionState],
    racks: dict[int, str | None],
    fenced: tuple[int, ...] = (),
    cordoned: tuple[int, ...] = (),
) -> Overview:
    brokers = [
        BrokerState(number, f"host:{number}", rack, number in fenced, number in cordoned)
        for number, rack in racks.items()
    ]
    return Overview("id", brokers, partitions, {}, [])


def test_a_plan_survives_writing_and_reading() -> None:
    plan: Plan = {TopicPartition("b", 1): (3, 1), TopicPartition("a", 0): (1, 2)}
    assert read_plan(json.loads(json.dumps(write_plan(plan))), "file") == plan


ENTRY: dict[str, Any] = {"topic": "t", "partition": 0, "replicas": [1, 2]}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], 'no list "partitions"'),
        ({}, 'no list "partitions"'),
        ({"partitions": None}, 'no list "partitions"'),
        ({"partitions": [ENTRY], "version": 2}, "version 2 is not known, only 1"),
        ({"partitions": [None]}, "names no topic"),
        ({"partitions": [{**ENTRY, "topic": 1}]}, "names no topic"),
        ({"partitions": [{**ENTRY, "partition": 2**31}]}, "names no partition from 0 to 2147483647"),
        ({"partitions": [{"topic": "t", "partition": 0}]}, "t-0: replicas must be a list of broker ids"),
        ({"partitions": [{**ENTRY, "replicas": []}]}, "t-0: replicas must be a list of broker ids"),
        ({"partitions": [{**ENTRY, "replicas": ["1"]}]}, "t-0: replicas must be a list of broker ids"),
        ({"partitions": [{**ENTRY, "replicas": [99999999999]}]}, "t-0: replicas must be a list of broker ids"),
        ({"partitions": [{**ENTRY, "log_dirs": ["any", "/data"]}]}, "t-0: log_dirs must be 'any' for each replica"),
        ({"partitions": [{**ENTRY, "log_dirs": ["any"]}]}, "t-0: log_dirs must be 'any' for each replica"),
        ({"partitions": [ENTRY, {**ENTRY, "replicas": [2]}]}, "t-0 is named twice"),
    ],
)
def test_a_file_that_is_no_plan_is_a_usage_error(document: Any, said: str) -> None:
    with pytest.raises(CommandError, match=r"^file: ") as refused:
        read_plan(document, "file")
    assert said in str(refused.value)
    assert refused.value.status == USAGE_ERROR


def test_a_plan_as_kafkas_tool_writes_it_is_read() -> None:
    document = {"version": 1, "partitions": [{**ENTRY, "log_dirs": ["any", "any"]}]}
    assert read_plan(document, "file") == {TopicPartition("t", 0): (1, 2)}


def test_spreading_gives_every_broker_the_same_share() -> None:
    partitions = [partition(number, 1, 2) for number in range(12)]
    plan = plan_spread(partitions, (4, 5, 6))
    assert all(len(set(replicas)) == 2 for replicas in plan.values())
    for broker in (4, 5, 6):
        assert sum(replicas[0] == broker for replicas in plan.values()) == 4
        assert sum(broker in replicas for replicas in plan.values()) == 8


def test_spreading_over_too_few_brokers_is_refused() -> None:
    with pytest.raises(CommandError, match="t-0 has 2 replicas, and only 1 broker can take them"):
        plan_spread([partition(0, 1, 2)], (3,))


def test_draining_replaces_the_broker_in_place_by_the_least_loaded_one() -> None:
    partitions = [partition(0, 1, 2), partition(1, 2, 1), partition(2, 2, 3)]
    plan = plan_drain(cluster(partitions, dict.fromkeys((1, 2, 3, 4))), 1)
    assert plan == {TopicPartition("t", 0): (4, 2), TopicPartition("t", 1): (2, 3)}


def test_draining_keeps_replicas_in_different_racks() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "b", 3: "b", 4: "a"}
    busy = [partition(number, 4, 2, topic="busy") for number in range(5)]
    plan = plan_drain(cluster([*busy, partition(0, 1, 2)], racks), 1)
    assert plan == {TopicPartition("t", 0): (4, 2)}


def test_draining_gives_nothing_to_a_broker_that_is_cordoned() -> None:
    brokers = dict.fromkeys((1, 2, 3, 4))
    busy = [partition(number, 4, topic="busy") for number in range(5)]
    found = cluster([*busy, partition(0, 1, 2)], brokers, cordoned=(3,))
    assert plan_drain(found, 1) == {TopicPartition("t", 0): (4, 2)}
    with pytest.raises(CommandError, match="no other broker that is alive and not cordoned could take"):
        plan_drain(cluster([partition(0, 1, 2)], brokers, cordoned=(3, 4)), 1)
    assert plan_drain(cluster([partition(0, 1, 2)], brokers, cordoned=(1,)), 1) == {TopicPartition("t", 0): (3, 2)}


def test_draining_needs_a_broker_that_is_alive_and_holds_no_replica_yet() -> None:
    with pytest.raises(CommandError, match="t-0 has 2 replicas, and no other broker that is alive"):
        plan_drain(cluster([partition(0, 1, 2)], dict.fromkeys((1, 2, 3)), fenced=(3,)), 1)


def test_a_single_replica_is_counted_as_one() -> None:
    with pytest.raises(CommandError, match="t-0 has 1 replica, and no other broker"):
        plan_drain(cluster([partition(0, 1)], {1: None}), 1)


def test_only_what_changes_is_moved() -> None:
    known = {each.where: each for each in (partition(0, 1, 2), partition(1, 2, 1))}
    plan = plan_same_replicas(list(known.values()), (1, 2))
    assert leave_out_unchanged(plan, known) == {TopicPartition("t", 1): (1, 2)}
    with pytest.raises(CommandError, match="there is no partition x-0"):
        leave_out_unchanged({TopicPartition("x", 0): (1,)}, known)


def moving(number: int, old: tuple[int, ...], new: tuple[int, ...]) -> PartitionState:
    replicas = (*new, *(broker for broker in old if broker not in new))
    added = tuple(broker for broker in new if broker not in old)
    return PartitionState(TopicPartition("t", number), old[0], replicas, old, (), added, replicas[len(new) :])


def test_a_partition_on_the_move_counts_as_what_it_will_be() -> None:
    # After a command that was interrupted, the same one goes on with the moves.
    half_way = moving(0, (2, 1), (2, 3))
    assert (half_way.target, half_way.old_replicas) == ((2, 3), (2, 1))
    assert plan_spread([half_way], (2, 3)) == {half_way.where: (2, 3)}
    brokers = dict.fromkeys((1, 2, 3, 4))
    assert plan_drain(cluster([half_way], brokers), 1) == {half_way.where: (2, 3)}  # it leaves already
    assert plan_drain(cluster([half_way], brokers), 3) == {half_way.where: (2, 1)}
    known = {half_way.where: half_way}
    plans: list[Plan] = [{half_way.where: (2, 3)}, {half_way.where: (2, 3, 1)}]
    for plan in plans:
        assert leave_out_unchanged(plan, known) == plan
