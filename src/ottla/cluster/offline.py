"""The decider by which a running broker reports replicas that it cannot serve: their directory failed, or is gone."""

from collections.abc import Iterable

from ottla.cluster.changes import Change, TakeReplicasOffline, TopicReplicas
from ottla.cluster.decision import Decision
from ottla.cluster.image import BrokerImage, Image
from ottla.cluster.registration import require_current
from ottla.topic_partition import TopicIdPartition

AT_ONCE_MAX = 10_000
"""Partitions of one call: an entry of the metadata log is limited. The next call takes the rest."""


def take_replicas_offline(
    image: Image, broker_id: int, broker_epoch: int, partitions: Iterable[TopicIdPartition], *, lost: bool = False
) -> Decision[int]:
    """Make another replica the leader of these partitions, or none if nobody can lead.

    The replicas leave the ISR, and serve again when the broker registers again. `lost`: the broker came back without
    their logs; it creates empty ones and copies them from a leader, but may not lead before. A broker reports both
    before it is unfenced. Returns how many replicas changed: at AT_ONCE_MAX there may be more.
    """
    broker = require_current(image, broker_id, broker_epoch)
    found: dict[bytes, list[int]] = {}
    count = 0
    for topic_id, index in partitions:
        if count == AT_ONCE_MAX:
            break
        if _is_affected(image, broker, topic_id, index, lost):
            found.setdefault(topic_id, []).append(index)
            count += 1
    if not found:
        return Decision([], 0)
    replicas = tuple(TopicReplicas(topic_id, tuple(sorted(found[topic_id]))) for topic_id in sorted(found))
    changes: list[Change] = [TakeReplicasOffline(broker_id, broker_epoch, replicas, lost)]
    return Decision(changes, count)


def _is_affected(image: Image, broker: BrokerImage, topic_id: bytes, index: int, lost: bool) -> bool:
    """Whether the broker keeps the partition, and the image does not know yet that it cannot serve it."""
    topic = image.topic_by_id(topic_id)
    if topic is None or not 0 <= index < len(topic.partitions):
        return False
    state = topic.partitions[index]
    if not lost:
        return broker.id in state.replicas and broker.id not in state.offline
    may_lead_again = state.replicas == (broker.id,) and not broker.lost_directories
    return (
        broker.id in state.isr
        or broker.id in state.elr
        or (broker.id == state.last_known_leader and not may_lead_again)
    )
