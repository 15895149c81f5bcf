"""The settings of the server, from those of the broker."""

from collections.abc import Mapping

from ottla.config import BrokerConfig
from ottla.config.overrides import parse_connection_limits
from ottla.server import ServerSettings

UNLIMITED = (1 << 31) - 1
LOOPBACK = ("127.0.0.1", "::1")


def make_server_settings(config: BrokerConfig, connections_max: int) -> ServerSettings:
    """`connections_max`: for how many connections the process has descriptors."""
    return ServerSettings(
        socket_listen_backlog_size=config.socket_listen_backlog_size,
        socket_receive_buffer_bytes=config.socket_receive_buffer_bytes,
        socket_send_buffer_bytes=config.socket_send_buffer_bytes,
        socket_request_max_bytes=config.socket_request_max_bytes,
        queued_max_request_bytes=config.queued_max_request_bytes,
        max_connections=config.max_connections,
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_per_ip_overrides=find_connection_limits(config),
        max_connection_creation_rate=config.max_connection_creation_rate,
        descriptors_for_connections=connections_max,
        connections_max_idle_ms=config.connections_max_idle_ms,
    )


def find_connection_limits(config: BrokerConfig) -> Mapping[str, int]:
    """Exceptions to max.connections.per.ip. Its default is not for this machine: who is on it needs no network."""
    chosen = parse_connection_limits(config.max_connections_per_ip_overrides)
    return chosen if "max.connections.per.ip" in config.given else {**dict.fromkeys(LOOPBACK, UNLIMITED), **chosen}
