"""Every API in every version, as a user without any right, and as one who has exactly what the handler declares."""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.handler_table import HandlerTable, load_handler
from ottla.errors import ErrorCode
from ottla.security.authorizer import Authorizer
from ottla.security.operations import CLUSTER_NAME, Operation, ResourceType
from ottla.security.rights import NOTHING, Right
from ottla.testing import LocalBroker
from ottla.wire import fetch, frames, produce
from ottla.wire.fetch import FetchRequest
from ottla.wire.message import Message
from ottla.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.wire.messages.describe_acls import DescribeAclsRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.raw_client import RawClient
from tests.scenarios.access import add, connect_as, delete_all_acls, guarded_broker, rule
from tests.scenarios.client_calls import append, decode_values, find_topic_id, make_batch
from tests.scenarios.every_request import (
    HANDLERS,
    VERSIONS,
    WITH_A_CODEC_OF_THEIR_OWN,
    ask_until_settled,
    build_request,
    errors_in,
    parts_of,
)
from tests.scenarios.group_requests import NOBODY, group_of

SECRET, ABSENT = "secret", "absent"

UNAUTHORIZED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}

TOKENS_REFUSED = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""Delegation tokens are for clients that have authenticated, which this user has not."""

LISTS = {"ListGroups", "ListTransactions"}
"""APIs that leave out what the client may not see, instead of an error."""

OPEN = {"DescribeCluster"}
"""APIs that answer everybody, and need a right only for a part of the answer."""


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with guarded_broker(auto_create_topics_enable=True) as running:
        with connect_as("root", running) as root:
            running.create_topic(SECRET)
            append(root, SECRET, b"one")
            commit(root, group_of(SECRET), SECRET)
            commit(root, NOBODY, SECRET)
        yield running


def commit(client: RawClient, group: str, topic: str) -> None:
    partition = OffsetCommitRequestPartition(committed_offset=1)
    asked = OffsetCommitRequestTopic(name=topic, partitions=[partition])
    answer = ask_until_settled(client, OffsetCommitRequest(group_id=group, topics=[asked]), 9)
    assert not errors_in(answer)


def describe_everything(root: RawClient) -> Any:
    """What an intruder could have changed."""
    topics = root.request(MetadataRequest(topics=None), 12).topics
    names = [topic.name for topic in topics]
    asked = DescribeConfigsResource(resource_type=2, resource_name=SECRET, configuration_keys=None)
    everything = DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
    configs = root.request(DescribeConfigsRequest(resources=[asked]), 4).results[0].configs
    return (
        [(topic.name, len(topic.partitions)) for topic in topics if topic.name != "__transaction_state"],
        [(each.name, each.value) for each in configs],
        sorted(group.group_id for group in root.request(ListGroupsRequest(), 4).groups),
        repr(root.request(everything, 3).resources),
        decode_values(root.fetch(SECRET, 0, 0)) if SECRET in names else None,
    )


def build(api: str, version: int, topic: str, topic_id: bytes) -> Message:
    """A request that names something: an empty one could not be refused."""
    if api == "AlterReplicaLogDirs":
        named = AlterReplicaLogDirTopic(name=topic, partitions=[0])
        return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/nowhere", topics=[named])])
    if api == "ElectLeaders":
        return ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=topic, partitions=[0])])
    if api == "AlterClientQuotas":
        operation = OpData(key="producer_byte_rate", value=1.0)
        entity = AlterClientQuotasRequestEntityData(entity_type="user", entity_name="another user")
        return AlterClientQuotasRequest(entries=[AlterClientQuotasRequestEntryData(entity=[entity], ops=[operation])])
    return build_request(api, version, topic, topic_id)


def is_empty(request: Message) -> bool:
    """Whether nothing in the request can be refused on its own, as in one of an API that no table has."""
    return not any(isinstance(getattr(request, row[0]), list) and getattr(request, row[0]) for row in request.FIELDS)


def name_things(message: Message, topic: str) -> Message:
    """The same request about other groups: one that exists, or one that does not."""
    for part in parts_of(message):
        for name, *_ in part.FIELDS:
            value = getattr(part, name)
            if topic == ABSENT and value == NOBODY:
                setattr(part, name, "absent group")
            elif topic == ABSENT and value == [NOBODY]:
                setattr(part, name, ["absent group"])
    return message


NAMES = ("absent group", NOBODY, group_of(SECRET), group_of(ABSENT), SECRET, ABSENT)


def unnamed(value: Any) -> Any:
    """An answer without the names that the request had."""
    if isinstance(value, Message):
        return [(row[0], unnamed(getattr(value, row[0]))) for row in value.FIELDS]
    if isinstance(value, str):
        for name in NAMES:
            value = value.replace(name, "?")
    return [unnamed(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_nobody_gets_in(api: str, version: int, broker: LocalBroker) -> None:
    """The request is refused with the error of Kafka, the answer names nothing that the request did not name, nothing
    has changed, and whether topic and group exist makes no difference."""
    with connect_as("root", broker) as root, connect_as("nobody", broker) as intruder:
        before = describe_everything(root)
        known = find_topic_id(root, SECRET)
        request = build(api, version, SECRET, bytes(16))
        answer = intruder.request(name_things(request, SECRET), version)
        codes = set(errors_in(answer))
        if "DelegationToken" not in api and (HANDLERS[api].requires is NOTHING or api in LISTS | OPEN):
            assert not codes or HANDLERS[api].requires is NOTHING
            assert "?" not in repr(unnamed(answer))
        elif "DelegationToken" in api:
            assert codes
            assert codes <= TOKENS_REFUSED
        elif not codes and is_empty(request):
            assert HANDLERS[api].requires.is_whole  # dispatch has refused it; there is nothing to put the error into
        elif not (api == "DescribeLogDirs" and version < 3):
            by_id = {ErrorCode.UNKNOWN_TOPIC_ID}  # version that have ids only: this id does not exist
            assert codes & UNAUTHORIZED, answer
            assert codes <= UNAUTHORIZED | by_id, answer
        again = intruder.request(name_things(build(api, version, ABSENT, bytes(16)), ABSENT), version)
        assert unnamed(again) == unnamed(answer)
        by_id = intruder.request(build(api, version, SECRET, known), version)
        if api in ("OffsetCommit", "OffsetFetch") and version >= 10:
            assert set(errors_in(by_id)) <= UNAUTHORIZED
        assert describe_everything(root) == before


def all_rights(user: str, right: Right) -> Any:
    """An ACL that gives a right on every resource of its type."""
    name = CLUSTER_NAME if right.resource_type is ResourceType.CLUSTER else "*"
    return rule(user, right.operation, right.resource_type, name)


@pytest.mark.parametrize("api", [name for name in HANDLERS if name not in WITH_A_CODEC_OF_THEIR_OWN])
def test_the_declared_rights_are_enough_and_all_are_asked_for(
    api: str, broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all of them no version is refused, and the authorizer is asked for no other right."""
    asked: set[Right] = set()
    original = Authorizer.allows

    def allows(self: Authorizer, client: Any, right: Right, name: str = CLUSTER_NAME) -> bool:
        if client.principal.name == "alice":
            asked.add(right)
        return original(self, client, right, name)

    monkeypatch.setattr(Authorizer, "allows", allows)
    handler = HANDLERS[api]
    topic = f"topic-of-{api}"
    with connect_as("root", broker) as root, connect_as("alice", broker) as alice:
        delete_all_acls(root)
        if handler.requires.rights:
            add(root, *[all_rights("alice", right) for right in handler.requires.rights])
        for version in handler.versions:
            broker.create_topic(f"{topic}-{version}")
            topic_id = find_topic_id(root, f"{topic}-{version}")
            request = build(api, version, f"{topic}-{version}", topic_id)
            if api == "DescribeCluster":
                request.include_cluster_authorized_operations = True  # type: ignore[attr-defined]
            answer = ask_until_settled(alice, request, version)
            assert not set(errors_in(answer)) & UNAUTHORIZED, (version, answer)
        delete_all_acls(root)
    assert asked <= set(handler.requires.rights)


