"""From a request to an endpoint. Paths may end with a slash, HEAD is answered like GET, OPTIONS lists the methods.

An endpoint is a plain function that may wait; it runs in a thread. What goes wrong is raised as a RestError or as an
error of the herder or the plug-ins, and answered as `{"error_code": ..., "message": ...}`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

JSON: Final = "application/json"


class RestError(Exception):
    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})


@dataclass(frozen=True)
class Call:
    """A request, as an endpoint sees it."""

    method: str
    path: str
    """Still encoded, without the query."""
    query: Sequence[tuple[str, str]] = ()
    body: bytes = b""
    content_type: str | None = None
    accept: str | None = None
    base_url: str = ""
    """The server as the client names it, such as http://127.0.0.1:8083."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The variable parts of the path."""

    def read_parameter(self, name: str, default: str) -> str:
        return next((value for key, value in self.query if key == name), default)

    def is_set(self, name: str, *, default: bool = False) -> bool:
        """A Boolean parameter: whatever is not `true` is false, as in Java."""
        return self.read_parameter(name, str(default)).lower() == "true"

    def read_number(self, name: str) -> int:
        """A number in the path. A path with anything else does not exist."""
        if not re.fullmatch(r"[+-]?[0-9]{1,10}", self.names[name], re.ASCII) or abs(int(self.names[name])) >= 1 << 31:
            raise RestError(404, describe_status(404))
        return int(self.names[name])


@dataclass(frozen=True)
class Answer:
    status: int = 200
    document: Any = None
    has_document: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)


def answer(document: Any, status: int = 200, **headers: str) -> Answer:
    return Answer(status, document, True, headers)


Endpoint = Callable[[Call], Answer]

_PHRASES: Final = {
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    413: "Content Too Large",
    415: "Unsupported Media Type",
}


def describe_status(status: int) -> str:
    return f"HTTP {status} {_PHRASES[status]}"


@dataclass(frozen=True)
class Resource:
    """A path with what may be done to it. `{name}` stands for one part of the path."""

    path: str
    methods: Mapping[str, Endpoint]
    takes_json: bool = True
    """Whether a request of another media type is refused. The pages that no method sends anything to do not care."""
    gives_json: bool = True

    def match(self, parts: Sequence[str]) -> dict[str, str] | None:
        wanted = self.path.strip("/").split("/")
        if len(wanted) != len(parts):
            return None
        names = {}
        for pattern, part in zip(wanted, parts, strict=True):
            if pattern.startswith("{"):
                names[pattern[1:-1]] = part
            elif pattern != part:
                return None
        return names

    def list_methods(self) -> list[str]:
        return [*(["HEAD"] if "GET" in self.methods else []), *self.methods, "OPTIONS"]


def find_resource(resources: Sequence[Resource], parts: Sequence[str]) -> tuple[Resource, dict[str, str]]:
    """A path with a word in a place wins over one with a variable there: resources are listed in that order."""
    for resource in resources:
        names = resource.match(parts)
        if names is not None:
            return resource, names
    raise RestError(404, describe_status(404))


def check_media_types(resource: Resource, call: Call) -> None:
    if resource.takes_json:
        given = None if call.content_type is None else call.content_type.partition(";")[0].strip().lower()
        if (given is None and call.body) or (given is not None and given != JSON):
            raise RestError(415, describe_status(415))
    if resource.gives_json and call.accept is not None and not _accepts_json(call.accept):
        raise RestError(406, describe_status(406))


def _accepts_json(accept: str) -> bool:
    for given in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in given.split(";"))
        if kind in (JSON, "application/*", "*/*", "*", "") and "q=0" not in parameters:
            return True
    return False
