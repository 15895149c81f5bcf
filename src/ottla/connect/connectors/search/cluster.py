"""Requests to a cluster over HTTP, and what their failures mean.

urllib3 is imported where a connection is made, so that everything else works without it.
"""

import functools
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.connect.errors import BadConfig, ConnectError, RetriableError
from ottla.connect.settings.definition import Password

_BUSY: Final = frozenset({408, 429})


@dataclass(frozen=True)
class SearchCluster:
    """How to reach a cluster. It is pickled with the connector; processes connect when they use it."""

    urls: tuple[str, ...]
    user: str | None = None
    password: Password | None = field(default=None, repr=False)
    connect_timeout_s: float = 1.0
    read_timeout_s: float = 3.0
    authorities: str | None = None
    is_compressing: bool = False

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "SearchCluster":
        return cls(
            tuple(each.rstrip("/") if "://" in each else f"http://{each}" for each in config["connection.url"]),
            config["connection.username"],
            config["connection.password"],
            config["connection.timeout.ms"] / 1000,
            config["read.timeout.ms"] / 1000,
            config["elastic.https.ssl.truststore.location"] or None,
            config["connection.compression"],
        )

    def ask(
        self, method: str, path: str, body: bytes | None = None, kind: str = "application/x-ndjson"
    ) -> tuple[int, Any]:
        """The status and the JSON of an answer, from the first server that can be reached.

        RetriableError if none can, or if the cluster is busy; ConnectError if it does not let us in.
        """
        pool = _connect(self)
        from urllib3.exceptions import HTTPError

        headers = {**self._headers, "Content-Type": kind}
        if body is not None and self.is_compressing:
            body = gzip.compress(body, 1)
            headers["Content-Encoding"] = "gzip"
        failures = []
        for url in self.urls:
            try:
                answer = pool.request(method, f"{url}{path}", body=body, headers=headers)
            except HTTPError as error:
                failures.append(f"{url}: {error}")
                continue
            return answer.status, self._read(f"{method} {url}{path}", answer.status, answer.data)
        raise RetriableError(f"no server of the search cluster can be reached: {'; '.join(failures)}")

    def _read(self, request: str, status: int, data: bytes) -> Any:
        if status in _BUSY or status >= 500:
            raise RetriableError(f"{request}: the search cluster is busy or away (status {status})")
        if status in (401, 403):
            raise ConnectError(f"{request}: the search cluster refuses the user {self.user!r} (status {status})")
        try:
            return json.loads(data) if data else None
        except ValueError:
            raise ConnectError(
                f"{request}: the answer is no JSON (status {status}); is this a search cluster?"
            ) from None

    @property
    def _headers(self) -> Mapping[str, str]:
        from urllib3 import make_headers

        named = {"Accept": "application/json"}
        if self.user is None or self.password is None:
            return named
        return {**named, **make_headers(basic_auth=f"{self.user}:{self.password}")}


@functools.cache
def _connect(cluster: SearchCluster) -> Any:
    """The connections of a process to a cluster."""
    try:
        import urllib3
    except ImportError:
        raise BadConfig("search connectors need urllib3: pip install 'ottla[connect]'") from None
    return urllib3.PoolManager(
        timeout=urllib3.Timeout(connect=cluster.connect_timeout_s, read=cluster.read_timeout_s),
        retries=False,
        ca_certs=cluster.authorities,
    )
