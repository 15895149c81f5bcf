"""The server over TLS: records go through the transport, which encrypts them, and never from file to socket.

Skipped where there is no openssl to make a certificate.
"""

import asyncio
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from random import Random
from threading import Thread

import psutil
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.broker.broker import Broker
from ottla.broker.call import Answer
from ottla.config import BrokerConfig, ConfigError
from ottla.security.listener import ListenerSecurity
from ottla.server import Server, ServerSettings
from ottla.server.entrance import Entrance
from ottla.wire.messages.api_versions import ApiVersionsRequest
from tests.clients.confluent import take_messages
from tests.needs import require_program
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient
from tests.unit.server.serving import offload, on_both_loops, run, until

STOP_S = 2.0 * PATIENCE_S
"""Longer than the server waits for a client that does not answer the end of TLS."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file with a key and a self-signed certificate."""
    require_program("openssl")
    path = tmp_path_factory.mktemp("tls") / "broker.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-subj",
            "/CN=127.0.0.1",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-days",
            "2",
            "-keyout",
            str(path),
            "-out",
            str(path.with_suffix(".crt")),
        ],
        check=True,
        capture_output=True,
    )
    path.write_text(path.read_text() + path.with_suffix(".crt").read_text())
    return path


@pytest.fixture(scope="module")
def port(certificate: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a broker in a thread, whose only listener speaks TLS."""
    config = config_of(certificate)
    data = str(tmp_path_factory.mktemp("tls") / "data")
    loop, started, ending = asyncio.new_event_loop(), Future[int](), Future[None]()

    async def serve() -> None:
        broker = Broker(config, data, machine_code=False)
        await broker.start()
        started.set_result(broker.ports["SSL"])
        await asyncio.wrap_future(ending)
        await broker.stop(STOP_S)

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(serve())
        except BaseException as error:
            started.set_exception(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    yield started.result(PATIENCE_S)
    ending.set_result(None)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def config_of(certificate: Path) -> BrokerConfig:
    return BrokerConfig.of(
        {
            "listeners": "SSL://127.0.0.1:0",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificate),
        }
    )


def settings(port: int, certificate: Path) -> dict[str, str | int | float | bool]:
    return {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": "ssl",
        "ssl.ca.location": str(certificate.with_suffix(".crt")),
    }


def test_records_make_a_round_trip(port: int, certificate: Path, seed: int) -> None:
    # The answers have megabytes of records, more than any buffer of the transport. They arrive in order, byte for byte.
    random = Random(seed)
    sent = [random.randbytes(50_000) for _ in range(200)]
    producer = Producer(settings(port, certificate))
    for value in sent:
        producer.produce("orders", value, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer(settings(port, certificate) | {"group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
        assert [message.value() for message in take_messages(consumer, len(sent))] == sent
    finally:
        consumer.close()


def test_the_connection_of_a_client_without_tls_is_closed(port: int, certificate: Path) -> None:
    # The request is not a TLS handshake, so its connection is closed. Other clients are served.
    with RawClient("127.0.0.1", port, timeout_s=PATIENCE_S) as plain:
        plain.send_request(ApiVersionsRequest(), 0)
        assert plain.is_closed_by_peer()
    admin = AdminClient(settings(port, certificate))
    assert admin.list_topics(timeout=PATIENCE_S).brokers


@on_both_loops
def test_a_client_that_left_unnoticed_does_not_delay_a_stop(loop: str, certificate: Path) -> None:
    # The second request waits behind the first one, so the server reads nothing more, not even the end of the
    # connection.
    config, trusting = config_of(certificate), ssl.create_default_context(cafile=certificate)
    gate = asyncio.Event()

    async def slowly() -> Answer:
        await gate.wait()
        return [b"done"]

    def come_and_go(port: int) -> ssl.SSLSocket:
        client = trusting.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="127.0.0.1")
        client.sendall(struct.pack(">i5s", 5, b"first") + struct.pack(">i6s", 6, b"second"))
        client.shutdown(socket.SHUT_WR)
        return client

    async def main() -> None:
        server = Server(lambda client, frame: slowly(), ServerSettings(), offload)
        security = ListenerSecurity(config.endpoints.bound[0], config, None)
        server.secure("SSL", Entrance(security))
        port = await server.start("127.0.0.1", 0, "SSL")
        with await asyncio.to_thread(come_and_go, port):
            await until(lambda: server.traffic.tasks and (is_half_closed(port) or not server.connections))
            stopping = asyncio.create_task(server.stop(STOP_S))
            await asyncio.sleep(0)
            gate.set()
            async with asyncio.timeout(PATIENCE_S):
                await stopping

    run(loop, main())


@on_both_loops
def test_a_client_is_told_why_it_is_refused(loop: str, certificate: Path) -> None:
    # It has to show a certificate and shows none: the alert says so, in both versions of TLS.
    config = config_of(certificate).with_changes(
        {"ssl.client.auth": "required", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(certificate)}
    )
    found: list[str] = []

    def find_alert(port: int, version: ssl.TLSVersion) -> str:
        trusting = ssl.create_default_context(cafile=certificate)
        trusting.maximum_version = version
        with (
            socket.create_connection(("127.0.0.1", port), PATIENCE_S) as plain,
            pytest.raises(ssl.SSLError) as refusal,
            trusting.wrap_socket(plain, server_hostname="127.0.0.1") as client,
        ):
            client.recv(1)
        return str(refusal.value.reason)

    async def answer() -> Answer:
        return [b""]

    async def main() -> None:
        server = Server(lambda client, frame: answer(), ServerSettings(), offload)
        server.secure("SSL", Entrance(ListenerSecurity(config.endpoints.bound[0], config, None)))
        port = await server.start("127.0.0.1", 0, "SSL")
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            found.append(await asyncio.to_thread(find_alert, port, version))
        await server.stop(STOP_S)

    run(loop, main())
    assert "ALERT" in found[0]
    assert found[1] == "TLSV13_ALERT_CERTIFICATE_REQUIRED"


def is_half_closed(port: int) -> bool:
    """Whether the other side of a connection to this port has ended it."""
    mine = [each for each in psutil.Process().net_connections("tcp") if each.laddr and each.laddr.port == port]
    return any(each.status == psutil.CONN_CLOSE_WAIT for each in mine)


def test_a_listener_with_tls_and_without_a_certificate_is_refused(tmp_path: Path) -> None:
    # A broker that silently does not encrypt would be worse than none.
    config = BrokerConfig.of({"listeners": "SSL://127.0.0.1:0"})
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location"):
        asyncio.run(Broker(config, str(tmp_path / "data")).start())
