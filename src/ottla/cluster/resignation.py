"""A broker can no longer serve partitions that it leads: a decider on an image, without a side effect."""

from collections.abc import Iterable
from itertools import islice

from ottla.cluster.changes import NO_LEADER, Change, ChangePartition
from ottla.cluster.image import Image
from ottla.cluster.metadata import Decision
from ottla.cluster.registration import current

AT_ONCE_MAX = 1000
"""An entry of the metadata log is limited; what is left over is for the next call."""


def resign_leadership(
    image: Image, broker_id: int, broker_epoch: int, partitions: Iterable[tuple[bytes, int]]
) -> Decision[None]:
    """Of these partitions (topic id, number) the broker leads none. Another in-sync replica does, or else nobody.

    The last in-sync replica stays one: it is the only one that has every record, and leads when it is back.
    """
    current(image, broker_id, broker_epoch)
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
