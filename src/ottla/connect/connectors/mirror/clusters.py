"""Asks both clusters about topics, settings, ACLs and groups."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from logging import getLogger
from typing import Any, Final

from ottla.client.client import EARLIEST, LATEST, READ_COMMITTED, Client
from ottla.client.fetching import fetch
from ottla.client.groups import raise_for_errors
from ottla.connect.connector import ConnectorContext
from ottla.connect.errors import BadConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.describe_acls import DescribeAclsRequest
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.list_groups import ListGroupsRequest

log = getLogger(__name__)

DRIVER_PATIENCE_MS: Final = 5_000
"""How long one request of the driver is tried, so that a connector can be stopped while a cluster is away."""
CHANGE_TIMEOUT_MS: Final = 30_000

NOTHING: Final = re.compile(r"(?!)")
"""Matches no name."""

TOPIC: Final = 2
_ANY, _LITERAL = 1, 3
_SET, _DELETE = 0, 1
_ALLOW: Final = 3
_ALL, _READ, _WRITE = 2, 3, 4
_OF_TOPIC, _OF_STATIC_BROKER, _DEFAULT = 1, 4, 5
"""Where a setting of a topic comes from."""


def make_client(
    config: Mapping[str, Any], context: ConnectorContext, side: str, role: str, *, for_driver: bool = True
) -> Client:
    """A client of the `source` or the `target`, with the settings that MirrorMaker 2 would give it.

    The target is the worker's own cluster if `target.cluster.bootstrap.servers` is not given.
    """
    found: dict[str, str] = {"client.id": f"{context.name}-{side}-{role}"}
    if for_driver:
        found["default.api.timeout.ms"] = str(DRIVER_PATIENCE_MS)
    if side == "target":
        found.update(context.client_settings)
    for prefix in (f"{side}.cluster.", f"{role}.", f"{side}.{role}."):
        found.update(
            {
                name.removeprefix(prefix): str(value)
                for name, value in config.items()
                if name.startswith(prefix) and value is not None
            }
        )
    try:
        return Client(found)
    except ValueError as error:
        raise BadConfig(f"{side}.cluster.{error}") from None


def describe_settings(client: Client, topics: Sequence[str]) -> dict[str, list[DescribeConfigsResourceResult]]:
    """All settings of these topics."""
    resources = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None) for name in topics
    ]
    answer = client.ask_any(DescribeConfigsRequest(resources=resources))
    raise_for_errors(answer, "settings of topics")
    return {result.resource_name: list(result.configs) for result in answer.results}


def choose_settings(
    found: Iterable[DescribeConfigsResourceResult], exclude: re.Pattern[str], *, with_defaults: bool
) -> dict[str, str]:
    """What a mirrored topic is to have of its source's settings."""
    return {
        each.name: each.value
        for each in found
        if each.value is not None
        and not each.read_only
        and not each.is_sensitive
        and each.config_source != _OF_STATIC_BROKER
        and (with_defaults or each.config_source != _DEFAULT)
        and not exclude.fullmatch(each.name)
    }


def change_settings(client: Client, wanted: Mapping[str, Mapping[str, str]], exclude: re.Pattern[str]) -> list[str]:
    """Give topics these settings and take back others that they have of their own. Returns the topics it changed."""
    resources = []
    for topic, found in describe_settings(client, list(wanted)).items():
        target = wanted[topic]
        current = {each.name: each.value for each in found}
        own = {each.name for each in found if each.config_source == _OF_TOPIC}
        changes = [
            AlterableConfig(name=name, config_operation=_SET, value=value)
            for name, value in target.items()
            if current.get(name) != value
        ]
        changes += [
            AlterableConfig(name=name, config_operation=_DELETE)
            for name in sorted(own - set(target))
            if not exclude.fullmatch(name)
        ]
        if changes:
            resources.append(AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=changes))
    if not resources:
        return []
    answer = client.ask_any(IncrementalAlterConfigsRequest(resources=resources))
    for result in answer.responses:
        if result.error_code:
            why = result.error_message or ErrorCode(result.error_code).name
            log.warning("the settings of topic %s cannot be mirrored: %s", result.resource_name, why)
    return [each.resource_name for each in resources]


def add_partitions(client: Client, topic: str, count: int) -> None:
    wanted = CreatePartitionsTopic(name=topic, count=count)
    answer = client.ask_any(CreatePartitionsRequest(topics=[wanted], timeout_ms=CHANGE_TIMEOUT_MS))
    for result in answer.results:
        if result.error_code not in (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS):  # somebody else was faster
            raise KafkaError(
                ErrorCode(result.error_code), f"cannot add partitions to topic {topic!r}: {result.error_message}"
            )
    client.forget_topic(topic)


def list_topic_acls(client: Client) -> list[AclCreation] | None:
    """The ACLs of single topics that are mirrored: nobody may write because of them. None if there is no authorizer."""
    request = DescribeAclsRequest(
        resource_type_filter=TOPIC, pattern_type_filter=_LITERAL, operation=_ANY, permission_type=_ANY
    )
    answer = client.ask_any(request)
    if answer.error_code == ErrorCode.SECURITY_DISABLED:
        return None
    raise_for_errors(answer, "ACLs of topics")
    return [
        AclCreation(
            resource_type=TOPIC,
            resource_name=resource.resource_name,
            resource_pattern_type=_LITERAL,
            principal=acl.principal,
            host=acl.host,
            operation=_READ if (acl.permission_type, acl.operation) == (_ALLOW, _ALL) else acl.operation,
            permission_type=acl.permission_type,
        )
        for resource in answer.resources
        for acl in resource.acls
        if (acl.permission_type, acl.operation) != (_ALLOW, _WRITE)
    ]


def create_acls(client: Client, acls: Sequence[AclCreation]) -> None:
    answer = client.ask_any(CreateAclsRequest(creations=list(acls)))
    for acl, result in zip(acls, answer.results, strict=True):
        if result.error_code:
            why = result.error_message or ErrorCode(result.error_code).name
            log.warning("an ACL of topic %s cannot be mirrored: %s", acl.resource_name, why)


def list_groups(client: Client) -> list[str]:
    """Groups that have offsets: those of consumers, and those without a protocol, whose offsets were set by hand."""
    found: set[str] = set()
    for answer in client.ask_each(ListGroupsRequest()).values():
        raise_for_errors(answer, "groups")
        found.update(each.group_id for each in answer.groups if each.protocol_type in ("", "consumer"))
    return sorted(found)


def has_members(client: Client, group: str) -> bool:
    answer = client.ask_coordinator("group", group, DescribeGroupsRequest(groups=[group]))
    return any(each.group_state not in ("", "Empty", "Dead") for each in answer.groups)


class InternalReader:
    """Reads the only partition of an internal topic, and goes on from there with each call."""

    def __init__(self, client: Client, topic: str) -> None:
        self._client = client
        self._where = TopicPartition(topic, 0)
        self._position: int | None = None

    def read(self) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values that were committed since the last call. Nothing while the topic does not exist."""
        if not self._client.count_partitions(pattern=re.escape(self._where.topic)):
            return
        if self._position is None:
            self._position = self._client.list_offsets({self._where: EARLIEST})[self._where].offset
        start = self._position
        end = self._client.list_offsets({self._where: LATEST}, READ_COMMITTED)[self._where].offset
        if start >= end:
            return
        for view in fetch(self._client, *self._where, start, end, isolation=READ_COMMITTED):
            for position, _ in batch.headers(view):
                for record in batch.decode(view, position):
                    if start <= record.offset < end and record.key is not None and record.value is not None:
                        yield bytes(record.key), bytes(record.value)
        self._position = end
