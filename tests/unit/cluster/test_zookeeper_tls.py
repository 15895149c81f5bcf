"""TLS to ZooKeeper, through a program that ends the TLS in front of a real server."""

import asyncio
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ottla.cluster.store import Create, StoreUnavailable
from ottla.cluster.zookeeper import ZooKeeper
from ottla.config import BrokerConfig, ConfigError
from ottla.security.tls import build_zookeeper_context
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
        session = await ZooKeeper.of(config).open(lambda state: None)
        await session.claim()
        await session.commit([Create("/node", b"data")])
        assert (await session.get("/node")).data == b"data"
        await session.close()

    with encrypting((name, int(number)), certificates) as port:
        asyncio.run(visit(port, certificates.ca, PATIENCE_MS))
        with pytest.raises(StoreUnavailable):
            asyncio.run(visit(port, Certificates(strangers, "another authority").ca, 1000))


def test_only_the_authorities_of_the_trust_store_are_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Public authorities are not, if there is one: whoever has a certificate of any web site could be ZooKeeper."""
    public = tmp_path / "public"
    public.mkdir()
    monkeypatch.setenv("SSL_CERT_FILE", str(Certificates(public, "a public authority").ca))
    own = Certificates(tmp_path)
    settings = {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.truststore.location": str(own.ca)}
    context = build_zookeeper_context(BrokerConfig.of(settings))
    assert context.get_ca_certs(binary_form=True) == [ssl.PEM_cert_to_DER_cert(own.ca.read_text())]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    del settings["zookeeper.ssl.truststore.location"]
    trusting = build_zookeeper_context(BrokerConfig.of(settings))
    assert trusting.get_ca_certs(binary_form=True) != context.get_ca_certs(binary_form=True)


@pytest.mark.parametrize("name", ["truststore", "keystore"])
def test_stores_that_cannot_be_used(name: str, tmp_path: Path) -> None:
    setting = f"zookeeper.ssl.{name}.location"
    (tmp_path / "wrong.pem").write_text("-----BEGIN nothing")
    for path in (tmp_path / "nowhere.pem", tmp_path / "wrong.pem"):
        with pytest.raises(ConfigError, match=re.escape(setting)):
            ZooKeeper.of(BrokerConfig.of({"zookeeper.ssl.client.enable": "true", setting: str(path)}))
