"""The process of a state server: `python -m ottla.streams.state.server --directory DIRECTORY`.

Its standard input begins with one line of JSON: {"settings": client settings of the cluster, "token": text}, so that no
secret is on a command line. The server ends when its input does, and so with the process that has started it; with
--silence-s it ends when nobody has asked it anything for so long. Its output is one line of JSON with the address that
it listens on. `starting.py` does all of this.
"""

import argparse
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from hmac import compare_digest
from threading import Event, Lock, Thread
from typing import Final

import orjson

from ottla.client.backoff import now_ms
from ottla.client.client import Client
from ottla.client.settings import ClientSettings
from ottla.pipeline.pandas_later import load_pandas_later
from ottla.streams.errors import StreamsError
from ottla.streams.state import protocol
from ottla.streams.state.connections import FrameSocket
from ottla.streams.state.protocol import ProtocolError, encode_frame
from ottla.streams.state.service import StateService
from ottla.streams.state.tables import MEMORY_MB, TableMemory
from ottla.streams.state.tailing import ClientPool

CONNECTIONS_MAX: Final = 1000
HELLO_S: Final = 10.0
"""How long a client may take to show its token."""
CLOSE_S: Final = 10.0

log = logging.getLogger(__name__)


class StateServer:
    """Listens on a port and serves each connection with a thread."""

    def __init__(self, service: StateService, token: str, host: str, port: int) -> None:
        self.stopping = Event()
        self._service = service
        self._token = token
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=128)
        self._connections: set[FrameSocket] = set()
        self._lock = Lock()
        self.heard_s = time.monotonic()
        """When somebody last asked something."""

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def start(self) -> None:
        Thread(target=self._accept, name="accept", daemon=True).start()

    def close(self) -> None:
        """Ends all connections, and closes the tables."""
        self.stopping.set()
        self._listener.close()
        with self._lock:
            for connection in self._connections:
                connection.shut_down()
        self._service.close(CLOSE_S)

    def _accept(self) -> None:
        while not self.stopping.is_set():
            try:
                connected, _ = self._listener.accept()
            except OSError:
                if not self.stopping.is_set():
                    log.exception("connections cannot be accepted")
                    self.stopping.wait(1)
                continue
            with self._lock:
                is_full = len(self._connections) >= CONNECTIONS_MAX
            if is_full:
                connected.close()
            else:
                Thread(target=self._serve, args=(FrameSocket(connected),), daemon=True).start()

    def _serve(self, connection: FrameSocket) -> None:
        with self._lock:
            self._connections.add(connection)
        try:
            if self._admit(connection):
                while not self.stopping.is_set():
                    self._answer(connection)
        except OSError:
            pass  # the client is gone
        except ProtocolError as error:  # where the next request begins is not known any more
            self._refuse(connection, str(error))
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _admit(self, connection: FrameSocket) -> bool:
        """Whether the client has shown that it knows the token."""
        connection.set_timeout(HELLO_S)
        challenge = secrets.token_bytes(protocol.CHALLENGE_BYTES)
        connection.send(encode_frame(protocol.OK, {}, challenge))
        hello = connection.receive(protocol.HELLO_BYTES_MAX)
        if hello.kind != protocol.HELLO or not compare_digest(hello.payload, protocol.prove(self._token, challenge)):
            self._refuse(connection, "the token is wrong")
            return False
        connection.send(encode_frame(protocol.OK, {}))
        connection.set_timeout(None)
        return True

    def _answer(self, connection: FrameSocket) -> None:
        request = connection.receive(protocol.FRAME_BYTES_MAX)
        self.heard_s = time.monotonic()
        if request.kind == protocol.STOP:
            self._service.close(CLOSE_S)
            connection.send(encode_frame(protocol.OK, {}))
            self.stopping.set()
        else:
            connection.send(self._service.handle(request))

    def _refuse(self, connection: FrameSocket, message: str) -> None:
        with suppress(OSError):  # the client is gone
            connection.send(encode_frame(protocol.REFUSED, {"message": message}))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="ottla.streams.state.server", description="Keeps the state of an app.")
    parser.add_argument("--directory", required=True, help="where the tables are")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--port", type=int, default=0, help="0 for a free one")
    parser.add_argument("--memory-mb", type=int, default=MEMORY_MB, help="the cache of all tables together")
    parser.add_argument("--silence-s", type=float, help="end after so long without requests, not with the input")
    options = parser.parse_args(arguments)
    load_pandas_later()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s state server: %(message)s")
    try:
        given = orjson.loads(sys.stdin.readline())
        settings, token = given["settings"], given["token"]
        ClientSettings.of(settings)
        if not isinstance(token, str) or not token:
            raise ValueError("the token is empty")
        clients = ClientPool(lambda: Client(settings))
        memory = TableMemory(options.memory_mb)
        service = StateService(options.directory, memory, clients, now_ms=now_ms, seconds=time.monotonic)
        server = StateServer(service, token, options.host, options.port)
    except (ValueError, KeyError, TypeError, OSError, StreamsError) as error:
        sys.exit(f"ottla.streams.state.server: cannot start: {error}")
    signal.signal(signal.SIGTERM, lambda *_: server.stopping.set())
    signal.signal(signal.SIGINT, lambda *_: server.stopping.set())
    server.start()
    sys.stdout.write(orjson.dumps({"address": server.address, "pid": os.getpid()}).decode() + "\n")
    sys.stdout.flush()
    if options.silence_s is None:
        Thread(target=_wait_for_parent, args=(server.stopping,), daemon=True).start()
        server.stopping.wait()
    else:
        while not server.stopping.wait(1) and time.monotonic() - server.heard_s < options.silence_s:
            continue
    server.close()
    os._exit(
        0
    )  # threads may be waiting for a broker that is away; their tables are as after a crash, which is harmless


def _wait_for_parent(stopping: Event) -> None:
    while sys.stdin.read(4096):
        pass
    stopping.set()


if __name__ == "__main__":
    main()
