"""The new leader of a partition, for a client that asked a broker which does not lead it (KIP-951).

With the leader and its address in the answer the client goes on at once, without a Metadata request.
"""

from typing import NamedTuple

from ottla.broker.addresses import can_reach, choose_endpoint
from ottla.broker.call import Client
from ottla.broker.node import Node
from ottla.wire.primitives import NodeEndpoint


class NewLeader(NamedTuple):
    broker_id: int
    epoch: int
    endpoint: NodeEndpoint | None
    """None if the leader's broker cannot be reached now, or there is no leader."""


def find_new_leader(node: Node, client: Client, topic: str, topic_id: bytes, index: int) -> NewLeader | None:
    """Who leads the partition, by the topic's name or by its id. None if there is no such partition."""
    image = node.image
    found = image.topic(topic) if topic else image.topic_by_id(topic_id)
    if found is None or not 0 <= index < len(found.partitions):
        return None
    partition = found.partitions[index]
    broker = image.broker(partition.leader)
    if broker is None or broker.fenced or not can_reach(broker, client):
        return NewLeader(partition.leader, partition.leader_epoch, None)
    endpoint = choose_endpoint(broker, client)
    address = NodeEndpoint(broker.id, endpoint.host, endpoint.port, broker.rack)
    return NewLeader(partition.leader, partition.leader_epoch, address)
