"""IncrementalAlterConfigs: change single settings of topics, groups and brokers, and levels of loggers (KIP-339).

Versions: 1 flexible. Resources are independent of each other; of one resource all changes are made or none. A change
is in force when the answer is sent. Levels of loggers last until the broker stops; everything else is persistent.
"""

from collections import Counter
from functools import partial

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.changes import ConfigResource
from ottla.cluster.configs import (
    ALL_BROKERS,
    BROKER_LOGGER,
    Alteration,
    Operation,
    alter_brokers,
    alter_client_metrics,
    alter_group,
    alter_topic,
    check_broker,
)
from ottla.config import ConfigError, loggers
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

VERSIONS = range(0, 2)

DECIDERS = {
    int(ConfigResource.TOPIC): alter_topic,
    int(ConfigResource.BROKER): alter_brokers,
    int(ConfigResource.GROUP): alter_group,
    int(ConfigResource.CLIENT_METRICS): alter_client_metrics,
}


async def handle(node: Node, call: Call[IncrementalAlterConfigsRequest]) -> IncrementalAlterConfigsResponse:
    request = call.body
    named = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    responses = []
    for resource in request.resources:
        response = AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        responses.append(response)
        try:
            if named[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names this resource more than once")
            await alter(node, resource, request.validate_only)
        except KafkaError as error:
            response.error_code, response.error_message = error.code, error.message or None
    return IncrementalAlterConfigsResponse(responses=responses)


async def alter(node: Node, resource: AlterConfigsResource, validate_only: bool) -> None:
    alterations = [Alteration(each.name, each.config_operation, each.value) for each in resource.configs]
    if resource.resource_type == BROKER_LOGGER:
        return alter_loggers(node, resource.resource_name, alterations, validate_only)
    decider = DECIDERS.get(resource.resource_type)
    if decider is None:
        message = f"settings of resource type {resource.resource_type} cannot be changed"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    decide = partial(decider, name=resource.resource_name, alterations=alterations, config=node.config)
    if validate_only:
        decide(node.image)
    else:
        await node.metadata.change(decide)


def alter_loggers(node: Node, name: str, alterations: list[Alteration], validate_only: bool) -> None:
    if name == ALL_BROKERS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "every broker has its own loggers: name a broker")
    check_broker(name, node.broker_id)
    wanted = {each.name: None if each.operation == Operation.DELETE else each.value for each in alterations}
    if len(wanted) != len(alterations):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a logger is named more than once")
    for logger, operation, level in alterations:
        if operation not in (Operation.SET, Operation.DELETE) or (operation == Operation.SET and level is None):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{logger}: a level can only be set or deleted")
        if operation == Operation.DELETE and logger == loggers.ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the level of the root logger cannot be deleted, only set")
    try:
        for logger, level in wanted.items():
            loggers.check_level(logger, level)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    if not validate_only:
        for logger, level in wanted.items():
            loggers.set_level(logger, level)
