"""DescribeConfigs: settings of topics, groups, this broker and all brokers, levels of loggers, and where each was set.

Versions: 3 types and documentation (KIP-569); 4 flexible. Passwords are never sent.
"""

import asyncio
from collections.abc import Iterable

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.changes import ConfigResource
from ottla.cluster.configs import ALL_BROKERS, BROKER_LOGGER, check_broker
from ottla.cluster.topics import check_name
from ottla.config import ConfigSource
from ottla.config.description import (
    Description,
    TopicDescriptions,
    describe_all_brokers,
    describe_broker,
    describe_client_metrics,
    describe_group,
)
from ottla.config.loggers import read_levels
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers import config_rights
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ottla.wire.schema import write_structure

REQUIRES = config_rights.TO_DESCRIBE

TYPES = {
    name: number
    for number, name in enumerate(
        ("boolean", "string", "int", "short", "long", "double", "list", "class", "password"), start=1
    )
}
UNKNOWN_TYPE = 0

RESOURCES_PER_TURN = 100
"""Resources that are described before other work of the event loop gets its turn: a console asks for all topics."""


Keys = frozenset[str] | None
"""Names of the settings to describe; None means all."""


async def handle(node: Node, call: Call[DescribeConfigsRequest]) -> DescribeConfigsResponse:
    if node.catch_up is not None:
        await node.catch_up()  # who creates a topic or changes a setting at one broker sees it at all others
    topics = TopicSettings(node, call)
    results = []
    for number, asked in enumerate(call.body.resources, start=1):
        results.append(describe_resource(node, topics, asked, call))
        if number % RESOURCES_PER_TURN == 0:
            await asyncio.sleep(0)
    return DescribeConfigsResponse(results=results)


class TopicSettings:
    """The settings of the topics of one request. Nearly all topics have the same ones, which are encoded once."""

    def __init__(self, node: Node, call: Call[DescribeConfigsRequest]) -> None:
        self._node = node
        self._call = call
        self._descriptions = TopicDescriptions(node.config)
        self._defaults: dict[Keys, list[DescribeConfigsResourceResult]] = {}

    def describe(self, name: str, keys: Keys) -> list[DescribeConfigsResourceResult]:
        image = self._node.image
        if image.topic(name) is None:
            check_name(name)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")
        overrides = image.topic_configs(name)
        known = None if overrides else self._defaults.get(keys)
        if known is None:
            known = describe_settings(self._descriptions.of(overrides), keys, self._call.body)
            if not overrides:
                known = [write_structure(DescribeConfigsResponse, self._call.version, each) for each in known]
                self._defaults[keys] = known
        return known


def describe_resource(
    node: Node, topics: TopicSettings, asked: DescribeConfigsResource, call: Call[DescribeConfigsRequest]
) -> DescribeConfigsResult:
    name, keys = asked.resource_name, frozenset(asked.configuration_keys or ()) or None
    result = DescribeConfigsResult(error_message="", resource_type=asked.resource_type, resource_name=name)
    try:
        config_rights.require_for(node, call, REQUIRES, asked.resource_type, name)
        if asked.resource_type == ConfigResource.TOPIC:
            result.configs = topics.describe(name, keys)
            return result
        if asked.resource_type == ConfigResource.BROKER:
            found = read_broker(node, name, keys)
        elif asked.resource_type == ConfigResource.GROUP:
            found = read_group(node, name)
        elif asked.resource_type == ConfigResource.CLIENT_METRICS:
            found = read_client_metrics(node, name)
        elif asked.resource_type == BROKER_LOGGER:
            found = read_loggers(node, name)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there are no settings of resource type {asked.resource_type}")
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    result.configs = describe_settings(found, keys, call.body)
    return result


def describe_settings(
    found: Iterable[Description], keys: Keys, request: DescribeConfigsRequest
) -> list[DescribeConfigsResourceResult]:
    return [describe_setting(each, request) for each in found if keys is None or each.name in keys]


def describe_setting(setting: Description, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = setting.contributions if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=setting.value,
        read_only=setting.read_only,
        config_source=setting.source,
        is_sensitive=setting.sensitive,
        synonyms=[DescribeConfigsSynonym(name=name, value=value, source=source) for name, value, source in synonyms],
        config_type=TYPES.get(setting.kind, UNKNOWN_TYPE),
        documentation=setting.documentation if request.include_documentation else None,
    )


def read_broker(node: Node, name: str, keys: Keys) -> Iterable[Description]:
    check_broker(name, node.broker_id)
    if name == ALL_BROKERS:
        return describe_all_brokers(node.image.config(ConfigResource.BROKER, ALL_BROKERS))
    return describe_broker(node.config, keys)


def read_group(node: Node, name: str) -> Iterable[Description]:
    """Describe the settings of a group, which can have settings before it exists."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "name a group: there are no settings for all groups")
    return describe_group(node.image.config(ConfigResource.GROUP, name), node.config)


def read_client_metrics(node: Node, name: str) -> Iterable[Description]:
    """Describe a subscription. As in Kafka, one that does not exist has the defaults."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "name a subscription: there are no settings for all of them")
    return describe_client_metrics(node.image.config(ConfigResource.CLIENT_METRICS, name))


def read_loggers(node: Node, name: str) -> Iterable[Description]:
    if name == ALL_BROKERS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "every broker has its own loggers: name a broker")
    check_broker(name, node.broker_id)
    return (
        Description(logger, level, ConfigSource.LOGGER, (), kind="", documentation="")
        for logger, level in read_levels().items()
    )
