"""Chooses the brokers of new partitions: replicas and leaders are spread evenly, and over racks if there are any."""

from collections.abc import Sequence
from random import Random

from ottla.cluster.entities import BrokerImage


def place(
    brokers: Sequence[BrokerImage],
    partitions: int,
    replication_factor: int,
    random: Random,
    away: Sequence[BrokerImage] = (),
) -> list[tuple[int, ...]]:
    """The replicas of each partition, the preferred leader first. There must be enough brokers.

    `away`: brokers that cannot serve now. They are followers where the other brokers do not suffice.

    The brokers form a circle in which neighbours are in different racks where possible. Each partition takes the next
    broker of the circle as its leader, and followers from there on. Every turn of the circle shifts the followers by
    one more, so that the load of a failed broker is spread over all others.
    """
    missing = max(0, replication_factor - len(brokers))
    absent = sorted(away, key=lambda broker: broker.id)
    circle = _arrange_in_circle(brokers, random)
    start = random.randrange(len(circle))
    placed = []
    for partition in range(partitions):
        turn, step = divmod(partition, len(circle))
        leader = (start + step) % len(circle)
        others = [circle[(leader + distance) % len(circle)] for distance in range(1, len(circle))]
        shift = turn % len(others) if others else 0
        replicas = _choose_replicas(circle[leader], others[shift:] + others[:shift], replication_factor - missing)
        if missing:
            first = partition % len(absent)
            replicas += tuple(broker.id for broker in (absent[first:] + absent[:first])[:missing])
        placed.append(replicas)
    return placed


def _arrange_in_circle(brokers: Sequence[BrokerImage], random: Random) -> list[BrokerImage]:
    """The first broker of each rack, then the second of each, and so on."""
    racks: dict[str | None, list[BrokerImage]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.id):
        racks.setdefault(broker.rack, []).append(broker)
    for members in racks.values():
        shift = random.randrange(len(members))
        members[:] = members[shift:] + members[:shift]
    longest = max(len(members) for members in racks.values())
    return [members[place] for place in range(longest) for members in racks.values() if place < len(members)]


def _choose_replicas(leader: BrokerImage, others: Sequence[BrokerImage], count: int) -> tuple[int, ...]:
    """Choose the leader and the next of the other brokers, first those in racks without a replica."""
    chosen = [leader]
    waiting = list(others)
    while len(chosen) < count:
        used = {broker.rack for broker in chosen}
        follower = next((broker for broker in waiting if broker.rack not in used), waiting[0])
        waiting.remove(follower)
        chosen.append(follower)
    return tuple(broker.id for broker in chosen)
