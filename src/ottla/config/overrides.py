"""The syntax of max.connections.per.ip.overrides: `address:count,...`, where an address may be a host name."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address


def parse_connection_limits(text: str) -> Mapping[str, int]:
    """Address or host name -> number of connections. ValueError says what cannot be parsed."""
    found: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        address, colon, count = entry.rpartition(":")
        address, count = address.strip(), count.strip()
        if not colon or not address or not count.isdecimal() or not count.isascii():
            raise ValueError(f"{entry!r} is not an address and a count, as in 127.0.0.1:100")
        address = canonical_address(address.removeprefix("[").removesuffix("]"))
        if address in found:
            raise ValueError(f"{address!r} is named more than once")
        found[address] = int(count)
    return found


def canonical_address(text: str) -> str:
    """An IP address in the form that sockets report; a host name in lower case."""
    address = parse_address(text)
    return text.lower() if address is None else address.compressed


def is_address(text: str) -> bool:
    return parse_address(text) is not None


def parse_address(text: str) -> "IPv4Address | IPv6Address | None":
    """None if the text is not an IP address."""
    from ipaddress import ip_address  # few brokers need it to start, and it takes a millisecond

    try:
        return ip_address(text)
    except ValueError:
        return None


def check_connection_limits(text: str) -> str | None:
    """The same as a check in the table of settings: returns what is wrong, or None."""
    try:
        parse_connection_limits(text)
    except ValueError as error:
        return str(error)
    return None
