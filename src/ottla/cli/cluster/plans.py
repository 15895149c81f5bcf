"""Plans of reassignments: which brokers shall hold which partition, and the JSON format that Kafka has for them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.cli.cluster.overview import Overview, PartitionState
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.numbers import INT32_MAX
from ottla.cli.output import counted
from ottla.cli.plan_files import is_number, parse_partitions
from ottla.topic_partition import TopicPartition

Plan = dict[TopicPartition, tuple[int, ...]]
"""The replicas that each partition shall have, the preferred leader first."""

ANY = "any"
"""In `log_dirs` of a plan: the broker chooses the directory."""


def read_plan(document: Any, source: str) -> Plan:
    """A plan from JSON in the format of kafka-reassign-partitions. Raises CommandError that names what is wrong."""
    plan: Plan = {}
    for where, entry in parse_partitions(document, source).items():
        replicas = entry.get("replicas")
        ids = replicas if isinstance(replicas, list) else []
        if not ids or not all(is_number(each, 0, INT32_MAX) for each in ids):
            raise CommandError(f"{source}: {where}: replicas must be a list of broker ids", USAGE_ERROR)
        if entry.get("log_dirs", [ANY] * len(ids)) != [ANY] * len(ids):
            raise CommandError(
                f"{source}: {where}: log_dirs must be {ANY!r} for each replica: "
                "partitions move between brokers here, not between directories",
                USAGE_ERROR,
            )
        plan[where] = tuple(ids)
    return plan


def write_plan(plan: Plan) -> dict[str, object]:
    return {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": partition, "replicas": list(replicas)}
            for (topic, partition), replicas in sorted(plan.items())
        ],
    }


def plan_same_replicas(partitions: Iterable[PartitionState], replicas: Sequence[int]) -> Plan:
    """Every partition gets exactly these replicas."""
    return {partition.where: tuple(replicas) for partition in partitions}


def plan_spread(partitions: Sequence[PartitionState], brokers: Sequence[int]) -> Plan:
    """Spread partitions evenly over brokers; each keeps its number of replicas."""
    plan: Plan = {}
    ordered = sorted(brokers)
    for position, partition in enumerate(partitions):
        factor = len(partition.target)
        if factor > len(ordered):
            has, given = counted(factor, "replica"), counted(len(ordered), "broker")
            raise CommandError(f"{partition.where} has {has}, and only {given} can take them")
        # Each round over the brokers shifts the followers by one more, as for new topics.
        turn, first = divmod(position, len(ordered))
        others = [ordered[(first + distance) % len(ordered)] for distance in range(1, len(ordered))]
        shift = turn % len(others) if others else 0
        plan[partition.where] = (ordered[first], *(others[shift:] + others[:shift])[: factor - 1])
    return plan


def plan_drain(overview: Overview, leaving: int) -> Plan:
    """Replace a broker in every partition by the one with the fewest replicas, in another rack where possible.

    Brokers that are cordoned keep what they have, and get nothing more.
    """
    racks = {broker.id: broker.rack for broker in overview.alive()}
    open_brokers = [broker.id for broker in overview.alive() if not broker.cordoned]
    load = Counter(broker for partition in overview.partitions for broker in partition.target)
    plan: Plan = {}
    for partition in overview.partitions:
        if leaving not in partition.target:
            if leaving in partition.removing:
                plan[partition.where] = partition.target  # it is on its way already
            continue
        others = [broker for broker in partition.target if broker != leaving]
        free = [broker for broker in open_brokers if broker not in partition.target]
        if not free:
            has = counted(len(partition.target), "replica")
            raise CommandError(
                f"{partition.where} has {has}, and no other broker that is alive and not cordoned could take the one "
                f"of broker {leaving}; add a broker first"
            )
        used = {racks.get(broker) for broker in others}
        chosen = min(free, key=lambda broker: (racks[broker] in used, load[broker], broker))
        load[chosen] += 1
        load[leaving] -= 1
        plan[partition.where] = tuple(chosen if broker == leaving else broker for broker in partition.target)
    return plan


def leave_out_unchanged(plan: Plan, partitions: Mapping[TopicPartition, PartitionState]) -> Plan:
    """The part of a plan that changes something, or is being carried out. CommandError if it names a partition that
    does not exist."""
    missing = [where for where in plan if where not in partitions]
    if missing:
        raise CommandError(f"there is no partition {missing[0]}")
    return {
        where: replicas
        for where, replicas in plan.items()
        if partitions[where].replicas != replicas or partitions[where].adding or partitions[where].removing
    }
