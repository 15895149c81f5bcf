"""Open transactions of topics that a command names, as the leaders of their partitions see them.

What a hanging transaction is, and how it is ended: `ottla.client.hanging_transactions`.
"""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from ottla.cli.client import CommandClient

if TYPE_CHECKING:
    from ottla.client.hanging_transactions import OpenTransaction


def list_open_transactions(
    client: CommandClient, topics: Iterable[str], partitions: Collection[int] = ()
) -> "list[OpenTransaction]":
    """All transactions that are open in these topics, according to the leaders of their partitions."""
    from ottla.client import hanging_transactions

    led = _find_leaders(client, topics, partitions)
    with client.open_own_client() as own:
        return hanging_transactions.list_open_transactions(own, led)


def find_hanging(client: CommandClient, topics: Iterable[str], before_ms: int) -> "list[OpenTransaction]":
    """Open transactions whose producers have not written since `before_ms` and that no coordinator will end."""
    from ottla.client import hanging_transactions

    led = _find_leaders(client, topics)
    with client.open_own_client() as own:
        return hanging_transactions.find_hanging(own, led, before_ms)


def write_abort_marker(client: CommandClient, hanging: "OpenTransaction") -> int:
    """End a transaction in its partition. Returns the partition's error code."""
    from ottla.client import hanging_transactions

    with client.open_own_client() as own:
        return hanging_transactions.write_abort_marker(own, hanging)


def _find_leaders(
    client: CommandClient, topics: Iterable[str], partitions: Collection[int] = ()
) -> dict[int, dict[str, list[int]]]:
    led: dict[int, dict[str, list[int]]] = {}
    for name, topic in client.describe_topics(list(topics)).items():
        if topic is None:
            raise client.explain_no_topic(name)
        for partition in topic.partitions:
            if partition.leader is not None and (not partitions or partition.id in partitions):
                led.setdefault(partition.leader.id, {}).setdefault(name, []).append(partition.id)
    return led
