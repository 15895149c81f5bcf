"""Floods from processes of their own, so that they do not take the time of the client that is measured.

Each function floods one listener until the event is set, and counts what it has done. Some also flood a process that is
no broker (`Sinks`): that shows what the flood takes from the client because they share a machine.
"""

import asyncio
import multiprocessing
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.peers.broker_process import HOST
from ottla.wire import frames
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest

CROWD = 30
HELD_S = 0.05
RESET = struct.pack("ii", 1, 0)
Flood = Callable[[int, Any, Any], None]


def trust_anybody() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def make_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        trust_anybody().wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


def open_crowd(port: int, crowd: ExitStack, first: bytes) -> list[socket.socket]:
    opened = []
    for _ in range(CROWD):
        with suppress(OSError):
            stranger = crowd.enter_context(socket.create_connection((HOST, port), 30))
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            stranger.sendall(first)
            opened.append(stranger)
    return opened


def flood_with_halves(first: bytes, port: int, over: Any, count: Any) -> None:
    """Connections that say the beginning of something, and are reset a moment later."""
    while not over.is_set():
        with ExitStack() as crowd:
            count.value += len(open_crowd(port, crowd, first))
            time.sleep(HELD_S)


def flood_with_connections(port: int, over: Any, count: Any) -> None:
    flood_with_halves(b"\x00\x00\x10\x00\x00\x12", port, over, count)


def flood_with_hellos(port: int, over: Any, count: Any) -> None:
    """TLS handshakes that end after the first message, which costs the broker a signature and the client nothing."""
    flood_with_halves(make_hello(), port, over, count)


def flood_with_handshakes(port: int, over: Any, count: Any) -> None:
    """Whole TLS handshakes."""
    context = trust_anybody()
    while not over.is_set():
        with suppress(OSError), context.wrap_socket(socket.create_connection((HOST, port), 30)):
            count.value += 1


def flood_with_passwords(port: int, over: Any, count: Any) -> None:
    """Logins with a wrong password, many at a time: each is answered late."""
    handshake = frames.encode_request(SaslHandshakeRequest(mechanism="PLAIN"), 1, 1, "flood")
    login = frames.encode_request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2, 2, "flood")
    while not over.is_set():
        with ExitStack() as crowd:
            for stranger in open_crowd(port, crowd, handshake + login):
                with suppress(OSError):
                    while stranger.recv(1000):
                        pass
                    count.value += 1


FLOODS: dict[str, tuple[Flood, str]] = {
    "connections": (flood_with_connections, "sasl_port"),
    "TLS hellos": (flood_with_hellos, "ssl_port"),
    "TLS hellos to no broker": (flood_with_hellos, "sink_port"),
    "TLS handshakes": (flood_with_handshakes, "ssl_port"),
    "TLS handshakes to no broker": (flood_with_handshakes, "tls_sink_port"),
    "wrong passwords": (flood_with_passwords, "sasl_port"),
}
"""Name -> the flood, and the port that it is for: of a listener of the broker (`Secured`), or of `Sinks`."""


class Sinks(NamedTuple):
    """Ports of a process that accepts connections and does nothing with them. One has TLS."""

    sink_port: int
    tls_sink_port: int


def serve_sinks(sockets: list[socket.socket], store: Path) -> None:
    async def serve() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(store)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)  # clients that leave in their handshake
        for bound, tls in zip(sockets, (None, context), strict=True):
            await loop.create_server(asyncio.Protocol, sock=bound, ssl=tls)
        await asyncio.Event().wait()

    asyncio.run(serve())


@contextmanager
def run_sinks(store: Path) -> Iterator[Sinks]:
    """`store`: the broker's certificate and key."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server((HOST, 0))) for _ in Sinks._fields]
        process = multiprocessing.get_context("spawn").Process(target=serve_sinks, args=(sockets, store))
        process.start()
        try:
            yield Sinks(*(each.getsockname()[1] for each in sockets))
        finally:
            process.kill()
            process.join()


@contextmanager
def flooding(flood: Flood, port: int) -> Iterator[Any]:
    """Flood from another process. Returns the count of what it has done, once it has begun."""
    context = multiprocessing.get_context("spawn")
    over, count = context.Event(), context.Value("i", 0)
    process = context.Process(target=flood, args=(port, over, count))
    process.start()
    try:
        while not count.value and process.is_alive():
            time.sleep(0.01)
        yield count
    finally:
        over.set()
        process.join(30)
        process.kill()
        process.join()
