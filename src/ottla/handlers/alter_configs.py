"""AlterConfigs: replace all settings of a topic, a group or brokers. Settings that are not named get their default.

Versions: 2 flexible. Clients since 2.3 use IncrementalAlterConfigs, which does not undo changes of other clients.
"""

from collections import Counter
from functools import partial

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.changes import ConfigResource
from ottla.cluster.configs import (
    Alteration,
    Operation,
    alter_brokers,
    alter_client_metrics,
    alter_group,
    alter_topic,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

VERSIONS = range(0, 3)

DECIDERS = {
    int(ConfigResource.TOPIC): alter_topic,
    int(ConfigResource.BROKER): alter_brokers,
    int(ConfigResource.GROUP): alter_group,
    int(ConfigResource.CLIENT_METRICS): alter_client_metrics,
}


async def handle(node: Node, call: Call[AlterConfigsRequest]) -> AlterConfigsResponse:
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
            await replace(node, resource, request.validate_only)
        except KafkaError as error:
            response.error_code, response.error_message = error.code, error.message or None
    return AlterConfigsResponse(responses=responses)


async def replace(node: Node, resource: AlterConfigsResource, validate_only: bool) -> None:
    decider = DECIDERS.get(resource.resource_type)
    if decider is None:
        message = f"settings of resource type {resource.resource_type} cannot be replaced"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    alterations = [Alteration(each.name, Operation.SET, each.value) for each in resource.configs]
    decide = partial(decider, name=resource.resource_name, alterations=alterations, config=node.config, replace=True)
    if validate_only:
        decide(node.image)
    else:
        await node.metadata.change(decide)
