"""The syntax of zookeeper.connect: `host[:port],.../path`. As in ZooKeeper's own clients, spaces and an empty entry
between commas do no harm, and the port of an address without one is 2181."""

from typing import NamedTuple

DEFAULT_PORT = 2181


class ZooKeeperAddresses(NamedTuple):
    servers: str
    """`host:port,...`; an IPv6 address is in brackets."""
    path: str
    """The node below which the cluster keeps everything; empty for the root."""


def parse_zookeeper_connect(text: str) -> ZooKeeperAddresses:
    """ValueError says what cannot be parsed."""
    listed, slash, path = text.strip().partition("/")
    servers = [_check_server(entry) for part in listed.split(",") if (entry := part.strip())]
    if not servers:
        raise ValueError("it names no server, as in zk1:2181,zk2:2181/path")
    path = slash + path
    if path.endswith("/"):
        path = path[:-1]
    if any(name in ("", ".", "..") for name in path.split("/")[1:]):
        raise ValueError(f"{path!r} is not a path in ZooKeeper")
    return ZooKeeperAddresses(",".join(servers), path)


def check_zookeeper_connect(text: str) -> str | None:
    """The same as a check in the table of settings: returns what is wrong, or None. Empty is no ZooKeeper."""
    try:
        _ = text and parse_zookeeper_connect(text)
    except ValueError as error:
        return str(error)
    return None


def _check_server(entry: str) -> str:
    if entry.startswith("["):
        host, bracket, rest = entry[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{entry!r} is not a server, as in [::1]:2181")
        host, colon, port = f"[{host}]", rest[:1], rest[1:]
    else:
        host, colon, port = entry.partition(":")
    if not host.strip("[]") or any(character.isspace() for character in host):
        raise ValueError(f"{entry!r} is not a server, as in zk1:2181")
    if not colon:
        return f"{host}:{DEFAULT_PORT}"
    if not (port.isascii() and port.isdecimal() and 1 <= int(port) <= 65535):
        raise ValueError(f"{entry!r}: the port is not a number between 1 and 65535")
    return f"{host}:{int(port)}"
