"""Where a client should look for a broker."""

from ottla.broker.call import Client
from ottla.cluster.changes import Endpoint
from ottla.cluster.entities import BrokerImage


def advertised(broker: BrokerImage, client: Client) -> Endpoint:
    """The broker's address on the client's listener. A broker that was not told what to advertise says the address
    that this client reached it by: right on a laptop, in CI and through a port forward that keeps the port."""
    endpoint = broker.endpoint(client.listener) or broker.endpoints[0]
    if endpoint.host:
        return endpoint
    host, port = client.local_address
    return Endpoint(endpoint.name, host, port, endpoint.protocol)
