"""The brokers that lead the partitions of topics which a command names: whom to ask for open transactions there.

What a hanging transaction is, and how it is ended: `ottla.client.hanging_transactions`.
"""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from ottla.cli.client import find_topics

if TYPE_CHECKING:
    from ottla.client.client import Client


def find_leaders(
    own: "Client", topics: Iterable[str], partitions: Collection[int] = ()
) -> dict[int, dict[str, list[int]]]:
    """By broker: the partitions of each topic that it leads. CommandError if a topic does not exist."""
    led: dict[int, dict[str, list[int]]] = {}
    for name, topic in find_topics(own, topics).items():
        for partition in topic.partitions:
            if partition.leader_id >= 0 and (not partitions or partition.partition_index in partitions):
                led.setdefault(partition.leader_id, {}).setdefault(name, []).append(partition.partition_index)
    return led
