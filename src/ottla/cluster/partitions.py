"""The decider that adds partitions to a topic, with Kafka's checks and error codes."""

from collections.abc import Sequence
from random import Random

from ottla.cluster.decision import Decision
from ottla.cluster.encoding import ENTRY_BYTES_MAX, encode
from ottla.cluster.image import Image, TopicImage
from ottla.cluster.topics import PARTITIONS_MAX, REPLICAS_UNCHECKED_MAX, check_replicas, new_partition, place_replicas
from ottla.errors import ErrorCode, KafkaError


def create_partitions(
    image: Image, name: str, count: int, assignments: Sequence[Sequence[int]] | None, random: Random
) -> Decision[int]:
    """Grow the topic to `count` partitions. `assignments`: replicas of the new ones. Returns how many are new."""
    topic = image.topic(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")
    first = len(topic.partitions)
    added = count - first
    if added < 1:
        message = f"topic '{name}' has {first} partition(s) already, {count} is not more; partitions cannot be removed"
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
    if added > PARTITIONS_MAX:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"{added} new partitions; {PARTITIONS_MAX} are the limit")
    changes = [
        new_partition(image, topic.id, first + number, replicas)
        for number, replicas in enumerate(_choose_replicas(image, topic, added, assignments, random))
    ]
    replicas = sum(len(change.replicas) for change in changes)
    if replicas > REPLICAS_UNCHECKED_MAX and len(encode(changes)) > ENTRY_BYTES_MAX:
        message = f"{added} partitions are too many to create at once; add them in several steps"
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
    return Decision(changes, added)


def _choose_replicas(
    image: Image, topic: TopicImage, added: int, assignments: Sequence[Sequence[int]] | None, random: Random
) -> list[tuple[int, ...]]:
    first = topic.partitions[0]
    factor = len(first.replicas) - len(first.removing)
    if assignments is not None:
        return _check_assignments(image, len(topic.partitions), factor, added, assignments)
    return place_replicas(image, added, factor, random)


def _check_assignments(
    image: Image, first: int, factor: int, added: int, assignments: Sequence[Sequence[int]]
) -> list[tuple[int, ...]]:
    if len(assignments) != added:
        message = f"{added} partition(s) are new, but replicas are given for {len(assignments)}"
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    given = [tuple(replicas) for replicas in assignments]
    for number, replicas in enumerate(given, first):
        check_replicas(image, number, replicas)
        if len(replicas) != factor:
            message = f"partition {number} gets {len(replicas)} replica(s), the others of this topic have {factor}"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return given
