"""A small HTTP server for text pages: metrics and health of a broker.

One request per connection: the head is read, the page is made piece by piece between the broker's other work, the
answer is sent, and the client closes. Whatever the client sends after the head is thrown away. There is a limit on
everything: connections, bytes of a request, time for the request, time for the answer.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, NamedTuple, cast

from ottla.server import bind_sockets

CONNECTIONS_MAX = 8
HEAD_BYTES_MAX = 8 * 1024
THROWN_AWAY_BYTES_MAX = 64 * 1024
HEAD_S = 5.0
ANSWER_S = 30.0

OK, BAD_REQUEST, NOT_FOUND, METHOD_NOT_ALLOWED = 200, 400, 404, 405
REQUEST_HEADER_FIELDS_TOO_LARGE, INTERNAL_SERVER_ERROR, SERVICE_UNAVAILABLE = 431, 500, 503
PHRASES = {
    OK: "OK",
    BAD_REQUEST: "Bad Request",
    NOT_FOUND: "Not Found",
    METHOD_NOT_ALLOWED: "Method Not Allowed",
    REQUEST_HEADER_FIELDS_TOO_LARGE: "Request Header Fields Too Large",
    INTERNAL_SERVER_ERROR: "Internal Server Error",
    SERVICE_UNAVAILABLE: "Service Unavailable",
}

logger = logging.getLogger(__name__)

_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.[01]\r?\n")
_HEAD_END = re.compile(rb"\r?\n\r?\n")


class Page(NamedTuple):
    """The present content of a page. Its pieces are made one at a time, with pauses between them.

    A piece that is a coroutine is waited for before the next piece is made, and is no text itself.
    """

    pieces: Iterator[str | Coroutine[Any, Any, None]]
    status: int = OK
    content_type: str = "text/plain; charset=utf-8"


Pages = Mapping[str, Callable[[], Page]]
"""Path -> the function that makes the page."""


class PortTaken(Exception):
    """The endpoint cannot listen on its port. The message says which port and why."""


class PageServer:
    def __init__(self, pages: Pages) -> None:
        self.pages = pages
        self.exchanges: dict[Exchange, None] = {}
        self._servers: list[asyncio.AbstractServer] = []

    async def start(self, host: str, port: int) -> int:
        """Start to listen. Returns the port; the system chooses one if `port` is 0."""
        loop = asyncio.get_running_loop()
        try:
            sockets = await bind_sockets(loop, host, port)
        except OSError as error:
            raise PortTaken(f"metrics.port: cannot listen on {host or '*'}:{port}: {error.strerror}") from error
        for bound in sockets:
            self._servers.append(await loop.create_server(lambda: Exchange(self), sock=bound))
        return int(sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening and close all connections."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        for exchange in list(self.exchanges):
            exchange.abort()


class Exchange(asyncio.Protocol):
    """One connection, which is closed after one request and its answer."""

    _transport: asyncio.Transport

    def __init__(self, endpoint: PageServer) -> None:
        self._endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        self._head = b""
        self._page: Page | None = None
        self._pieces: list[str] = []
        self._thrown_away = 0
        self._answered = False
        self._waiting: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None

    # Opening and closing

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        if len(self._endpoint.exchanges) >= CONNECTIONS_MAX:
            self._transport.abort()
            return
        self._endpoint.exchanges[self] = None
        self._allow(HEAD_S)

    def connection_lost(self, error: Exception | None) -> None:
        self._endpoint.exchanges.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._waiting is not None:
            self._waiting.cancel()

    def eof_received(self) -> bool:
        """A client may end its side after the request and still wait for the answer."""
        return self._page is not None and not self._answered

    def abort(self) -> None:
        self._transport.abort()

    def _allow(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._loop.call_later(seconds, self.abort)

    # The request

    def data_received(self, data: bytes) -> None:
        if self._page is not None or self._answered:
            self._thrown_away += len(data)
            if self._thrown_away > THROWN_AWAY_BYTES_MAX:
                self.abort()
            return
        self._head += data[: HEAD_BYTES_MAX + 1]
        if _HEAD_END.search(self._head):
            self._open()
        elif len(self._head) > HEAD_BYTES_MAX:
            self._refuse(REQUEST_HEADER_FIELDS_TOO_LARGE)

    def _open(self) -> None:
        """Find the page that the request asks for."""
        asked = _REQUEST_LINE.match(self._head)
        if asked is None:
            self._refuse(BAD_REQUEST)
            return
        method, path = asked[1].decode(), asked[2].decode().partition("?")[0]
        page = self._endpoint.pages.get(path)
        if page is None:
            self._refuse(NOT_FOUND)
        elif method != "GET":
            self._refuse(METHOD_NOT_ALLOWED)
        else:
            self._allow(ANSWER_S)
            self._page = page()
            self._advance()

    # The answer

    def _advance(self) -> None:
        """Make the next piece of the page, and let other work run before the one after it."""
        page = self._page
        if page is None or self._transport.is_closing():
            return
        try:
            piece = next(page.pieces, None)
        except Exception:
            logger.exception("a page of the monitoring endpoint failed")
            self._refuse(INTERNAL_SERVER_ERROR)
            return
        if piece is None:
            self._send(page.status, page.content_type, "".join(self._pieces).encode())
        elif isinstance(piece, str):
            self._pieces.append(piece)
            self._loop.call_soon(self._advance)
        else:
            self._waiting = self._loop.create_task(piece)
            self._waiting.add_done_callback(self._go_on)

    def _go_on(self, waited: "asyncio.Task[None]") -> None:
        self._waiting = None
        if waited.cancelled():
            return
        if (error := waited.exception()) is not None:
            logger.error("a page of the monitoring endpoint failed", exc_info=error)
            self._refuse(INTERNAL_SERVER_ERROR)
        else:
            self._advance()

    def _refuse(self, status: int) -> None:
        self._allow(ANSWER_S)
        self._send(status, "text/plain; charset=utf-8", f"{PHRASES[status]}\n".encode())

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self._answered = True
        self._page, self._pieces = None, []
        head = [
            f"HTTP/1.1 {status} {PHRASES[status]}",
            f"Content-Type: {content_type}",
            f"Content-Length: {len(body)}",
            "Connection: close",
        ]
        if status == METHOD_NOT_ALLOWED:
            head.append("Allow: GET")
        text = "".join(f"{line}\r\n" for line in head) + "\r\n"
        self._transport.write(text.encode("ascii"))
        if not self._head.startswith(b"HEAD "):  # an answer to HEAD has no body
            self._transport.write(body)
        self._transport.write_eof()  # the client closes when it has read everything
