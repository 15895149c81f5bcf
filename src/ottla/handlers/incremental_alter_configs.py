"""IncrementalAlterConfigs: change single settings of topics, groups and brokers, and levels of loggers (KIP-339).

Versions: 1 flexible. Resources are independent of each other; of one resource all changes are made or none. A change
is in force when the answer is sent. Levels of loggers last until the broker stops; everything else is persistent.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.configs import ALL_BROKERS, BROKER_LOGGER, ConfigAlteration, Operation, check_broker
from ottla.config import ConfigError, loggers
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers import config_rights
from ottla.handlers.config_changes import change_each, change_settings
from ottla.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

REQUIRES = config_rights.TO_ALTER


async def handle(node: Node, call: Call[IncrementalAlterConfigsRequest]) -> IncrementalAlterConfigsResponse:
    request = call.body

    async def alter(resource: AlterConfigsResource) -> None:
        config_rights.require_for(node, call, REQUIRES, resource.resource_type, resource.resource_name)
        alterations = [ConfigAlteration(each.name, each.config_operation, each.value) for each in resource.configs]
        if resource.resource_type == BROKER_LOGGER:
            alter_loggers(node, resource.resource_name, alterations, request.validate_only)
        else:
            await change_settings(node, resource, alterations, replace=False, validate_only=request.validate_only)

    return IncrementalAlterConfigsResponse(responses=await change_each(request.resources, alter, make_response))


def make_response(resource: AlterConfigsResource) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(resource_type=resource.resource_type, resource_name=resource.resource_name)


def alter_loggers(node: Node, name: str, alterations: list[ConfigAlteration], validate_only: bool) -> None:
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
