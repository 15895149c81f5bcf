"""Who may ask. The REST API has no passwords unless the worker is told to ask for them (`basic_auth.py`), so a browser
must not be a way to it for other sites' pages.

- A request whose Origin is another site is refused, unless `access.control.allow.origin` names that site; else a page
  could restart or delete connectors, although it cannot read the answers.
- A server that listens only on the loopback interface refuses other names than those of this machine: a page could give
  its own name the address of this machine, and then read the answers as its own site's.
- Any other server cannot know all names by which it is called. If there are no passwords, pages may change something
  only at a name that is its own for certain, or at an address.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from ottla.connect.rest.basic_auth import Users
from ottla.connect.rest.routing import RestError

_SAFE = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True)
class Guard:
    origins: tuple[str, ...] = ()
    """access.control.allow.origin: `*`, or sites such as https://ui.example."""
    methods: str = ""
    """access.control.allow.methods, for the answers to preflight requests."""
    is_loopback: bool = True
    """Whether the server can be reached from this machine only."""
    users: Users | None = None
    """None: no password is asked for."""
    names: frozenset[str] = frozenset()
    """Names of this worker, in lower case."""

    def check(self, method: str, headers: Mapping[str, str]) -> None:
        """RestError with status 401 or 403 for a request that must not be answered."""
        host = headers.get("host", "")
        if self.is_loopback and host and not is_loopback(split_host(host)):
            raise RestError(403, f"{host} is not a name of this machine")
        if self.users is not None and not (method == "OPTIONS" and "access-control-request-method" in headers):
            self.users.check(headers)  # a browser asks whether it may, without a password, before it sends one
        origin = headers.get("origin")
        if origin is None or method in _SAFE or self.allows(origin):
            return
        if origin.partition("://")[2] != host or not (self.users is not None or self._is_own(split_host(host))):
            raise RestError(403, f"Pages of {origin} may not change anything; see access.control.allow.origin")

    def _is_own(self, host: str) -> bool:
        return host.lower() in self.names or is_address(host) or is_loopback(host)

    def allows(self, origin: str) -> bool:
        return "*" in self.origins or origin in self.origins

    def list_headers(self, method: str, headers: Mapping[str, str]) -> dict[str, str]:
        """What an answer says to browsers, if the page of another site may read it."""
        origin = headers.get("origin")
        if origin is None or not self.allows(origin):
            return {}
        answer = {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}
        if method == "OPTIONS" and "access-control-request-method" in headers:
            answer["Access-Control-Allow-Methods"] = self.methods or "GET,POST,HEAD"
            answer["Access-Control-Allow-Headers"] = headers.get("access-control-request-headers", "Content-Type")
            answer["Access-Control-Max-Age"] = "1800"
        return answer


def split_host(text: str) -> str:
    """The name or address in a Host header."""
    return text[1 : text.find("]")] if text.startswith("[") else text.partition(":")[0]


def is_address(host: str) -> bool:
    """Whether this is no name. Nobody can give an address of their own the meaning of another."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    try:
        return host.lower() == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
