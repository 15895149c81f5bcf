"""The address at which a client can reach a broker, and the brokers that it cannot reach."""

from ottla.broker.call import Client
from ottla.cluster.changes import NO_LEADER, Endpoint
from ottla.cluster.entities import BrokerImage, PartitionImage
from ottla.cluster.image import Image
from ottla.errors import ErrorCode


def can_reach(broker: BrokerImage, client: Client) -> bool:
    """Whether the broker has an address on the listener that the client uses. Others are not shown to the client."""
    return broker.endpoint(client.listener) is not None


def find_unreachable(image: Image, listener: str) -> frozenset[int]:
    """The alive brokers that have no address on this listener. Usually there are none."""
    key = (find_unreachable, listener)
    known: frozenset[int] | None = image.derived.get(key)
    if known is None:  # every Metadata answer needs them
        unreachable = (broker.id for broker in image.alive_brokers() if broker.endpoint(listener) is None)
        known = image.derived[key] = frozenset(unreachable)
    return known


def judge_leader(partition: PartitionImage, unreachable: frozenset[int]) -> tuple[int, ErrorCode]:
    """The leader as a client may know it, and the error if it has none that it can reach.

    A leader that is hidden from the client because of its listeners is an error of the configuration, which
    LISTENER_NOT_FOUND names; without a leader a client would wait for an election.
    """
    if partition.leader == NO_LEADER:
        return NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE
    if partition.leader in unreachable:
        return NO_LEADER, ErrorCode.LISTENER_NOT_FOUND
    return partition.leader, ErrorCode.NONE


def choose_endpoint(broker: BrokerImage, client: Client) -> Endpoint:
    """The broker's advertised address on the client's listener, of a broker that the client can reach.

    A broker without advertised.listeners returns the address by which this client has reached it. That is right on a
    laptop, in CI and through a port forward that keeps the port. A listener with TLS keeps its name (`find_endpoints`).
    """
    endpoint = broker.endpoint(client.listener)
    assert endpoint is not None, f"broker {broker.id} has no address on the listener {client.listener}"
    if endpoint.port:
        return endpoint
    host, port = client.local_address
    return Endpoint(endpoint.name, endpoint.host or host, port, endpoint.protocol)
