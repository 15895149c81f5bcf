"""Which right the settings of a resource need: those of topics and groups their own, others one on the cluster."""

from typing import Any

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.changes import ConfigResource
from ottla.handlers.authorization import require
from ottla.security import rights
from ottla.security.operations import CLUSTER_NAME

TO_ALTER = rights.parts(rights.ALTER_CONFIGS_OF_TOPIC, rights.ALTER_CONFIGS_OF_GROUP, rights.ALTER_CONFIGS_OF_CLUSTER)
TO_DESCRIBE = rights.parts(
    rights.DESCRIBE_CONFIGS_OF_TOPIC, rights.DESCRIBE_CONFIGS_OF_GROUP, rights.DESCRIBE_CONFIGS_OF_CLUSTER
)


def require_for(
    node: Node, call: Call[Any], needed: rights.Requirement, resource_type: int, resource_name: str
) -> None:
    """The error of Kafka, unless the client has the right for the settings of this resource."""
    of_topic, of_group, of_cluster = needed.rights
    if resource_type == ConfigResource.TOPIC:
        require(node, call, of_topic, resource_name)
    elif resource_type == ConfigResource.GROUP:
        require(node, call, of_group, resource_name)
    else:
        require(node, call, of_cluster, CLUSTER_NAME)
