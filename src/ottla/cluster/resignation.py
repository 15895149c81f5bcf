"""The decider by which a broker gives up the leadership of partitions that it can no longer serve."""

from collections.abc import Iterable
from itertools import islice

from ottla.cluster.changes import NO_LEADER, Change, ChangePartition
from ottla.cluster.image import Image
from ottla.cluster.metadata import Decision
from ottla.cluster.registration import require_current

AT_ONCE_MAX = 1000
"""Partitions of one call: an entry of the metadata log is limited. The next call takes the rest."""


def resign_leadership(
    image: Image, broker_id: int, broker_epoch: int, partitions: Iterable[tuple[bytes, int]]
) -> Decision[None]:
    """Make another in-sync replica the leader of each of these partitions (topic id, number), or none if there is none.

    The last in-sync replica stays in the ISR: only it has every record, and it leads again when it is back.
    """
    require_current(image, broker_id, broker_epoch)
    changes = (
        change for topic_id, index in partitions if (change := _resign(image, broker_id, topic_id, index)) is not None
    )
    return Decision(list(islice(changes, AT_ONCE_MAX)), None)


def _resign(image: Image, broker_id: int, topic_id: bytes, index: int) -> Change | None:
    topic = image.topic_by_id(topic_id)
    if topic is None or index >= len(topic.partitions):
        return None
    state = topic.partitions[index]
    others = tuple(member for member in state.isr if member != broker_id)
    if state.leader != broker_id and (broker_id not in state.isr or not others):
        return None
    leader = state.leader
    if leader == broker_id:
        leader = next((member for member in others if not image.brokers[member].fenced), NO_LEADER)
    return ChangePartition(topic_id, index, state.partition_epoch, isr=others or None, leader=leader)
