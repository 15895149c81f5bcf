"""AlterConfigs: replace all settings of a topic, a group or brokers. Settings that are not named get their default.

Versions: 2 flexible. Clients since 2.3 use IncrementalAlterConfigs, which does not undo changes of other clients.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.configs import ConfigAlteration, Operation
from ottla.handlers import config_rights
from ottla.handlers.config_changes import change_each, change_settings
from ottla.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

REQUIRES = config_rights.TO_ALTER


async def handle(node: Node, call: Call[AlterConfigsRequest]) -> AlterConfigsResponse:
    request = call.body

    async def replace(resource: AlterConfigsResource) -> None:
        config_rights.require_for(node, call, REQUIRES, resource.resource_type, resource.resource_name)
        alterations = [ConfigAlteration(each.name, Operation.SET, each.value) for each in resource.configs]
        await change_settings(node, resource, alterations, replace=True, validate_only=request.validate_only)

    return AlterConfigsResponse(responses=await change_each(request.resources, replace, make_response))


def make_response(resource: AlterConfigsResource) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(resource_type=resource.resource_type, resource_name=resource.resource_name)
