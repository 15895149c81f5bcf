"""Checks of which machines can connect to a broker that `ottla up` starts.

Without authentication a broker listens on this machine only, unless allow.anonymous.network says otherwise. An
authorizer decides what a client without a name may do, so with one such a listener is allowed.
"""

import logging

from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.config import BrokerConfig, Listener
from ottla.config.overrides import parse_address
from ottla.config.zookeeper_addresses import parse_zookeeper_connect

logger = logging.getLogger("ottla")

ADVICE = (
    "listen on localhost, use a listener with SASL_SSL or client certificates, or say that it is meant: "
    "--allow-anonymous-network"
)


def check_exposure(config: BrokerConfig) -> None:
    """CommandError if a listener lets in clients of the network without asking who they are; a warning if it may."""
    if config.value("authorizer.class.name"):
        return
    for listener in config.endpoints.bound:
        if is_open_to_network(config, listener):
            host = f"{listener.name}://{listener.host or '0.0.0.0'}:{listener.port}"
            if not config.allow_anonymous_network:
                raise CommandError(
                    f"listeners: {host} lets anybody on the network read, write and delete everything; {ADVICE}",
                    USAGE_ERROR,
                )
            logger.warning(
                "ANYBODY ON THE NETWORK can read, write and delete everything at %s (allow.anonymous.network)", host
            )


def is_open_to_network(config: BrokerConfig, listener: Listener) -> bool:
    """Whether clients of other machines can connect to a listener, and need not authenticate."""
    if listener.protocol.startswith("SASL_"):
        return False
    if listener.protocol == "SSL" and config.of_listener(listener.name).ssl_client_auth.lower() == "required":
        return False
    return not _is_loopback(listener.host)


def warn_of_loopback(config: BrokerConfig) -> None:
    """Warn if brokers of other machines are told to connect to a loopback address, which is their own.

    ZooKeeper on another machine is the sign that there are other machines. Without `listeners` in its file Apache Kafka
    listens on all interfaces and registers the name of the machine, while `ottla up` listens on localhost.
    """
    if not config.zookeeper_connect:
        return
    servers = parse_zookeeper_connect(config.zookeeper_connect).servers.split(",")
    listener = config.endpoints.inter_broker
    told = next((each for each in config.endpoints.advertised or () if each.name == listener.name), listener)
    if _is_loopback(told.host) and not all(_is_loopback(server.rpartition(":")[0].strip("[]")) for server in servers):
        logger.warning(
            "brokers of other machines are told to connect to %s, where they find only themselves; set listeners or "
            "advertised.listeners to an address that they reach",
            told.host,
        )


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    address = parse_address(host)
    return address is not None and address.is_loopback
