"""DescribeConfigs: settings of topics, of this broker, of all brokers, and levels of loggers; who set each of them.

Versions: 3 types and documentation (KIP-569); 4 flexible. Values of passwords are never told.
"""

from collections.abc import Callable, Iterable, Mapping

from ottla.call import Call
from ottla.cluster.changes import ConfigResource
from ottla.cluster.configs import ALL_BROKERS, BROKER_LOGGER, check_broker
from ottla.cluster.topics import check_name
from ottla.config import ConfigSource, TopicConfig
from ottla.config.description import Description, describe_all_brokers, describe_broker, describe_topic
from ottla.config.loggers import levels
from ottla.errors import ErrorCode, KafkaError
from ottla.node import Node
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

VERSIONS = range(1, 5)

TYPES = {
    name: number
    for number, name in enumerate(
        ("boolean", "string", "int", "short", "long", "double", "list", "class", "password"), start=1
    )
}
UNKNOWN_TYPE = 0


def handle(node: Node, call: Call[DescribeConfigsRequest]) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[answer(node, resource, call.body) for resource in call.body.resources])


def answer(node: Node, asked: DescribeConfigsResource, request: DescribeConfigsRequest) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message="", resource_type=asked.resource_type, resource_name=asked.resource_name
    )
    try:
        describe = RESOURCES.get(asked.resource_type)
        if describe is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there are no settings of resource type {asked.resource_type}")
        found = describe(node, asked.resource_name)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    keys = asked.configuration_keys  # none named means all
    result.configs = [shown(each, request) for each in found if not keys or each.name in keys]
    return result


def shown(setting: Description, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
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


def topic(node: Node, name: str) -> Iterable[Description]:
    check_name(name)
    if node.image.topic(name) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")
    return describe_topic(TopicConfig.of(node.image.topic_configs(name), node.config), node.config)


def broker(node: Node, name: str) -> Iterable[Description]:
    check_broker(name, node.broker_id)
    if name == ALL_BROKERS:
        return describe_all_brokers(node.image.config(ConfigResource.BROKER, ALL_BROKERS))
    return describe_broker(node.config)


def loggers(node: Node, name: str) -> Iterable[Description]:
    if name == ALL_BROKERS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "loggers are those of one broker: name it")
    check_broker(name, node.broker_id)
    return (
        Description(logger, level, ConfigSource.LOGGER, (), kind="", documentation="")
        for logger, level in levels().items()
    )


RESOURCES: Mapping[int, Callable[[Node, str], Iterable[Description]]] = {
    ConfigResource.TOPIC: topic,
    ConfigResource.BROKER: broker,
    BROKER_LOGGER: loggers,
}
