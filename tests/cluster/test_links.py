"""Links deliver what is sent, hold back what is sent in a direction that is cut, and refuse when they are closed."""

import gc
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.links import HEADER, HOST, Links
from tests.patience import PATIENCE_S

SHORT_S = 0.3


@contextmanager
def echo_server() -> Iterator[int]:
    """Sends back what it receives; the port."""
    listening = socket.create_server((HOST, 0))

    def serve(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(1000):
                connection.sendall(data)

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(PATIENCE_S)


@contextmanager
def open_links() -> Iterator[Links]:
    links = Links()
    try:
        yield links
    finally:
        links.close()


def receive(connection: socket.socket, length: int, timeout_s: float = PATIENCE_S) -> bytes:
    connection.settimeout(timeout_s)
    found = b""
    while len(found) < length:
        found += connection.recv(length - len(found))
    return found


@pytest.mark.parametrize("direction", [("broker-1", "zookeeper"), ("zookeeper", "broker-1")])
def test_a_direction_that_is_cut_holds_back_what_is_sent(direction: tuple[str, str]) -> None:
    # And delivers it when it is healed.
    with echo_server() as port, open_links() as links:
        entrance = links.add("zookeeper", port, "broker-1")
        entrance.open()
        with socket.create_connection((HOST, entrance.port)) as connection:
            connection.sendall(b"before")
            assert receive(connection, 6) == b"before"
            links.cut(*direction)
            links.cut("broker-2", "zookeeper")  # somebody else's
            connection.sendall(b"during")
            with pytest.raises(TimeoutError):
                receive(connection, 6, SHORT_S)
            links.heal(*direction)
            assert receive(connection, 6) == b"during"


def test_the_source_is_the_client_id_of_the_first_request() -> None:
    # One entrance for two brokers, and only one of them is cut off.
    def request(client_id: bytes) -> bytes:
        body = HEADER.pack(10 + len(client_id), 18, 0, 1, len(client_id)) + client_id
        return body

    with echo_server() as port, open_links() as links:
        entrance = links.add("broker-3", port)
        entrance.open()
        links.cut("broker-1", "broker-3")
        with (
            socket.create_connection((HOST, entrance.port)) as cut_off,
            socket.create_connection((HOST, entrance.port)) as other,
        ):
            for connection, name in ((cut_off, b"broker-1"), (other, b"broker-2")):
                connection.sendall(request(name))
            assert receive(other, len(request(b"broker-2"))) == request(b"broker-2")
            with pytest.raises(TimeoutError):
                receive(cut_off, 1, SHORT_S)


def test_a_closed_entrance_refuses_and_keeps_its_port() -> None:
    # As the port of a process that was killed; it can be opened again.
    with echo_server() as port, open_links() as links:
        entrance = links.add("broker-1", port, "broker-2")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, entrance.port), PATIENCE_S)
        for _ in range(2):
            entrance.open()
            with socket.create_connection((HOST, entrance.port)) as connection:
                connection.sendall(struct.pack(">i", 7))
                assert receive(connection, 4) == struct.pack(">i", 7)
            entrance.close()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((HOST, entrance.port), PATIENCE_S)


def test_an_entrance_that_closes_forgets_no_connection() -> None:
    """A connection that has just been accepted is served or closed: an unclosed socket would be a warning."""
    with echo_server() as port, open_links() as links:
        entrance = links.add("b", port, "a")
        for _ in range(300):
            entrance.open()
            connections = [socket.create_connection((HOST, entrance.port)) for _ in range(3)]
            entrance.close()
            for connection in connections:
                connection.close()
    gc.collect()
