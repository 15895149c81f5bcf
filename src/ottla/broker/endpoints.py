"""The endpoints that a broker registers: at which addresses clients and other brokers find its listeners."""

from collections.abc import Mapping
from ipaddress import ip_address

from ottla.cluster.changes import Endpoint
from ottla.config import BrokerConfig, Listener

EVERYWHERE = ("", "0.0.0.0", "::")
"""Hosts of listeners that are bound to all addresses of the machine."""


def find_endpoints(config: BrokerConfig) -> tuple[Endpoint, ...]:
    """The endpoints to register. Without advertised.listeners they have no port: `addresses` chooses it per client.

    It chooses the host too, except for a listener with TLS on a host with a name: that is what its certificate names.
    """
    endpoints = config.endpoints
    if endpoints.advertised is not None:
        return tuple(Endpoint(*listener) for listener in endpoints.advertised)
    return tuple(
        Endpoint(listener.name, listener.host if _has_certificate_name(listener) else "", 0, listener.protocol)
        for listener in endpoints.bound
    )


def _has_certificate_name(listener: Listener) -> bool:
    if listener.protocol not in ("SSL", "SASL_SSL") or not listener.host:
        return False
    try:
        ip_address(listener.host)
    except ValueError:
        return True
    return False


def needs_host_name(config: BrokerConfig) -> bool:
    return any(endpoint.host in EVERYWHERE for endpoint in _list_endpoints(config))


def _list_endpoints(config: BrokerConfig) -> list[Endpoint]:
    """The advertised address of each listener, or else the address that it is bound to."""
    bound = {listener.name: listener for listener in config.endpoints.bound}
    return [endpoint if endpoint.host else Endpoint(*bound[endpoint.name]) for endpoint in find_endpoints(config)]


def find_real_endpoints(config: BrokerConfig, ports: Mapping[str, int], host_name: str) -> tuple[Endpoint, ...]:
    """The addresses to register. As in Kafka, a listener on all addresses is known by the name of the machine."""
    return tuple(
        endpoint._replace(
            host=host_name if endpoint.host in EVERYWHERE else endpoint.host,
            port=endpoint.port or ports[endpoint.name],
        )
        for endpoint in _list_endpoints(config)
    )
