"""Plans that change how many replicas partitions have, and leave where they are as many replicas as possible."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from ottla.cli.cluster.overview import Overview, PartitionState
from ottla.cli.cluster.plans import Plan
from ottla.cli.command_error import CommandError
from ottla.cli.output import counted
from ottla.topic_partition import TopicPartition

Load = Counter[int]
"""How many replicas, or preferred leaders, each broker has."""


def plan_factor(overview: Overview, partitions: Sequence[PartitionState], brokers: Sequence[int], factor: int) -> Plan:
    """Give partitions this many replicas, all of them on these brokers.

    Replicas that are on these brokers stay. New ones go to other racks where possible, and to the brokers that have the
    fewest, first of the topic and then of all topics. Preferred leaders change only where that makes them more even.
    """
    if factor > len(brokers):
        raise CommandError(
            f"{factor} replicas need as many brokers, and --over names {counted(len(brokers), 'broker')}"
        )
    racks = {broker.id: broker.rack for broker in overview.brokers}
    load_total: Load = Counter(broker for partition in overview.partitions for broker in partition.target)
    load_by_topic: defaultdict[str, Load] = defaultdict(Counter)
    replicas = {each.where: [broker for broker in each.target if broker in brokers] for each in partitions}
    for where, kept in replicas.items():
        load_by_topic[where.topic].update(kept)
    for partition in partitions:
        kept, load_in_topic = replicas[partition.where], load_by_topic[partition.where.topic]
        while len(kept) > factor:
            used = Counter(racks[broker] for broker in kept)
            # What is in sync stays first of all, then what is alone in its rack.
            dropped = max(
                reversed(kept),
                key=lambda broker: (
                    broker not in partition.in_sync,
                    used[racks[broker]],
                    load_in_topic[broker],
                    load_total[broker],
                    broker != partition.leader,
                ),
            )
            kept.remove(dropped)
            load_in_topic[dropped] -= 1
            load_total[dropped] -= 1
        while len(kept) < factor:
            taken = {racks[broker] for broker in kept}
            chosen = min(
                (broker for broker in brokers if broker not in kept),
                key=lambda broker: (racks[broker] in taken, load_in_topic[broker], load_total[broker], broker),
            )
            kept.append(chosen)
            load_in_topic[chosen] += 1
            load_total[chosen] += 1
    _even_out_leaders(overview, replicas)
    return {where: tuple(kept) for where, kept in replicas.items()}


def _even_out_leaders(overview: Overview, replicas: dict[TopicPartition, list[int]]) -> None:
    """Put other replicas first until the preferred leaders are even, within each topic and then over all of them."""
    load_total: Load = Counter(replicas.get(partition.where, partition.target)[0] for partition in overview.partitions)
    load_by_topic: defaultdict[str, Load] = defaultdict(Counter)
    for where, kept in replicas.items():
        load_by_topic[where.topic][kept[0]] += 1
    is_even = False
    while not is_even:
        is_even = True
        for where, kept in replicas.items():
            load_in_topic, leader = load_by_topic[where.topic], kept[0]
            other = min(kept, key=lambda broker: (load_in_topic[broker], load_total[broker], broker))
            ahead = load_in_topic[leader] - load_in_topic[other]
            # Each step makes a topic more even, or leaves it as even and makes the whole more even: so it ends.
            if ahead > 1 or (ahead == 1 and load_total[leader] - load_total[other] > 1):
                kept.remove(other)
                kept.insert(0, other)
                for load in (load_in_topic, load_total):
                    load[leader] -= 1
                    load[other] += 1
                is_even = False
