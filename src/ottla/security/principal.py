"""Who a client is: the identity that authentication has established, by which ACLs and quotas name it."""

from typing import NamedTuple


class Principal(NamedTuple):
    """A type and a name, written as Kafka does: `User:alice`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
"""Every client of a listener without authentication."""
