"""DescribeCluster: the brokers, the controller and the cluster's id.

Versions: 1 endpoint type (KIP-919): a broker answers for brokers only; 2 fenced brokers too, on request (KIP-1073).
"""

from ottla.broker.addresses import can_reach, choose_endpoint
from ottla.broker.call import Call, Client
from ottla.broker.node import Node
from ottla.cluster.image import BrokerImage
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import list_cluster_operations
from ottla.security import rights
from ottla.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

REQUIRES = rights.parts(rights.DESCRIBE_CLUSTER)

BROKERS, CONTROLLERS = 1, 2


def handle(node: Node, call: Call[DescribeClusterRequest]) -> DescribeClusterResponse:
    request, image = call.body, node.image
    if request.endpoint_type == CONTROLLERS:
        raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is the listener of a broker, not of a controller")
    if request.endpoint_type != BROKERS:
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"there is no endpoint type {request.endpoint_type}")
    brokers = image.all_brokers() if request.include_fenced_brokers else image.alive_brokers()
    response = DescribeClusterResponse(
        cluster_id=image.cluster_id or "",
        controller_id=node.broker_id,  # every broker takes the requests that Kafka's controller takes
        brokers=[describe(broker, call.client) for broker in brokers if can_reach(broker, call.client)],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = list_cluster_operations(node, call)
    return response


def describe(broker: BrokerImage, client: Client) -> DescribeClusterBroker:
    endpoint = choose_endpoint(broker, client)
    return DescribeClusterBroker(
        broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack, is_fenced=broker.fenced
    )
