"""Requests to a server over HTTP, and what their failures mean.

urllib3 is imported where a connection is made, so that everything else works without it.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ottla.connect.errors import BadConfig, ConnectError, RetriableError
from ottla.connect.settings.definition import Password

ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_REDIRECTS_MAX: Final = 3
_SHOWN_MAX: Final = 300
_NOT_LET_IN: Final = (401, 403, 407)
_RANGE: Final = re.compile(r"(\d{3})(-(\d{3})?)?")


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """By names in lower case."""
    body: bytes

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300

    def describe(self) -> str:
        text = " ".join(self.body[: 4 * _SHOWN_MAX].decode("utf-8", "replace").split())
        return f"status {self.status}{': ' if text else ''}{text[:_SHOWN_MAX]}"


@dataclass(frozen=True)
class Server:
    """How to ask a server. It is pickled with the connector; processes connect when they use it."""

    headers: tuple[tuple[str, str], ...] = ()
    user: str | None = None
    password: Password | None = field(default=None, repr=False)
    token: Password | None = field(default=None, repr=False)
    connect_timeout_s: float = 30.0
    read_timeout_s: float = 30.0
    authorities: str | None = None
    retried: tuple[tuple[int, int], ...] = ((408, 408), (429, 429), (500, 599))
    """Ranges of statuses of a server that is busy or away."""

    def ask(self, method: str, url: str, body: bytes | None = None, more: Mapping[str, str] | None = None) -> Answer:
        """The answer, good or not. RetriableError if the server is away or busy, ConnectError if it does not let us
        in."""
        pool = _connect(self)
        from urllib3.exceptions import HTTPError, LocationParseError

        shown = f"{method} {url.partition('?')[0]}"
        try:
            with pool.request(
                method, url, body=body, headers={**self._headers, **(more or {})}, preload_content=False
            ) as found:
                data = found.read(ANSWER_BYTES_MAX + 1, decode_content=True)
                answer = Answer(found.status, {name.lower(): text for name, text in found.headers.items()}, data)
        except LocationParseError:
            raise ConnectError(f"{shown}: this is no URL") from None
        except HTTPError as error:
            raise RetriableError(f"{shown}: no answer: {type(error).__name__}: {error}") from None
        if len(answer.body) > ANSWER_BYTES_MAX:
            raise ConnectError(f"{shown}: the answer has more than {ANSWER_BYTES_MAX >> 20} MiB")
        if any(first <= answer.status <= last for first, last in self.retried):
            raise RetriableError(f"{shown}: the server is busy or away ({answer.describe()})")
        if answer.status in _NOT_LET_IN:
            raise ConnectError(f"{shown}: the server does not let us in ({answer.describe()})")
        return answer

    @property
    def _headers(self) -> Mapping[str, str]:
        from urllib3 import make_headers

        found = dict(self.headers)
        if self.token is not None:
            found["Authorization"] = f"Bearer {self.token}"
        elif self.user is not None:
            found["Authorization"] = make_headers(basic_auth=f"{self.user}:{self.password or ''}")["authorization"]
        return found


def parse_headers(text: str, separator: str) -> tuple[tuple[str, str], ...]:
    """`Name:value` pairs. ValueError if one is not."""
    found = []
    for each in filter(None, map(str.strip, text.split(separator))):
        name, colon, value = each.partition(":")
        if not colon or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name.strip()) or re.search(r"[\r\n]", value):
            raise ValueError("a header is Name:value, and headers are separated by " + repr(separator))
        found.append((name.strip(), value.strip()))
    return tuple(found)


def parse_statuses(text: str) -> tuple[tuple[int, int], ...]:
    """`429,500-` or `500-503`, as Confluent's connectors have it. ValueError if it is not."""
    found = []
    for each in filter(None, map(str.strip, text.split(","))):
        match = _RANGE.fullmatch(each)
        if match is None:
            raise ValueError(f"{each} is no status such as 429, and no range such as 500-503 or 500-")
        first = int(match[1])
        found.append((first, int(match[3]) if match[3] else 599 if match[2] else first))
    return tuple(found)


@functools.lru_cache(maxsize=16)
def _connect(server: Server) -> Any:
    """The connections of a process to a server."""
    try:
        import urllib3
    except ImportError:
        raise BadConfig("HTTP connectors need urllib3: pip install 'ottla[connect]'") from None
    return urllib3.PoolManager(
        timeout=urllib3.Timeout(connect=server.connect_timeout_s, read=server.read_timeout_s),
        retries=urllib3.Retry(total=None, connect=0, read=0, redirect=_REDIRECTS_MAX, status=0, other=0),
        ca_certs=server.authorities,
    )
