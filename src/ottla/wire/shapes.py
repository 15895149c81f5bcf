"""Turns requests of old versions into the newest shape, and responses back, so that handlers see one shape only.

`find_upgrade` returns a function that changes a request after it was read, `find_downgrade` one that changes a response
before it is written. Both change in place, and only the few APIs and versions named here:

    FindCoordinator 3/4       one key, or a list of keys
    OffsetFetch 7/8           one group's topics, or a list of groups
    LeaveGroup 2/3            one member, or a list of members
    DeleteTopics 5/6          names, or a list of topics by name or id
    AddPartitionsToTxn 3/4    one transaction, or a list of them
    UpdateFeatures 0/1        allow downgrade, or a type of upgrade
    JoinGroup 6/7             no protocol: an empty name, or null

Topic name or topic id (Produce, Fetch, OffsetCommit, OffsetFetch) makes no difference here: handlers use both fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.wire import substitutes
from ottla.wire.message import Message, structure_of

Change = Callable[[Any, int], None]


def _find_coordinator_up(request: Any, version: int) -> None:
    request.coordinator_keys = [request.key]


def _find_coordinator_down(response: Any, version: int) -> None:
    if len(response.coordinators) == 1:
        (answer,) = response.coordinators
        response.error_code, response.error_message = answer.error_code, answer.error_message
        response.node_id, response.host, response.port = answer.node_id, answer.host, answer.port


def _offset_fetch_up(request: Any, version: int) -> None:
    group_class = structure_of(type(request), "OffsetFetchRequestGroup")
    topic_class = structure_of(type(request), "OffsetFetchRequestTopics")
    topics = None
    if request.topics is not None:
        topics = [_copy(topic, topic_class) for topic in request.topics]
    request.groups = [_build(group_class, group_id=request.group_id, topics=topics)]


def _offset_fetch_down(response: Any, version: int) -> None:
    if len(response.groups) != 1:
        return
    topic_class = structure_of(type(response), "OffsetFetchResponseTopic")
    partition_class = structure_of(type(response), "OffsetFetchResponsePartition")
    (group,) = response.groups
    response.error_code = group.error_code
    response.topics = [
        _build(topic_class, name=topic.name, partitions=[_copy(each, partition_class) for each in topic.partitions])
        for topic in group.topics
    ]
    if version < 2 and group.error_code:  # these versions have no error code for the whole group
        for topic in response.topics:
            for partition in topic.partitions:
                partition.error_code, partition.committed_offset, partition.metadata = group.error_code, -1, ""


def _leave_group_up(request: Any, version: int) -> None:
    request.members = [_build(structure_of(type(request), "MemberIdentity"), member_id=request.member_id)]


def _leave_group_down(response: Any, version: int) -> None:
    if not response.error_code and len(response.members) == 1:
        response.error_code = response.members[0].error_code


def _delete_topics_up(request: Any, version: int) -> None:
    topic_class = structure_of(type(request), "DeleteTopicState")
    request.topics = [_build(topic_class, name=name) for name in request.topic_names]


def _add_partitions_to_txn_up(request: Any, version: int) -> None:
    request.transactions = [
        _build(
            structure_of(type(request), "AddPartitionsToTxnTransaction"),
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
    ]


def _add_partitions_to_txn_down(response: Any, version: int) -> None:
    if len(response.results_by_transaction) == 1:
        response.results_by_topic_v3_and_below = response.results_by_transaction[0].topic_results


def _update_features_up(request: Any, version: int) -> None:
    upgrade, safe_downgrade = 1, 2
    for update in request.feature_updates:
        update.upgrade_type = safe_downgrade if update.allow_downgrade else upgrade


def _join_group_down(response: Any, version: int) -> None:
    if response.protocol_name is None:
        response.protocol_name = ""


_UP: dict[str, tuple[int, Change]] = {
    "FindCoordinatorRequest": (4, _find_coordinator_up),
    "OffsetFetchRequest": (8, _offset_fetch_up),
    "LeaveGroupRequest": (3, _leave_group_up),
    "DeleteTopicsRequest": (6, _delete_topics_up),
    "AddPartitionsToTxnRequest": (4, _add_partitions_to_txn_up),
    "UpdateFeaturesRequest": (1, _update_features_up),
}
_DOWN: dict[str, tuple[int, Change]] = {
    "FindCoordinatorResponse": (4, _find_coordinator_down),
    "OffsetFetchResponse": (8, _offset_fetch_down),
    "LeaveGroupResponse": (3, _leave_group_down),
    "AddPartitionsToTxnResponse": (4, _add_partitions_to_txn_down),
    "JoinGroupResponse": (7, _join_group_down),
}


def find_upgrade(request_class: type[Message], version: int) -> Change | None:
    """The function that gives a request of `version` the newest shape; None if it has it already."""
    return _change(_UP, request_class, version)


def find_downgrade(response_class: type[Message], version: int) -> Change | None:
    """The function that gives a response the shape and the error codes of `version`; None if nothing changes."""
    reshape = _change(_DOWN, response_class, version)
    substitute = substitutes.find_substitution(response_class, version)
    if substitute is None:
        return reshape

    def both(response: Any, version: int) -> None:
        if reshape is not None:
            reshape(response, version)
        substitute(response)

    return both


def _change(table: dict[str, tuple[int, Change]], message_class: type[Message], version: int) -> Change | None:
    below, change = table.get(message_class.__name__, (0, None))
    return change if version < below else None


def _build(message_class: type[Message], **values: Any) -> Any:
    return message_class(**values)


def _copy(source: Message, target_class: type[Message]) -> Any:
    """The fields that both classes have, in the target class."""
    shared = {row[0] for row in source.FIELDS}
    return target_class(**{row[0]: getattr(source, row[0]) for row in target_class.FIELDS if row[0] in shared})
