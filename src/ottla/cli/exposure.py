"""Whether `ottla up` would let anybody on the network do everything.

Without authentication a broker listens on this machine only, unless allow.anonymous.network says otherwise. An
authorizer decides what a client without a name may do, so with one such a listener is allowed.
"""

import logging

from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.config import BrokerConfig, Listener
from ottla.config.overrides import parse_address

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
    if listener.host.lower() == "localhost":
        return False
    address = parse_address(listener.host)
    return address is None or not address.is_loopback
