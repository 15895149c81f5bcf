"""Asks the console without a server: an ASGI application is called as a server calls it."""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from starlette.types import ASGIApp


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


def ask(
    app: ASGIApp,
    path: str,
    form: Mapping[str, str] | list[tuple[str, str]] | None = None,
    *,
    method: str | None = None,
    headers: Mapping[str, str] | None = None,
    body_max: int | None = None,
) -> Answer:
    """The answer to one request: POST if there is a form, else GET. `body_max` ends a stream that has no end."""
    body = b"" if form is None else urlencode(form).encode()
    sent = {"host": "localhost:9280", "accept": "text/html"}
    if form is not None:
        sent |= {"origin": "http://localhost:9280", "content-type": "application/x-www-form-urlencoded"}
    sent |= {name.lower(): value for name, value in (headers or {}).items()}
    return asyncio.run(_ask(app, path, body, method or ("GET" if form is None else "POST"), sent, body_max))


async def _ask(
    app: ASGIApp, path: str, body: bytes, method: str, headers: Mapping[str, str], body_max: int | None
) -> Answer:
    from urllib.parse import unquote

    parts = urlsplit(path)
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(parts.path),
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items() if value != "-"],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 9280),
        "state": {},
    }
    answer: dict[str, Any] = {"status": 0, "headers": {}, "body": b""}
    requested = [{"type": "http.request", "body": body, "more_body": False}]
    enough = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if requested:
            return requested.pop()
        await enough.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer["status"] = message["status"]
            answer["headers"] = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            answer["body"] += message.get("body", b"")
            if body_max is not None and len(answer["body"]) >= body_max:
                enough.set()

    await app(scope, receive, send)
    return Answer(answer["status"], answer["headers"], answer["body"])
