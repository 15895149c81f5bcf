"""Deciders that elect leaders on request, and restore preferred leaders. leadership.py has the elections of replay.

The preferred leader of a partition is its first replica: it spreads the load as the placement intended. An unclean
election makes a replica the leader that may lack acknowledged records, because no other can come back.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import islice

from ottla.cluster.changes import NO_LEADER, ChangePartition
from ottla.cluster.decision import Decision
from ottla.cluster.encoding import count_fitting
from ottla.cluster.image import Image, PartitionImage
from ottla.errors import ErrorCode, KafkaError
from ottla.topic_partition import TopicPartition

AT_ONCE_MAX = 10_000
"""Elections of one call, as in Kafka, if their changes fit one entry of the metadata log. The others are answered
OPERATION_NOT_ATTEMPTED."""


class ElectionType(IntEnum):
    """Who is to be elected, with Kafka's numbers."""

    PREFERRED = 0
    UNCLEAN = 1


def elect_leaders(
    image: Image, election_type: int, partitions: Iterable[TopicPartition] | None
) -> Decision[dict[TopicPartition, KafkaError | None]]:
    """Elect leaders of some partitions, or (None) of all. The result has the error of each partition, or None.

    When all partitions are meant, those that need no election are left out of the result.
    """
    if election_type not in tuple(ElectionType):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no election type {election_type}")
    changes: dict[TopicPartition, ChangePartition] = {}
    results: dict[TopicPartition, KafkaError | None] = {}
    for where in _list_partitions(image) if partitions is None else dict.fromkeys(partitions):
        try:
            change = _elect(image, election_type, where)
            if len(changes) == AT_ONCE_MAX:
                raise _make_limit_error(AT_ONCE_MAX)
        except KafkaError as error:
            if partitions is not None or error.code is not ErrorCode.ELECTION_NOT_NEEDED:
                results[where] = error
            continue
        results[where] = None
        changes[where] = change
    attempted = count_fitting(tuple(changes.values()))
    for where in islice(changes, attempted, None):
        results[where] = _make_limit_error(attempted)
    return Decision(tuple(islice(changes.values(), attempted)), results)


def _make_limit_error(limit: int) -> KafkaError:
    return KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED, f"{limit} elections at once are the limit")


def restore_preferred_leaders(image: Image, limit: int = AT_ONCE_MAX) -> Decision[int]:
    """Make preferred leaders that are in sync the leaders again. Returns how many: at `limit` there may be more."""
    wanted = (
        ChangePartition(topic.id, index, state.partition_epoch, leader=state.replicas[0])
        for topic in image.topics()
        for index, state in enumerate(topic.partitions)
        if state.leader not in (NO_LEADER, state.replicas[0]) and _can_lead(image, state, state.replicas[0])
    )
    changes = list(islice(wanted, limit))
    return Decision(changes, len(changes))


def _list_partitions(image: Image) -> Iterator[TopicPartition]:
    for topic in image.topics():
        for index in range(len(topic.partitions)):
            yield TopicPartition(topic.name, index)


def _elect(image: Image, election_type: int, where: TopicPartition) -> ChangePartition:
    topic = image.topic(where.topic)
    if topic is None or not 0 <= where.partition < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {where}")
    state = topic.partitions[where.partition]
    preferred = state.replicas[0]
    if state.leader == preferred or (election_type == ElectionType.UNCLEAN and state.leader != NO_LEADER):
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {state.leader} leads {where} already")
    if election_type == ElectionType.PREFERRED:
        if not _can_lead(image, state, preferred):
            message = f"broker {preferred} is not in sync, or not running: it cannot lead {where}"
            raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message)
        return ChangePartition(topic.id, where.partition, state.partition_epoch, leader=preferred)
    usable = [each for each in state.replicas if image.serves(each) and each not in state.offline]
    if not usable:
        message = f"none of the brokers {list(state.replicas)} is running with its data directory of {where}"
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, message)
    leader = state.last_known_leader if state.last_known_leader in usable else usable[0]
    return ChangePartition(
        topic.id, where.partition, state.partition_epoch, isr=(leader,), leader=leader, recovering=True
    )


def _can_lead(image: Image, state: PartitionImage, broker_id: int) -> bool:
    return broker_id in state.isr and broker_id not in state.offline and image.serves(broker_id)
