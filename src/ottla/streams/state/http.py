"""Queries over HTTP: rows of stores as JSON.

    GET /stores                               the stores and their columns
    GET /stores/NAME/KEY                      the row of a key; several key columns are several segments of the path
    GET /stores/NAME/KEY?window=TIME          the row of a window that begins at this time
    GET /stores/NAME/KEY?from=TIME&to=TIME    the windows of a key that begin between two times
    GET /stores/NAME?from=KEY&to=KEY          rows by key, both ends included; without from and to all rows
    GET /stores/NAME?from=TIME&to=TIME        rows of a store with windows, by time

Lists are pages of at most `limit` rows: {"rows": [...], "next": TEXT}. The next page has the parameter after=TEXT.
Errors are {"error": TEXT}. Unless the server listens on the loopback interface, requests need the app's token
(Authorization: Bearer TOKEN).
"""

import socket
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from hmac import compare_digest
from ipaddress import ip_address
from threading import Thread
from typing import Any, Final
from urllib.parse import unquote

import orjson
import pyarrow as pa
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ottla.client.http_connections import CONNECTIONS_MAX, BoundedConnection
from ottla.streams.errors import StreamsError
from ottla.streams.state.values import RowCodec
from ottla.streams.state.views import KEY_VALUE, Page, QueryError, StoreView

LIMIT: Final = 1000
LIMIT_MAX: Final = 10_000

_SAFE_METHODS: Final = ("GET", "HEAD")
_BOOLEANS: Final = {"true": True, "false": False}


def make_query_routes(find_stores: Callable[[], Mapping[str, StoreView]]) -> list[BaseRoute]:
    """Routes that answer with rows of the stores that `find_stores` returns at the time of a request."""
    endpoints = _Queries(find_stores)
    return [
        Route("/stores", endpoints.list_stores),
        Route("/stores/{name}", endpoints.list_rows),
        Route("/stores/{name}/{key:path}", endpoints.get_row),
    ]


class HttpServer:
    """Answers HTTP requests in a thread of its own. With port 0 the server takes a free one."""

    def __init__(self, routes: Sequence[BaseRoute], host: str, port: int, token: str | None) -> None:
        """StreamsError if others could reach the server without a token, or if it cannot listen."""
        host = host.strip("[]")
        if token is None and not is_loopback(host):
            raise StreamsError(
                f"http={host}:{port}: an address that other machines can reach needs a token; set one, or use 127.0.0.1"
            )
        guard = Middleware(_LoopbackGuard) if token is None else Middleware(_TokenGuard, token=token)
        config = uvicorn.Config(
            Starlette(routes=list(routes), middleware=[guard]),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            http=BoundedConnection,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)
        try:
            self._socket = socket.create_server((host, port), family=_family_of(host), backlog=128)
        except OSError as error:
            raise StreamsError(f"http={host}:{port}: cannot listen: {error.strerror or error}") from None
        self._host = host
        self._thread = Thread(target=lambda: self._server.run([self._socket]), name="http", daemon=True)

    @property
    def address(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._socket.getsockname()[1]}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()


