"""The addresses on which a broker listens and those that it advertises: four text settings as typed values."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.config.settings import ConfigError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_ENDPOINT = re.compile(r"([^:/\s]+)://(?:\[([0-9A-Fa-f:.%]*)\]|([0-9A-Za-z\-._%]*)):(-?[0-9]+)", re.ASCII)


class Listener(NamedTuple):
    """An address with a name. An empty host means all interfaces; port 0 means that the system chooses."""

    name: str
    host: str
    port: int
    protocol: str


def address_of(listener: Listener, port: int) -> str:
    """The address with which a client on this machine reaches a listener."""
    host = "localhost" if listener.host in ("", "0.0.0.0", "::") else listener.host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Listeners(NamedTuple):
    """`advertised` is None if it is not set: clients then get the address that they connected to."""

    bound: tuple[Listener, ...]
    advertised: tuple[Listener, ...] | None
    inter_broker: Listener


def read_protocols(text: str, controllers: Iterable[str]) -> dict[str, str]:
    """Parse listener.security.protocol.map. As in Kafka, a controller listener that is not in it is plaintext."""
    protocols = {name.upper(): "PLAINTEXT" for name in controllers}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, _, protocol = (part.strip().upper() for part in pair.partition(":"))
        if protocol not in PROTOCOLS:
            raise ConfigError(f"listener.security.protocol.map: {pair!r} is not <listener>:<{'|'.join(PROTOCOLS)}>")
        protocols[name] = protocol
    return protocols


def read_listeners(setting: str, addresses: Iterable[str], protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    """Parse addresses of the form `NAME://host:port`. Names must be unique."""
    listeners: dict[str, Listener] = {}
    for address in addresses:
        match = _ENDPOINT.fullmatch(address)
        if match is None:
            raise ConfigError(f"{setting}: {address!r} is not <name>://<host>:<port>")
        name, port = match[1].upper(), int(match[4])
        if name not in protocols:
            raise ConfigError(f"{setting}: listener {name} is missing in listener.security.protocol.map")
        if not 0 <= port <= 65535:
            raise ConfigError(f"{setting}: port {port} of {address!r} is not between 0 and 65535")
        if name in listeners:
            raise ConfigError(f"{setting}: listener {name} is named twice")
        listeners[name] = Listener(name, match[2] or match[3] or "", port, protocols[name])
    return tuple(listeners.values())


def check_ports(bound: Iterable[Listener]) -> None:
    """ConfigError if two listeners have the same host and port."""
    taken: dict[tuple[int, str], str] = {}
    for listener in bound:
        other = taken.setdefault((listener.port, listener.host), listener.name)
        if other != listener.name and listener.port != 0:
            raise ConfigError(f"listeners: {other} and {listener.name} both use port {listener.port}")


def check_advertised(advertised: Iterable[Listener], bound: Iterable[Listener]) -> None:
    names = {listener.name for listener in bound}
    for listener in advertised:
        if listener.name not in names:
            raise ConfigError(f"advertised.listeners: {listener.name} is not in listeners")
        if listener.host in ("0.0.0.0", "::"):
            raise ConfigError(f"advertised.listeners: no client can connect to {listener.host}; name a host")


def choose_inter_broker(name: str | None, protocol: str, protocol_given: bool, bound: tuple[Listener, ...]) -> Listener:
    """The listener that other brokers use: by name, else by its security protocol, else the first."""
    if name is not None:
        if protocol_given:
            raise ConfigError("inter.broker.listener.name: set either this or security.inter.broker.protocol, not both")
        for listener in bound:
            if listener.name == name.upper():
                return listener
        raise ConfigError(f"inter.broker.listener.name: {name.upper()} is not in listeners")
    for listener in bound:
        if listener.name == protocol:
            return listener
    if protocol_given:
        raise ConfigError(f"security.inter.broker.protocol: no listener named {protocol} in listeners")
    return bound[0]
