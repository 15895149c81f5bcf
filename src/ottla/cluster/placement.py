"""Which brokers keep which partition: evenly spread, leaders too, and over racks where there are any."""

from collections.abc import Sequence
from random import Random

from ottla.cluster.entities import BrokerImage


def place(
    brokers: Sequence[BrokerImage], partitions: int, replication_factor: int, random: Random
) -> list[tuple[int, ...]]:
    """Replicas of each partition, the preferred leader first. There must be enough brokers.

    Brokers stand in a circle in which neighbours are of different racks as far as that goes. A partition takes the next
    place as its leader and followers from there on; every turn of the circle shifts the followers by one more, so that
    the load of a broker that fails is spread over all others.
    """
    circle = _circle(brokers, random)
    start = random.randrange(len(circle))
    placed = []
    for partition in range(partitions):
        turn, step = divmod(partition, len(circle))
        leader = (start + step) % len(circle)
        others = [circle[(leader + distance) % len(circle)] for distance in range(1, len(circle))]
        shift = turn % len(others) if others else 0
        placed.append(_replicas(circle[leader], others[shift:] + others[:shift], replication_factor))
    return placed


def _circle(brokers: Sequence[BrokerImage], random: Random) -> list[BrokerImage]:
    """One of each rack, then the second of each, and so on."""
    racks: dict[str | None, list[BrokerImage]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.id):
        racks.setdefault(broker.rack, []).append(broker)
    for members in racks.values():
        shift = random.randrange(len(members))
        members[:] = members[shift:] + members[:shift]
    longest = max(len(members) for members in racks.values())
    return [members[place] for place in range(longest) for members in racks.values() if place < len(members)]


def _replicas(leader: BrokerImage, others: Sequence[BrokerImage], count: int) -> tuple[int, ...]:
    """The leader and the next of the others, a new rack before one that has a replica already."""
    chosen = [leader]
    waiting = list(others)
    while len(chosen) < count:
        used = {broker.rack for broker in chosen}
        follower = next((broker for broker in waiting if broker.rack not in used), waiting[0])
        waiting.remove(follower)
        chosen.append(follower)
    return tuple(broker.id for broker in chosen)
