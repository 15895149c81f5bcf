"""ListConfigResources: the resources that have settings: topics, brokers, their loggers, groups, client metrics.

As in Kafka, fenced brokers are among them, and brokers that the client cannot reach are not.
Versions: 0 client metrics only (KIP-714); 1 any type, and all types if the request names none (KIP-1142).
"""

from ottla.broker.addresses import can_reach
from ottla.broker.call import Call, Client
from ottla.broker.node import Node
from ottla.cluster.changes import ConfigResource as Resource
from ottla.cluster.configs import BROKER_LOGGER
from ottla.cluster.image import Image
from ottla.errors import ErrorCode, KafkaError
from ottla.security import rights
from ottla.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

REQUIRES = rights.whole(rights.DESCRIBE_CONFIGS_OF_CLUSTER)

ALL_TYPES: tuple[int, ...] = (
    Resource.TOPIC,
    Resource.BROKER,
    BROKER_LOGGER,
    Resource.CLIENT_METRICS,
    Resource.GROUP,
)


def handle(node: Node, call: Call[ListConfigResourcesRequest]) -> ListConfigResourcesResponse:
    types = [Resource.CLIENT_METRICS] if call.version == 0 else call.body.resource_types or ALL_TYPES
    unknown = [number for number in types if number not in ALL_TYPES]
    if unknown:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"there are no settings of resource type {unknown[0]}")
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=number)
            for number in ALL_TYPES
            if number in types
            for name in list_names(node.image, call.client, number)
        ]
    )


def list_names(image: Image, client: Client, resource_type: int) -> list[str]:
    if resource_type == Resource.TOPIC:
        return sorted(image.topics_by_name)
    if resource_type in (Resource.BROKER, BROKER_LOGGER):
        return [str(broker.id) for broker in image.all_brokers() if can_reach(broker, client)]
    return sorted(name for number, name in image.configs if number == resource_type)
