"""Floods of connections, handshakes and logins at a real broker, while another client goes on working.

The broker runs in a process of its own, so that its memory can be read. Nothing here depends on time: the other client
must get every answer, however long it takes. `make bench-security` measures how long.
"""

import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from ottla.errors import ErrorCode
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.clients.child import HOST, OttlaUp, ottla_up
from tests.clients.secured import ALICE, PASSWORD, PLAIN_USERS, Certificates
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient
from tests.samples import sample_size
from tests.scenarios.client_calls import append, create_topic
from tests.scenarios.memory import read_peak_kilobytes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process as Linux has it")

ROUNDS = sample_size(3, 25)
CROWD = 100
GROWTH_KB_MAX = 60_000


class TlsClient(RawClient):
    """A client over TLS, which trusts anybody."""

    def __init__(self, port: int) -> None:
        super().__init__(HOST, port)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self._socket: socket.socket = context.wrap_socket(self._socket)

    def start_login(self, password: str) -> None:
        assert self.request(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        self.send_request(SaslAuthenticateRequest(auth_bytes=f"\0{ALICE}\0{password}".encode()), 2)

    def finish_login(self) -> int:
        code: int = self.read_response(SaslAuthenticateRequest(), 2).error_code
        return code


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaUp]:
    directory = tmp_path_factory.mktemp("floods")
    certificates = Certificates(directory)
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": PLAIN_USERS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.broker()),
    }
    with ottla_up(directory / "data", *(f"{name}={value}" for name, value in settings.items())) as running:
        yield running


def open_and_say_nothing(broker: OttlaUp) -> None:
    """Connections that never begin their handshake, or break it off."""
    with ExitStack() as crowd:
        for number in range(CROWD):
            silent = crowd.enter_context(socket.create_connection((HOST, broker.port), PATIENCE_S))
            with suppress(OSError):
                silent.sendall((b"", b"\x16\x03", b"GET / HTTP/1.1\r\n\r\n", bytes(500))[number % 4])


def shake_hands_and_send_rubbish(broker: OttlaUp) -> None:
    """Requests before authentication: large sizes, other APIs, half a frame."""
    for rubbish in (
        b"\x7f\xff\xff\xff",
        b"\x00\x09\x00\x00",
        b"\x00\x00\x00\x08\x00\x03\x00\x00\x00\x00\x00\x01",
        b"x",
    ):
        with ExitStack() as crowd:
            for _ in range(CROWD // 20):
                client = crowd.enter_context(TlsClient(broker.port))
                client.send(rubbish)


def guess_passwords(broker: OttlaUp) -> None:
    with ExitStack() as crowd:
        clients = [crowd.enter_context(TlsClient(broker.port)) for _ in range(CROWD // 5)]
        for client in clients:
            client.start_login("wrong")
        assert {client.finish_login() for client in clients} == {ErrorCode.SASL_AUTHENTICATION_FAILED}


@pytest.mark.parametrize("flood", [open_and_say_nothing, shake_hands_and_send_rubbish, guess_passwords])
def test_a_flood_takes_no_memory_and_no_answer_from_others(flood: Callable[[OttlaUp], None], broker: OttlaUp) -> None:
    with TlsClient(broker.port) as good:
        good.start_login(PASSWORD)
        assert good.finish_login() == 0
        topic = flood.__name__
        assert create_topic(good, topic).error_code == 0
        flood(broker)  # what is loaded once does not count
        before = read_peak_kilobytes(broker.process.pid)
        for number in range(ROUNDS):
            flood(broker)
            assert append(good, topic, b"still here") == number
        assert read_peak_kilobytes(broker.process.pid) - before < GROWTH_KB_MAX
    assert broker.process.poll() is None
