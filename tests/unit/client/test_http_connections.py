"""HTTP connections that never send a whole request keep nobody out, and do not stay."""

import http.client
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Event, Thread
from typing import Any

import pytest
import uvicorn
from anyio import to_thread

from ottla.client.http_connections import BoundedConnection
from tests.patience import PATIENCE_S

CONNECTIONS = 8
UNFINISHED = (b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx")


class Hasty(BoundedConnection):
    arrival_s = 0.05


class App:
    """Answers with the size of a body; at /slow when `go_on` is set."""

    def __init__(self) -> None:
        self.begun, self.go_on = Event(), Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message.get("body", b"")), message.get("more_body", False)
        if scope["path"] == "/slow":
            self.begun.set()
            await to_thread.run_sync(self.go_on.wait, PATIENCE_S)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1")]})
        await send({"type": "http.response.body", "body": b"%d" % size})


@contextmanager
def serve(app: App, kind: type[BoundedConnection] = BoundedConnection) -> Iterator[int]:
    bound = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, lifespan="off", http=kind, limit_concurrency=CONNECTIONS)
    server = uvicorn.Server(config)
    thread = Thread(target=lambda: server.run([bound]))
    thread.start()
    try:
        yield bound.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        bound.close()


def get(port: int, path: str = "/", body: bytes | None = None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("POST", path, body)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("said", UNFINISHED)
def test_connections_that_wait_keep_nobody_out(said: bytes) -> None:
    with serve(App()) as port, ExitStack() as crowd:
        for _ in range(5 * CONNECTIONS):
            stranger = crowd.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
            stranger.sendall(said)
            assert get(port, body=b"x") == 200


def test_a_request_that_is_answered_is_not_given_up() -> None:
    app, statuses = App(), []
    with serve(app) as port, ExitStack() as crowd:
        slow = Thread(target=lambda: statuses.append(get(port, "/slow")))
        slow.start()
        assert app.begun.wait(PATIENCE_S)
        for _ in range(3 * CONNECTIONS):
            crowd.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
            statuses.append(get(port))
        app.go_on.set()
        slow.join()
    assert statuses == [200] * (3 * CONNECTIONS + 1)


@pytest.mark.parametrize("said", UNFINISHED)
def test_a_request_has_to_arrive_in_time(said: bytes) -> None:
    with serve(App(), Hasty) as port, socket.create_connection(("127.0.0.1", port), PATIENCE_S) as stranger:
        stranger.sendall(said)
        try:
            while stranger.recv(1000):
                pass
        except ConnectionResetError:
            pass
