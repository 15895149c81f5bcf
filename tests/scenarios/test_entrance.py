"""Who comes in at a listener with TLS: certificates, the listener that a client is sent to, limits before a login."""

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from ottla.errors import ErrorCode
from ottla.security.certificates import Issued
from ottla.server.hellos import Turns
from ottla.testing import LocalBroker
from ottla.wire import frames
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.clients.secured import ALICE, PASSWORD, Certificates, port_of, secured_broker
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient
from tests.scenarios.every_request import ask_until_settled
from tests.scenarios.test_authentication import begin, connect, log_in

LISTENERS = ("SASL_SSL", "SASL_PLAINTEXT", "SSL", "PLAINTEXT")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(certificates: Certificates) -> Iterator[LocalBroker]:
    with secured_broker(certificates, **{"sasl.server.max.receive.size": "20000"}) as broker:
        yield broker


class TlsClient(RawClient):
    """A client over TLS that shows a certificate, or none."""

    def __init__(self, broker: LocalBroker, certificates: Certificates, listener: str, own: Path | None = None) -> None:
        super().__init__("127.0.0.1", port_of(broker, listener))
        context = ssl.create_default_context(cafile=certificates.ca)
        if own is not None:
            context.load_cert_chain(own)
        try:
            self._socket: socket.socket = context.wrap_socket(self._socket, server_hostname="127.0.0.1")
        except OSError:
            self.close()
            raise


