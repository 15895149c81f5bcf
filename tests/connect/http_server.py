"""An HTTP server in a thread, which answers as a test says and remembers what it was asked."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Request(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


Answer = tuple[int, bytes] | tuple[int, bytes, Mapping[str, str]]


class HttpServer:
    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        self.requests: list[Request] = []
        self.answer = answer
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._make_handler())
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _make_handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                self.close_connection = True
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = Request(self.command, self.path, dict(self.headers.items()), body)
                outer.requests.append(request)
                status, data, *more = outer.answer(request)
                self.send_response(status)
                headers: Any = more[0] if more else {}
                for name, text in headers.items():
                    self.send_header(name, text)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        return Handler


@contextmanager
def http_server(answer: Callable[[Request], Answer] = lambda request: (200, b"")) -> Iterator[HttpServer]:
    server = HttpServer(answer)
    server.start()
    try:
        yield server
    finally:
        server.stop()