def _family_of(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class _TokenGuard:
    """Refuses requests without the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        if scope["type"] != "http" or compare_digest(given, self._expected):
            await self._app(scope, receive, send)
            return
        headers = {"WWW-Authenticate": "Bearer"}
        await _answer({"error": "this address needs the app's token: Authorization: Bearer TOKEN"}, 401, headers)(
            scope, receive, send
        )


class _LoopbackGuard:
    """Keeps out pages of other sites that are open in a browser on this machine. A page could give its own name the
    address of this machine and read the answers, so requests for other names than those of this machine are refused. It
    could send a form without reading the answer, so requests that change something are refused if their Origin is
    another site."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._find_refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await _answer({"error": refusal}, 403)(scope, receive, send)

    def _find_refusal(self, scope: Scope) -> str | None:
        headers = dict(scope["headers"])
        host, origin = (headers.get(name, b"").decode("latin-1") for name in (b"host", b"origin"))
        name = host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
        if name and not is_loopback(name.strip("[]")):
            return f"{name!r} is not a name of this machine"
        if origin and scope["method"] not in _SAFE_METHODS and origin.partition("://")[2] != host:
            return f"pages of {origin} may not change anything"
        return None


class _Queries:
    """The endpoints. Those that read state are plain functions, which Starlette runs in threads."""

    def __init__(self, find_stores: Callable[[], Mapping[str, StoreView]]) -> None:
        self._find_stores = find_stores

    def list_stores(self, request: Request) -> Response:
        stores = self._find_stores()
        return _answer({"stores": [_describe(stores[name]) for name in sorted(stores)]})

    def list_rows(self, request: Request) -> Response:
        def answer(store: StoreView, given: Mapping[str, str]) -> Response:
            limit, after = _read_limit(given), _read_cursor(given)
            start, end = given.get("from"), given.get("to")
            if store.plan.kind != KEY_VALUE:
                return _answer_page(store, store.all(start, end, limit=limit, after=after))
            bounds = [None if text is None else _parse_key(store, [text]) for text in (start, end)]
            return _answer_page(store, store.range(bounds[0], bounds[1], limit, after))

        return self._respond(request, answer)

    def get_row(self, request: Request) -> Response:
        def answer(store: StoreView, given: Mapping[str, str]) -> Response:
            raw = request.scope["raw_path"].decode("ascii").split("?")[0]
            segments = raw.split("/stores/", 1)[1].split("/")[1:]
            key = _parse_key(store, [unquote(segment) for segment in segments])
            if store.plan.kind != KEY_VALUE and "window" not in given:
                return _answer_page(store, Page(store.windows(key, given.get("from"), given.get("to")), None))
            row = store.get(key, given.get("window"))
            if row is None:
                return _answer({"error": f"store {store.plan.spec.name!r} has no such key"}, 404)
            return Response(RowCodec(store.columns).encode_row(row), media_type="application/json")

        return self._respond(request, answer)

    def _respond(self, request: Request, answer: Callable[[StoreView, Mapping[str, str]], Response]) -> Response:
        name = request.path_params["name"]
        stores = self._find_stores()
        if name not in stores:
            known = ", ".join(sorted(stores)) or "none"
            return _answer({"error": f"there is no store {name!r}; there are: {known}"}, 404)
        try:
            return answer(stores[name], request.query_params)
        except QueryError as error:
            return _answer({"error": str(error)}, 400)
        except ValueError as error:  # a value does not fit the columns that the store has by now
            return _answer({"error": f"store {name!r}: {error}"}, 500)
        except StreamsError as error:  # a state server is away, or restores
            return _answer({"error": str(error)}, 503, {"Retry-After": "1"})


def _describe(store: StoreView) -> dict[str, Any]:
    return {
        "name": store.plan.spec.name,
        "kind": store.plan.kind,
        "partitions": store.partition_count,
        "key": store.key_columns.names,
        "columns": {field.name: str(field.type) for field in store.columns},
        "schema": b64encode(store.columns.serialize()).decode(),
    }


def _answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(content), status, headers, "application/json")


def _answer_page(store: StoreView, page: Page) -> Response:
    codec = RowCodec(store.columns)
    rows = b",".join(map(codec.encode_row, page.rows))
    after = None if page.after is None else urlsafe_b64encode(page.after).decode()
    body = b'{"rows":[%b],"next":%b}' % (rows, orjson.dumps(after))
    return Response(body, media_type="application/json")


def _read_limit(given: Mapping[str, str]) -> int:
    text = given.get("limit", str(LIMIT))
    if not text.isdecimal() or not 0 < int(text) <= LIMIT_MAX:
        raise QueryError(f"limit={text}: it must be a number from 1 to {LIMIT_MAX}")
    return int(text)


def _read_cursor(given: Mapping[str, str]) -> bytes | None:
    if "after" not in given:
        return None
    try:
        return urlsafe_b64decode(given["after"])
    except ValueError:
        raise QueryError("after: it must be the text that the page before has as next") from None


def _parse_key(store: StoreView, texts: Sequence[str]) -> list[Any]:
    """The values of the key's columns. What their number must be, the store says."""
    if len(texts) != len(store.key_columns):
        return list(texts)
    return [_parse(field, text) for field, text in zip(store.key_columns, texts, strict=True)]


def _parse(field: pa.Field, text: str) -> Any:
    types = pa.types
    try:
        if types.is_string(field.type):
            return text
        if types.is_binary(field.type):
            return urlsafe_b64decode(text)
        if types.is_boolean(field.type):
            return _BOOLEANS[text.lower()]
        value = orjson.dumps(text) if not types.is_integer(field.type) else str(int(text)).encode()
        if types.is_floating(field.type):
            value = orjson.dumps(float(text))
        return RowCodec(pa.schema([field])).decode_row(b"{%b:%b}" % (orjson.dumps(field.name), value))[field.name]
    except (ValueError, KeyError):
        raise QueryError(f"key column {field.name!r}: {text!r} is not a value of type {field.type}") from None