def test_every_api_declares_what_it_needs() -> None:
    """A handler without a declaration is not loaded at all."""
    for handler in HandlerTable().values():
        assert handler.requires.rights or handler.requires is NOTHING
    free = {handler.api.name for handler in HandlerTable().values() if handler.requires is NOTHING}
    assert free <= {
        "ApiVersions",
        "SaslHandshake",
        "SaslAuthenticate",
        "GetTelemetrySubscriptions",
        "PushTelemetry",
        "RenewDelegationToken",
        "ExpireDelegationToken",
    }


def test_a_handler_without_a_declaration_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.handlers import heartbeat

    monkeypatch.delattr(heartbeat, "REQUIRES")
    with pytest.raises(TypeError, match="does not declare in REQUIRES which rights clients need for Heartbeat"):
        load_handler(frames.find_api_by_folder("heartbeat"))


@pytest.mark.parametrize("version", produce.VERSIONS)
def test_nobody_writes(version: int, broker: LocalBroker) -> None:
    """By name the answer is the same for a topic that does not exist; an id that exists is refused."""
    with connect_as("nobody", broker) as intruder, connect_as("root", broker) as root:
        known = find_topic_id(root, SECRET)
        targets = [SECRET, ABSENT] if version < produce.TOPIC_ID_FROM else [known]
        for target in targets:
            result = intruder.produce(target, 0, make_batch(b"two"), version=version)
            assert result is not None
            assert result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert decode_values(root.fetch(SECRET, 0, 0)) == [b"one"]


@pytest.mark.parametrize("version", fetch.VERSIONS)
def test_nobody_reads(version: int, broker: LocalBroker) -> None:
    """Neither as a consumer nor as a follower (CVE-2018-1288)."""
    with connect_as("nobody", broker) as intruder, connect_as("root", broker) as root:
        known = find_topic_id(root, SECRET)
        by_id = version >= fetch.TOPIC_ID_FROM
        for name in [SECRET] if by_id else [SECRET, ABSENT]:
            found = intruder.fetch(known if by_id else name, 0, 0, version)
            assert found.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert not found.records
            asked = fetch.FetchTopic("" if by_id else name, known if by_id else bytes(16), [fetch.FetchPartition(0)])
            request = FetchRequest(replica_id=1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[asked])
            answer = intruder.fetch_whole(request, version)
            assert answer.topics[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_metadata_of_all_topics_has_only_what_the_client_may_see(broker: LocalBroker) -> None:
    """In every version, and what it may see is there as soon as it may see it."""
    with connect_as("root", broker) as root, connect_as("alice", broker) as alice:
        for version in HANDLERS["Metadata"].versions:
            everything = MetadataRequest(topics=[] if version == 0 else None)
            assert alice.request(everything, version).topics == []
        allowed = rule("alice", Operation.READ, ResourceType.TOPIC, SECRET)
        add(root, allowed)
        for version in HANDLERS["Metadata"].versions:
            everything = MetadataRequest(topics=[] if version == 0 else None)
            assert [topic.name for topic in alice.request(everything, version).topics] == [SECRET]
        delete_all_acls(root)
        assert alice.request(MetadataRequest(topics=None), 12).topics == []
