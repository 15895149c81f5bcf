"""One request of every API, for tests that go through all APIs, and the errors that its answer may have.

An API that is missing here is sent an empty request, so a new handler is tested from its first day.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

from ottla.broker.handler_table import HandlerTable
from ottla.errors import ErrorCode
from ottla.wire.message import Message
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient
from tests.scenarios.admin_requests import ADMIN_REQUESTS
from tests.scenarios.group_requests import GROUP_REQUESTS

HANDLERS = {handler.api.name: handler for handler in HandlerTable().values()}
WITH_A_CODEC_OF_THEIR_OWN = {"Produce", "Fetch"}
BY_NAME_OR_ID = {"Metadata", "DeleteTopics"}
"""In these APIs a request names a topic by name or by id, never both. In the others the version decides which."""


VERSIONS = [
    (name, version)
    for name, handler in HANDLERS.items()
    if name not in WITH_A_CODEC_OF_THEIR_OWN
    for version in handler.versions
]
"""(API, version) for each version of each API."""

NOT_A_MEMBER = {ErrorCode.UNKNOWN_MEMBER_ID}
NO_GROUP = {ErrorCode.GROUP_ID_NOT_FOUND}
NO_AUTHORIZER = {ErrorCode.SECURITY_DISABLED}
NO_TRANSACTION = {ErrorCode.INVALID_PRODUCER_ID_MAPPING}

REFUSALS: dict[str, set[ErrorCode]] = {
    "AddOffsetsToTxn": NO_TRANSACTION,
    "AddPartitionsToTxn": NO_TRANSACTION,
    "ConsumerGroupDescribe": NO_GROUP,
    "ConsumerGroupHeartbeat": NO_GROUP,
    "CreateAcls": NO_AUTHORIZER,
    "DeleteAcls": NO_AUTHORIZER,
    "DeleteGroups": NO_GROUP,
    "DescribeAcls": NO_AUTHORIZER,
    "DescribeGroups": NO_GROUP,
    "DescribeTransactions": {ErrorCode.TRANSACTIONAL_ID_NOT_FOUND},
    "EndTxn": NO_TRANSACTION,
    "GetTelemetrySubscriptions": {ErrorCode.UNSUPPORTED_VERSION},
    "Heartbeat": NOT_A_MEMBER,
    "JoinGroup": NOT_A_MEMBER,
    "LeaveGroup": NOT_A_MEMBER,
    "OffsetDelete": NO_GROUP,
    "SyncGroup": NOT_A_MEMBER,
    "TxnOffsetCommit": NOT_A_MEMBER | NO_TRANSACTION,
}
"""Errors that a request may get, because its sender is no member and has no transaction, or because it is about access
rules and the broker has no authorizer. Every other request must succeed."""

TRANSIENT = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
"""Errors that pass: the request is sent again."""

PATIENT_MS = 20_000


def delete_topics(version: int, topic: str) -> Message:
    if version < 6:
        return DeleteTopicsRequest(topic_names=[topic], timeout_ms=PATIENT_MS)
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=PATIENT_MS)


def find_coordinator(version: int, topic: str) -> Message:
    return FindCoordinatorRequest(key="group") if version < 4 else FindCoordinatorRequest(coordinator_keys=["group"])


def create_topics(version: int, topic: str) -> Message:
    name = f"created-by-{version}"
    asked = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[asked], timeout_ms=PATIENT_MS)


def list_offsets(version: int, topic: str) -> Message:
    asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(timestamp=-1)])
    return ListOffsetsRequest(replica_id=-1, topics=[asked])


def offset_for_leader_epoch(version: int, topic: str) -> Message:
    return OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=topic, partitions=[OffsetForLeaderPartition(leader_epoch=0)])]
    )


REQUESTS: dict[str, Callable[[int, str], Message]] = {
    "ApiVersions": lambda version, topic: ApiVersionsRequest(client_software_name="raw", client_software_version="1.0"),
    "CreateTopics": create_topics,
    "DeleteTopics": delete_topics,
    "FindCoordinator": find_coordinator,
    "InitProducerId": lambda version, topic: InitProducerIdRequest(transactional_id=None),
    "ListOffsets": list_offsets,
    "Metadata": lambda version, topic: MetadataRequest(topics=[MetadataRequestTopic(name=topic)]),
    "OffsetForLeaderEpoch": offset_for_leader_epoch,
    **ADMIN_REQUESTS,
    **GROUP_REQUESTS,
}


def build_request(api: str, version: int, topic: str, topic_id: bytes) -> Message:
    """The request of an API in one version, about this topic by name and by id."""
    build = REQUESTS.get(api)
    message = build(version, topic) if build is not None else HANDLERS[api].api.request()
    if api not in BY_NAME_OR_ID:
        for part in parts_of(message):
            if hasattr(part, "topic_id") and getattr(part, "name", None) == topic:
                part.topic_id = topic_id
    return message


def ask_until_settled(client: RawClient, request: Message, version: int) -> Any:
    """Ask until the answer has no error that passes, such as a coordinator that is still loading."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = client.request(request, version)
        if not TRANSIENT.intersection(errors_in(answer)) or time.monotonic() > deadline:
            return answer


def parts_of(value: Any) -> Iterator[Message]:
    """A message and all values inside it, at any depth."""
    if isinstance(value, list):
        for each in value:
            yield from parts_of(each)
    elif isinstance(value, Message):
        yield value
        for name, *_ in value.FIELDS:
            yield from parts_of(getattr(value, name))


def errors_in(answer: Any) -> list[int]:
    """Every error code that a response has anywhere."""
    found = [getattr(part, name, 0) for part in parts_of(answer) for name in ("error_code", "partition_error_code")]
    return [code for code in found if code]
