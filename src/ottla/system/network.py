"""Outgoing connections to other brokers. A simulation passes its own `Connect`."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

ProtocolType = TypeVar("ProtocolType", bound=asyncio.BaseProtocol)


class Connect(Protocol):
    async def __call__(
        self, host: str, port: int, protocol_factory: Callable[[], ProtocolType], tls: Any = None
    ) -> tuple[asyncio.Transport, ProtocolType]:
        """Open a connection, as `loop.create_connection` does. OSError, ConnectionRefusedError if nobody listens.

        `tls`: the TLS context, if the connection has one.
        """
        ...


async def connect_to_socket(
    host: str, port: int, protocol_factory: Callable[[], ProtocolType], tls: Any = None
) -> tuple[asyncio.Transport, ProtocolType]:
    transport: Any
    transport, protocol = await asyncio.get_running_loop().create_connection(protocol_factory, host, port, ssl=tls)
    if transport.get_extra_info("sockname") == transport.get_extra_info("peername"):
        # The kernel chose the wanted port as the local one, so that the socket is connected to itself. That happens on
        # one machine, with ports of the ephemeral range that nobody listens on.
        transport.abort()
        raise ConnectionRefusedError(f"nobody listens on {host}:{port}")
    return transport, protocol


def find_host_name() -> str:
    """The name by which other machines should find this one. It may ask a name server: call it in a thread."""
    return socket.getfqdn()


def has_address(host: str) -> bool:
    """Whether this machine finds an address for a name. It may ask a name server: call it in a thread."""
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True