def is_let_in(broker: LocalBroker, certificates: Certificates, issued: Issued | None) -> bool:
    """Whether the listener with mutual TLS answers a client with this certificate. With TLS 1.3 a client learns only
    by its first request that its certificate was refused."""
    own = None if issued is None else certificates.write("shown.pem", issued.pem)
    try:
        with TlsClient(broker, certificates, "MUTUAL", own) as client:
            return bool(client.request(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE)
    except (ssl.SSLError, ConnectionError):
        return False


def test_only_certificates_for_clients_are_let_in(
    broker: LocalBroker, certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = Certificates(tmp_path, "another authority")
    last_month = certificates.now - timedelta(days=30)
    assert is_let_in(broker, certificates, certificates.issue("alice", is_server=False))
    assert not is_let_in(broker, certificates, None)
    assert not is_let_in(broker, certificates, foreign.issue("alice", is_server=False))
    assert not is_let_in(broker, certificates, certificates.issue("alice", is_server=False, now=last_month, days=2))
    monkeypatch.setattr(ExtendedKeyUsageOID, "CLIENT_AUTH", ExtendedKeyUsageOID.SERVER_AUTH)
    assert not is_let_in(broker, certificates, certificates.issue("alice", is_server=False))  # it is for servers only


def test_every_connection_shows_its_certificate(broker: LocalBroker, certificates: Certificates) -> None:
    # A session of TLS 1.3 that is resumed would not: the certificate may have expired meanwhile.
    context = ssl.create_default_context(cafile=certificates.ca)
    context.load_cert_chain(certificates.write("alice.pem", certificates.issue("alice", is_server=False).pem))
    address, session = ("127.0.0.1", port_of(broker, "MUTUAL")), None
    with ExitStack() as both:  # the first one stays open: with its end its session would end
        for _ in range(2):
            plain = both.enter_context(socket.create_connection(address, PATIENCE_S))
            client = both.enter_context(context.wrap_socket(plain, server_hostname="127.0.0.1", session=session))
            client.sendall(frames.encode_request(ApiVersionsRequest(), 0, 1, "raw"))
            assert client.recv(4)  # tickets come before the answer
            assert not client.session_reused
            session = client.session


def test_a_certificate_without_a_name_is_nobody(certificates: Certificates) -> None:
    # ssl.principal.mapping.rules without DEFAULT: who has no name is not ANONYMOUS, but does not come in.
    rules = {"listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=(alice).*$/$1/"}
    with secured_broker(certificates, **rules) as broker:
        assert is_let_in(broker, certificates, certificates.issue("alice", is_server=False))
        assert not is_let_in(broker, certificates, certificates.issue("mallory", is_server=False))


def test_handshakes_wait_for_their_turn(
    broker: LocalBroker, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    # None begins outside of its turn, whatever listener it came to.
    turns: list[str] = []
    wait = Turns.wait

    async def count(self: Turns, address: str, accepted: socket.socket) -> None:
        turns.append(address)
        await wait(self, address, accepted)

    monkeypatch.setattr(Turns, "wait", count)
    for listener in ("SSL", "SASL_SSL"):
        TlsClient(broker, certificates, listener).close()
    assert turns == ["127.0.0.1"] * 2


def test_a_handshake_is_used_by_a_login_or_a_request(
    broker: LocalBroker, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever does neither has few handshakes: one that is whole costs the broker as much as one that is broken off.
    used: list[str] = []
    monkeypatch.setattr(Turns, "note_use", lambda self, address: used.append(address))
    alice = certificates.write("alice.pem", certificates.issue("alice", is_server=False).pem)
    for listener, own in (("SSL", None), ("MUTUAL", alice)):
        TlsClient(broker, certificates, listener, own).close()
        with TlsClient(broker, certificates, listener, own) as client:
            assert not used
            for _ in range(3):
                client.request(ApiVersionsRequest(), 0)
            assert used == ["127.0.0.1"]  # by the first request; the others go straight to dispatch
        used.clear()
    for password, uses in (("wrong", 0), (PASSWORD, 1)):
        with TlsClient(broker, certificates, "SASL_SSL") as client:
            client.request(ApiVersionsRequest(), 0)
            assert not used
            log_in(client, password=password)
            assert len(used) == uses
    with TlsClient(broker, certificates, "SASL_SSL") as client:  # version 0 of the handshake, with a bare token
        assert begin(client, version=0) == ErrorCode.NONE
        token = f"\0{ALICE}\0{PASSWORD}".encode()
        client.send(struct.pack(">i", len(token)) + token)
        assert client.read_frame() == b""
        assert len(used) == 2


def test_a_connection_has_one_guess(broker: LocalBroker) -> None:
    # The right password does not help on a connection that has shown a wrong one.
    with connect(broker) as client:
        for password in ("wrong", PASSWORD):
            client.send_request(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            client.send_request(SaslAuthenticateRequest(auth_bytes=f"\0{ALICE}\0{password}".encode()), 2)
        assert client.read_response(SaslHandshakeRequest(), 1).error_code == ErrorCode.NONE
        assert client.read_response(SaslAuthenticateRequest(), 2).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        with pytest.raises(ConnectionError):
            client.read_frame()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("authorizer.class.name", ""),
        ("super.users", "User:mallory"),
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("listener.name.sasl_ssl.plain.sasl.jaas.config", "org.example.Module required;"),
        ("sasl.oauthbearer.jwks.endpoint.url", "file:///etc/passwd"),
        ("delegation.token.secret.key", "known"),
        ("listeners", "PLAINTEXT://0.0.0.0:0"),
        ("principal.builder.class", "org.example.Builder"),
    ],
)
def test_security_is_not_changed_from_afar(broker: LocalBroker, key: str, value: str) -> None:
    # Neither classes nor URLs, secrets or listeners (CVE-2023-25194, CVE-2024-31141, CVE-2025-27817).
    config = AlterableConfig(name=key, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
    with connect(broker, "PLAINTEXT") as client:
        (answer,) = client.request(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "cannot be changed" in answer.error_message


def test_a_large_frame_is_refused_when_it_is_announced(broker: LocalBroker) -> None:
    # Before a byte of it has arrived: what is never read takes no memory.
    with connect(broker) as client:
        client.send(struct.pack(">i", 20_001))
        assert client.is_closed_by_peer()


def test_a_listener_sends_clients_to_itself_only(broker: LocalBroker, certificates: Certificates) -> None:
    # Otherwise a client of SASL_SSL would be told the port of a listener without TLS, and might use it.
    ports = {}
    for listener in LISTENERS:
        client = (
            TlsClient(broker, certificates, listener)
            if listener.endswith("SSL")
            else RawClient("127.0.0.1", port_of(broker, listener))
        )
        with client:
            if listener.startswith("SASL"):
                assert log_in(client, ALICE, PASSWORD).error_code == ErrorCode.NONE
            found = {each.port for each in client.request(MetadataRequest(topics=[]), 12).brokers}
            found |= {each.port for each in client.request(DescribeClusterRequest(), 1).brokers}
            asked = FindCoordinatorRequest(coordinator_keys=["any"], key_type=0)
            found |= {each.port for each in ask_until_settled(client, asked, 4).coordinators}
            ports[listener] = found
    assert ports == {listener: {port_of(broker, listener)} for listener in LISTENERS}


@pytest.mark.parametrize("listener", ("SASL_SSL", "SSL", "MUTUAL"))
def test_a_listener_with_tls_does_not_speak_without(broker: LocalBroker, listener: str) -> None:
    with connect(broker, listener) as client:
        client.send_request(ApiVersionsRequest(), 0)
        client._socket.settimeout(PATIENCE_S)
        found = b""
        while piece := receive(client):
            found += piece
        assert found[:1] in (b"", b"\x15")  # nothing, or an alert of TLS


def receive(client: RawClient) -> bytes:
    try:
        return client._socket.recv(1000)
    except ConnectionError:
        return b""
