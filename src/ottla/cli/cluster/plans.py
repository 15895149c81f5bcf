"""Plans of reassignments: which brokers shall hold which partition, and the JSON format that Kafka has for them."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.cli.cluster.overview import Overview, PartitionState
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.topic_partition import TopicPartition

Plan = dict[TopicPartition, tuple[int, ...]]
"""The replicas that each partition shall have, the preferred leader first."""


def read_plan(text: str, source: str) -> Plan:
    """A plan in the format of kafka-reassign-partitions. Raises CommandError that names what is wrong."""
    try:
        document = json.loads(text)
        entries = document["partitions"]
        plan = {_read_where(entry): tuple(entry["replicas"]) for entry in entries}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"lacks {error}" if isinstance(error, KeyError) else error
        raise CommandError(f"{source}: not a plan of a reassignment: {reason}", USAGE_ERROR) from None
    if len(plan) != len(entries):
        raise CommandError(f"{source}: a partition is named more than once", USAGE_ERROR)
    for where, replicas in plan.items():
        if not replicas or not all(type(number) is int for number in replicas):
            raise CommandError(f"{source}: {where}: replicas must be a list of broker ids", USAGE_ERROR)
    return plan


def _read_where(entry: Any) -> TopicPartition:
    topic, partition = entry["topic"], entry["partition"]
    if type(topic) is not str or type(partition) is not int:
        raise TypeError(f"{topic!r}, {partition!r} is not a topic and a partition")
    return TopicPartition(topic, partition)


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
            raise CommandError(f"{partition.where} has {factor} replicas, and {len(ordered)} brokers were given")
        # Each round over the brokers shifts the followers by one more, as for new topics.
        turn, first = divmod(position, len(ordered))
        others = [ordered[(first + distance) % len(ordered)] for distance in range(1, len(ordered))]
        shift = turn % len(others) if others else 0
        plan[partition.where] = (ordered[first], *(others[shift:] + others[:shift])[: factor - 1])
    return plan


def plan_drain(overview: Overview, leaving: int) -> Plan:
    """Replace a broker in every partition by the one with the fewest replicas, in another rack where possible."""
    racks = {broker.id: broker.rack for broker in overview.alive()}
    load = Counter(dict.fromkeys(racks, 0))
    load.update(broker for partition in overview.partitions for broker in partition.target)
    plan: Plan = {}
    for partition in overview.partitions:
        if leaving not in partition.target:
            if leaving in partition.removing:
                plan[partition.where] = partition.target  # it is on its way already
            continue
        others = [broker for broker in partition.target if broker != leaving]
        free = [broker for broker in racks if broker not in partition.target]
        if not free:
            raise CommandError(
                f"{partition.where} has {len(partition.target)} replicas, and no other broker is alive that could "
                f"take the one of broker {leaving}; add a broker first"
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
