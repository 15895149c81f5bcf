"""Exceptions for single clients: `address:count,...`, where an address may be a host's name."""

from collections.abc import Mapping
from ipaddress import ip_address


def connections_per_address(text: str) -> Mapping[str, int]:
    """Address or name -> how many connections it may have; ValueError says what cannot be read."""
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
    """An address as sockets tell it; a name in small letters."""
    try:
        return ip_address(text).compressed
    except ValueError:
        return text.lower()


def is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def check_connections_per_address(text: str) -> str | None:
    """A check of the settings' table."""
    try:
        connections_per_address(text)
    except ValueError as error:
        return str(error)
    return None
