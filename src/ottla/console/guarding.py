"""Which requests are let in, and the headers of every answer.

    Host     must be a name that the console is known by: a page of another site whose name is made to point to this
             machine (DNS rebinding) sends its own name.
    Origin   must be the console's own for everything that changes something: forms of other sites (CSRF) send theirs.
    login    a token in the header Authorization, or the cookie that the login page sets; not asked on loopback.
    read-only mode refuses every request that changes something, whoever sends it.

The content security policy allows no script, style or connection but the console's own files.
"""

import ipaddress
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ottla.console.login import COOKIE, Login, TooManyAttempts

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
SAFE_METHODS = ("GET", "HEAD")
OPEN_PATHS = ("/login", "/static/")
"""What can be seen without a login."""

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def is_loopback(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def name_of(host: str) -> str:
    """The name in a Host header, without the port."""
    name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
    return name.lower()


class Guard:
    """ASGI middleware around the whole console."""

    def __init__(
        self,
        app: ASGIApp,
        hosts: Collection[str],
        login: Login | None,
        *,
        is_read_only: bool,
        root_path: str = "",
    ) -> None:
        """`hosts` are the names that the console may be called by, without ports; "*" allows every name."""
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._login = login
        self._is_read_only = is_read_only
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        self._remove_root_path(scope)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if "cache-control" not in headers:
                    headers["Cache-Control"] = "no-store"
            await send(message)

        refusal = self._refuse(scope)
        await (refusal or self._app)(scope, receive, send_guarded)

    def _remove_root_path(self, scope: Scope) -> None:
        """A proxy that serves the console below a path may remove that path from requests, or leave it to us."""
        path: str = scope["path"]
        if self._root_path and (path == self._root_path or path.startswith(f"{self._root_path}/")):
            scope["path"] = path[len(self._root_path) :] or "/"
            scope["raw_path"] = scope["path"].encode()

    def _refuse(self, scope: Scope) -> Response | None:
        """The answer to a request that is not let in; None for the others."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if "*" not in self._hosts and name_of(host) not in self._hosts:
            return PlainTextResponse(
                f"The console does not answer to the name {host!r}. If it is yours, start it with --allow-host.\n", 421
            )
        path: str = scope["path"]
        if scope["method"] not in SAFE_METHODS:
            if not _is_own_origin(headers, host):
                return PlainTextResponse("The request comes from another site (header Origin).\n", 403)
            if self._is_read_only and path not in ("/login", "/logout"):
                return PlainTextResponse("The console is read-only (--read-only).\n", 403)
        if self._login is None or any(path == each or path.startswith(each) for each in OPEN_PATHS):
            return None
        return self._ask_for_login(self._login, scope, headers)

    def _ask_for_login(self, login: Login, scope: Scope, headers: Headers) -> Response | None:
        if login.knows_cookie(_read_cookie(headers.get("cookie", ""))):
            return None
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            try:
                if login.accepts(token):
                    return None
            except TooManyAttempts:
                return PlainTextResponse("Too many wrong tokens. Try again in a minute.\n", 429)
            return PlainTextResponse("The token is wrong.\n", 401)
        if scope["method"] in SAFE_METHODS and "text/html" in headers.get("accept", ""):
            query = f"?{scope['query_string'].decode('ascii', 'replace')}" if scope["query_string"] else ""
            return RedirectResponse(f"{self._root_path}/login?to={quote(scope['path'] + query, safe='/')}", 303)
        return PlainTextResponse("A login is needed: the header Authorization: Bearer TOKEN, or /login.\n", 401)


def _is_own_origin(headers: Headers, host: str) -> bool:
    """Browsers send Origin with every POST; without it the sender is no browser that follows the rules."""
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc.lower() == host.lower()


def _read_cookie(header: str) -> str:
    try:
        found = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value
