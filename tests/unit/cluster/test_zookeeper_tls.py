"""TLS to ZooKeeper, through a program that ends the TLS in front of a real server."""

import asyncio
import gc
import socket
import ssl
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ottla.broker.member import find_zookeeper
from ottla.cluster.store import Create, StoreUnavailable
from ottla.config import BrokerConfig
from tests.clients.secured import Certificates
from tests.patience import PATIENCE_MS


@contextmanager
def encrypting(target: tuple[str, int], certificates: Certificates) -> Iterator[int]:
    """A port that speaks TLS, asks for a certificate, and hands on what it gets. Everything ends with the block."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.broker("zookeeper"))
    context.load_verify_locations(certificates.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    listening = socket.create_server(("127.0.0.1", 0))
    opened: list[socket.socket] = [listening]
    threads: list[threading.Thread] = []

    def copy(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                plain, _ = listening.accept()
                opened.append(plain)
                try:
                    secured = context.wrap_socket(plain, server_side=True)
                except OSError:
                    continue
                server = socket.create_connection(target)
                opened.extend((secured, server))
                for pair in ((secured, server), (server, secured)):
                    threads.append(threading.Thread(target=copy, args=pair))
                    threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield int(listening.getsockname()[1])
    finally:
        for each in list(opened):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in (accepting, *threads):
            thread.join()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_broker_speaks_tls_with_zookeeper(zookeeper: str, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    strangers = tmp_path / "strangers"
    strangers.mkdir()
    host, _, path = zookeeper.partition("/")
    name, _, number = host.rpartition(":")
    own = certificates.write("own.pem", certificates.issue("broker", is_server=False).pem)

    async def visit(port: int, trusted: Path, timeout_ms: int) -> None:
        config = BrokerConfig.of(
            {
                "zookeeper.connect": f"127.0.0.1:{port}/{path}",
                "zookeeper.connection.timeout.ms": str(timeout_ms),
                "zookeeper.ssl.client.enable": "true",
                "zookeeper.ssl.keystore.location": str(own),
                "zookeeper.ssl.keystore.type": "PEM",
                "zookeeper.ssl.truststore.location": str(trusted),
                "zookeeper.ssl.truststore.type": "PEM",
            }
        )
        session = await find_zookeeper(config).open(lambda state: None)
        await session.commit([Create("/node", b"data")])
        assert (await session.get("/node")).data == b"data"
        await session.close()

    with encrypting((name, int(number)), certificates) as port:
        asyncio.run(visit(port, certificates.ca, PATIENCE_MS))
        with pytest.raises(StoreUnavailable):
            asyncio.run(visit(port, Certificates(strangers, "another authority").ca, 1000))
    with warnings.catch_warnings():  # kazoo does not close the socket of a handshake that fails
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
