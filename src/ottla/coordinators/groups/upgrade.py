"""Converts a classic group of consumers into a consumer group when its first member of the consumer protocol joins.

No member stops reading. Members keep their partitions, their generation becomes their epoch, and they go on as members
of the classic protocol until they are restarted with the consumer protocol.
"""

import logging
from typing import Final

from ottla.cluster.image import Image
from ottla.coordinators.classic.group import ClassicGroup
from ottla.coordinators.classic.members import Member as ClassicMember
from ottla.coordinators.consumer.assignors import NO_PARTITIONS, Partitions
from ottla.coordinators.consumer.members import Member
from ottla.coordinators.consumer.state import GroupChange, GroupState
from ottla.coordinators.consumer.topic_hashes import TopicHashes
from ottla.coordinators.formats import ClassicMemberMetadata, ClassicProtocol
from ottla.coordinators.groups.consumer_protocol import partitions_by_id, read_assignment, read_subscription
from ottla.coordinators.machine import StoredRecord, Turn
from ottla.errors import ErrorCode, KafkaError
from ottla.observability.logs import fields
from ottla.wire.malformed import Malformed

logger = logging.getLogger(__name__)

ALLOWED_BY: Final = ("upgrade", "bidirectional")


def build_upgrade_records(group: ClassicGroup, turn: Turn) -> list[StoredRecord]:
    """Records that delete the classic group and store a consumer group with its members.

    GROUP_ID_NOT_FOUND, as from Kafka, if the group cannot be converted.
    """
    _check_upgrade(group, turn)
    try:
        members = [_convert_member(group, member, turn.image) for member in group.members]
    except Malformed as error:
        raise _make_refusal(group, f"the subscription or assignment of a member cannot be read: {error}") from None
    logger.info("the classic group becomes a consumer group", extra=fields(group=group.id, epoch=group.generation))
    change = GroupChange(GroupState(group.id), turn)
    change.store(*(member.metadata_record(group.id) for member in members))
    topics = TopicHashes().compute(change.state.subscribed_topics(), turn.image)
    change.store(change.state.epoch_record(group.generation, topics))
    for member in members:
        target = {topic: frozenset(numbers) for topic, numbers in member.assigned.items()}
        change.store(member.target_record(group.id, target))
    change.store(change.state.target_epoch_record(group.generation, 0))
    change.store(*(member.current_assignment_record(group.id) for member in members))
    return [*group.tombstones(), *change.records]


def _check_upgrade(group: ClassicGroup, turn: Turn) -> None:
    if turn.config.group_consumer_migration_policy.lower() not in ALLOWED_BY:
        raise _make_refusal(group, "group.consumer.migration.policy does not allow it")
    if not group.uses_consumer_protocol:
        raise _make_refusal(group, "its members are not consumers")
    if len(group.members) > turn.config.group_consumer_max_size:
        raise _make_refusal(group, "it has more members than group.consumer.max.size")


def _convert_member(group: ClassicGroup, member: ClassicMember, image: Image) -> Member:
    protocol = group.protocol or next((name for name, _ in member.protocols), None)
    subscription = read_subscription(member.metadata(protocol))
    held = _find_assigned(group, member, subscription.user_data, image)
    return Member(
        member.id,
        epoch=group.generation,
        previous_epoch=group.generation,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMemberMetadata(
            session_timeout_ms=member.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=data) for name, data in member.protocols],
        ),
        assigned={topic: dict.fromkeys(sorted(numbers), group.generation) for topic, numbers in held.items()},
    )


def _find_assigned(group: ClassicGroup, member: ClassicMember, joined_with: bytes | None, image: Image) -> Partitions:
    """The partitions that a member was assigned.

    Kafka refuses to convert a group whose assignments carry user data. We accept user data that equals what the member
    itself sent when it joined (`joined_with`), as librdkafka's `cooperative-sticky` has it: nothing is lost then.
    """
    if not member.assignment:
        return NO_PARTITIONS
    assignment = read_assignment(member.assignment)
    if assignment.user_data and assignment.user_data != joined_with:
        raise _make_refusal(group, "its assignor keeps user data in the assignment, which would be lost")
    return partitions_by_id(assignment.assigned_partitions, image)


def _make_refusal(group: ClassicGroup, reason: str) -> KafkaError:
    message = f"group {group.id!r} cannot become a consumer group: {reason}"
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)
