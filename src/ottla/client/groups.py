"""Reads and writes the committed offsets of a consumer group, without being a member of it.

Requests are limited to the versions that have topic names instead of ids, because a ledger is found by topic name.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from ottla.client.client import Client, find_error_codes
from ottla.errors import ErrorCode, KafkaError
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

T = TypeVar("T")

NAMES_UNTIL = 9
"""OffsetCommit and OffsetFetch name topics by id from version 10 on."""


class CommittedOffset(NamedTuple):
    offset: int
    metadata: str = ""


def fetch_offsets(
    client: Client, group: str, partitions: Iterable[TopicPartition] | None = None, *, require_stable: bool = False
) -> dict[TopicPartition, CommittedOffset]:
    """The committed offsets of these partitions, or of all. A partition without an offset is left out.

    With `require_stable`, waits for open transactions that have pending offsets of the group.
    """
    wanted = None if partitions is None else group_by_topic(dict.fromkeys(partitions))
    topics = old_topics = None
    if wanted is not None:
        topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[*found]) for name, found in wanted.items()]
        old_topics = [OffsetFetchRequestTopic(name=name, partition_indexes=[*found]) for name, found in wanted.items()]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)],
        group_id=group,
        topics=old_topics,
        require_stable=require_stable,
    )
    answer = client.ask_coordinator("group", group, request, NAMES_UNTIL)
    raise_for_errors(answer, f"offsets of group {group!r}")
    found = answer.groups[0] if answer.groups else answer
    return {
        TopicPartition(topic.name, each.partition_index): CommittedOffset(each.committed_offset, each.metadata or "")
        for topic in found.topics
        for each in topic.partitions
        if each.committed_offset >= 0
    }


def commit_offsets(client: Client, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
    """Commit offsets of a group without members. Raises KafkaError if one fails; the others may be committed then."""
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=each.offset, committed_metadata=each.metadata
                )
                for partition, each in found.items()
            ],
        )
        for name, found in group_by_topic(offsets).items()
    ]
    answer = client.ask_coordinator("group", group, OffsetCommitRequest(group_id=group, topics=topics), NAMES_UNTIL)
    raise_for_errors(answer, f"offsets of group {group!r}")


_HINTS = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "the principal needs READ on the group",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the principal needs READ on the topic",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the principal needs WRITE on the transactional id",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members: only they may commit its offsets",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "an open transaction has pending offsets for the group",
}


def raise_for_errors(answer: Any, what: str) -> None:
    """Raises KafkaError for the first error code in an answer, with a hint where there is one."""
    for code in find_error_codes(answer):
        hint = _HINTS.get(code)
        raise KafkaError(code, f"{what}: {hint}" if hint else what)


def group_by_topic(offsets: Mapping[TopicPartition, T]) -> dict[str, dict[int, T]]:
    found: dict[str, dict[int, T]] = {}
    for (topic, partition), each in offsets.items():
        found.setdefault(topic, {})[partition] = each
    return found
