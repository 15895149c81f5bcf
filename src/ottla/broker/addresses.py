"""The address at which a client can reach a broker."""

from ottla.broker.call import Client
from ottla.cluster.changes import Endpoint
from ottla.cluster.entities import BrokerImage


def can_reach(broker: BrokerImage, client: Client) -> bool:
    """Whether the broker has an address on the listener that the client uses. Others are not shown to the client."""
    return broker.endpoint(client.listener) is not None


def choose_endpoint(broker: BrokerImage, client: Client) -> Endpoint:
    """The broker's advertised address on the client's listener.

    A broker without advertised.listeners returns the address by which this client has reached it. That is right on a
    laptop, in CI and through a port forward that keeps the port.
    """
    endpoint = broker.endpoint(client.listener) or broker.endpoints[0]
    if endpoint.host:
        return endpoint
    host, port = client.local_address
    return Endpoint(endpoint.name, host, port, endpoint.protocol)
