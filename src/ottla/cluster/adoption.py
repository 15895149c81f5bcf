"""Adopts topics that are on disk but in no metadata: Apache Kafka wrote the data directory, or it is a copy.

Only a read-only broker adopts topics. Their settings are unknown. Partitions that other brokers of their cluster kept
are missing, and stay without a leader.
"""

from collections.abc import Mapping

from ottla.cluster.changes import NO_LEADER, Change, CreatePartition, CreateTopic
from ottla.cluster.decision import Decision
from ottla.cluster.image import Image


def adopt_topic(
    image: Image, name: str, topic_id: bytes, leader_epochs: Mapping[int, int], broker_id: int
) -> Decision[None]:
    """`leader_epochs`: the last leader epoch in the log of each partition on disk. The next epoch comes after it."""
    if image.topic(name) is not None:
        return Decision([], None)
    changes: list[Change] = [CreateTopic(topic_id, name)]
    elsewhere = (broker_id + 1,)
    for number in range(max(leader_epochs) + 1):
        if number in leader_epochs:
            here = (broker_id,)
            changes.append(CreatePartition(topic_id, number, here, here, NO_LEADER, max(leader_epochs[number], 0)))
        else:
            changes.append(CreatePartition(topic_id, number, elsewhere, elsewhere, NO_LEADER))
    return Decision(changes, None)
