"""The REST API as one ASGI application."""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import parse_qsl, unquote

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ottla.client.connection import Unreachable
from ottla.connect.errors import BadConfig, ConnectError
from ottla.connect.plugins.installed import UnknownPlugin
from ottla.connect.rest.bodies import BODY_BYTES_MAX
from ottla.connect.rest.guard import Guard
from ottla.connect.rest.routing import (
    JSON,
    Answer,
    Call,
    Endpoint,
    Resource,
    RestError,
    answer,
    check_media_types,
    describe_status,
    find_resource,
)
from ottla.connect.settings.redaction import Redactor
from ottla.connect.worker.herder import HerderError
from ottla.errors import KafkaError

REQUEST_TIMEOUT_S: Final = 90
"""After which a caller is told that the worker has not finished, as in Kafka Connect. What was asked for goes on."""

_log = logging.getLogger("ottla.connect.rest")


class Application:
    def __init__(
        self,
        resources: Sequence[Resource],
        redactor: Redactor,
        guard: Guard,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        """`headers` are in every answer."""
        self._resources = resources
        self._redactor = redactor
        self._guard = guard
        self._headers = dict(headers or {})
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        headers = dict(request.headers)
        try:
            self._guard.check(request.method, headers)
            found = await self._respond(request)
        except RestError as error:
            found = self._describe_error(error.status, str(error), error.headers)
        response = self._write(found, is_head=request.method == "HEAD")
        for name, value in {**self._headers, **self._guard.list_headers(request.method, headers)}.items():
            response.headers[name] = value
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Answer:
        path: str = request.scope["raw_path"].decode("latin-1").partition("?")[0]
        resource, names = find_resource(self._resources, _split_path(path))
        if request.method == "OPTIONS":
            methods = resource.list_methods()
            return Answer(200, ", ".join(methods), False, {"Allow": ",".join(methods), "Content-Type": "text/plain"})
        method = "GET" if request.method == "HEAD" else request.method
        endpoint = resource.methods.get(method)
        if endpoint is None:
            raise RestError(405, describe_status(405), {"Allow": ",".join(resource.list_methods())})
        call = Call(
            method=method,
            path=path,
            query=parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True),
            content_type=request.headers.get("content-type"),
            accept=request.headers.get("accept"),
            base_url=f"{request.url.scheme}://{request.headers.get('host', request.url.netloc)}",
            names=names,
        )
        call = replace(call, body=await _read_body(request))
        check_media_types(resource, call)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await to_thread.run_sync(self._run, endpoint, call, abandon_on_cancel=True)
        except TimeoutError:
            return self._describe_error(500, "Request timed out")

    def _run(self, endpoint: Endpoint, call: Call) -> Answer:
        try:
            return endpoint(call)
        except RestError as error:
            return self._describe_error(error.status, str(error), error.headers)
        except HerderError as error:
            return self._describe_error(error.status, str(error))
        except UnknownPlugin as error:
            return self._describe_error(404, str(error))
        except BadConfig as error:
            return self._describe_error(400, str(error))
        except (KafkaError, Unreachable, ConnectError) as error:  # Kafka Connect's status for all of them is 500
            message = self._redactor.redact(" ".join(str(error).split()))
            _log.warning("%s %s failed: %s", call.method, call.path, message)
            return self._describe_error(500, message)
        except Exception as error:
            _log.exception("%s %s failed", call.method, call.path)
            return self._describe_error(500, str(error) or type(error).__name__)

    def _describe_error(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> Answer:
        return answer({"error_code": status, "message": self._redactor.redact(message)}, status, **(headers or {}))

    def _write(self, found: Answer, *, is_head: bool) -> Response:
        if found.has_document:
            content = json.dumps(found.document, ensure_ascii=False, separators=(",", ":")).encode()
            response = Response(content, found.status, {"Content-Type": JSON, **found.headers})
        else:
            response = Response((found.document or "").encode(), found.status, dict(found.headers))
        if is_head:
            response.body = b""
        return response


def _split_path(path: str) -> list[str]:
    """The parts of an encoded path. A slash at the end does not count."""
    raw = path.removeprefix("/").removesuffix("/").split("/") if path != "/" else [""]
    if "" in raw[: -1 if len(raw) == 1 else None]:
        raise RestError(400, "Ambiguous URI empty segment")
    if any("%2f" in part.lower() for part in raw):
        raise RestError(400, "Ambiguous URI path separator")
    parts = [unquote(part) for part in raw]
    if any(ord(character) < 0x20 or ord(character) == 0x7F for part in parts for character in part):
        raise RestError(400, "Illegal character in path")
    return parts


async def _read_body(request: Request) -> bytes:
    too_large = RestError(413, describe_status(413), {"Connection": "close"})
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > BODY_BYTES_MAX:
        raise too_large
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            raise too_large
    return bytes(body)
