"""Attacks on everything that a client reaches before it has authenticated: TLS, request headers, SASL and its tokens.

No attack may come in: `must_stay_out` asks for metadata at the end of each.
"""

import json
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random

from ottla.cli.ports import pick_port
from ottla.security import scram
from ottla.wire import frames
from ottla.wire.message import Message
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.clients.child import HOST, OttlaUp, ottla_up
from tests.clients.secured import ALICE, PASSWORD, PLAIN_USERS, SCRAM_USERS, Certificates
from tests.raw_client import RawClient
from tests.scenarios.fuzz.attacks import ABORT, HELD_S, TIMEOUT_S, Attack, Target, build_valid_frame
from tests.unit.wire.mutations import mutants

SASL, TLS = ("SASL_PLAINTEXT", "SASL_SSL"), ("SASL_SSL", "SSL", "MUTUAL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
TOKEN_BYTES_MAX = 524_288

OTHER_PROTOCOLS = (
    b"PROXY TCP4 10.0.0.1 10.0.0.2 50000 9092\r\n",
    b"PROXY UNKNOWN\r\n",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x0a\0\0\1\x0a\0\0\2\xc3\x50\x23\x84",
    b"GET /metrics HTTP/1.1\r\nHost: broker\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03",
    b"\x80\x2e\x01\x00\x02",
    b"\x00\x00\x00\x11\x60\x0f\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01\x00\x00\x00",
)
"""PROXY versions 1 and 2, HTTP, SSH, the beginning of TLS, SSL 2, and a token of Kerberos without a handshake."""

KEY = {"kty": "OKP", "crv": "Ed25519", "kid": "any", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}


@contextmanager
def secured_up(directory: Path) -> Iterator[tuple[OttlaUp, dict[str, int]]]:
    """A broker with a listener of each kind, all mechanisms, and its ports by listener."""
    certificates = Certificates(directory)
    keys = directory / "keys.json"
    keys.write_text(json.dumps({"keys": [KEY]}))
    ports = {listener: pick_port() for listener in ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL", "MUTUAL")}
    settings = {
        "listeners": ",".join(f"{listener}://{HOST}:{port}" for listener, port in ports.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in ports if name != "MUTUAL")
        + ",MUTUAL:SSL",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_ssl.plain.sasl.jaas.config": PLAIN_USERS,
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
        "initial.scram.credentials": SCRAM_USERS,
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": keys.as_uri(),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.broker()),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        "listener.name.mutual.ssl.client.auth": "required",
        "connection.failed.authentication.delay.ms": "10",
    }
    with ottla_up(directory / "data", *(f"{name}={value}" for name, value in settings.items())) as broker:
        broker.port = ports["PLAINTEXT"]
        yield broker, ports


class Stranger(RawClient):
    """A client of a listener with SASL, over TLS if the listener has it. It trusts anybody."""

    def __init__(self, random: Random, target: Target, listener: str) -> None:
        super().__init__(target.host, target.ports[listener], "stranger", TIMEOUT_S, pick_source(random))
        if listener in TLS:
            try:
                self._socket: socket.socket = trust_anybody().wrap_socket(self._socket)
            except OSError:
                self.close()
                raise


def pick_source(random: Random) -> str:
    """An address of this machine, as Linux has them: one address has few TLS handshakes without a login."""
    return f"127.{random.randrange(1, 255)}.{random.randrange(1, 255)}.{random.randrange(1, 255)}"


def connect(random: Random, target: Target, listener: str) -> socket.socket:
    return socket.create_connection((target.host, target.ports[listener]), TIMEOUT_S, (pick_source(random), 0))


def trust_anybody() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def must_stay_out(stranger: RawClient) -> None:
    """Ask for metadata, which only those who have authenticated get."""
    request = MetadataRequest(topics=[])
    try:
        stranger.send(frames.encode_request(request, 12, 77, "stranger"))
        while True:
            frame = bytes(stranger.read_frame())
            assert frame[:4] != b"\0\0\0\x4d", "a stranger was answered a request for metadata"
    except (ConnectionError, TimeoutError, ssl.SSLError):
        pass


def make_client_hello() -> bytes:
    """The first message of a TLS handshake."""
    outgoing = ssl.MemoryBIO()
    client = trust_anybody().wrap_bio(ssl.MemoryBIO(), outgoing)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def make_token(random: Random, mechanism: str) -> bytes:
    """A token that could be right."""
    if mechanism == "PLAIN":
        return f"\0{ALICE}\0{PASSWORD}".encode()
    if mechanism == "OAUTHBEARER":
        return b"n,,\x01auth=Bearer eyJhbGciOiJFZERTQSIsImtpZCI6ImFueSJ9.eyJzdWIiOiJhbGljZSJ9.AAAA\x01\x01"
    if random.random() < 0.3:
        return b"c=biws,r=abcnonce,p=" + b"A" * 43 + b"="
    return scram.ClientConversation(mechanism, ALICE, "guess", random.randbytes(9)).client_first


def damaged_hellos(random: Random, target: Target) -> None:
    """ClientHellos with damage, cut off, or with random records behind them."""
    hello = make_client_hello()
    for damaged in mutants(random, hello, 5):
        with connect(random, target, random.choice(TLS)) as stranger:
            stranger.sendall(damaged)
            if random.random() < 0.5:
                kind, size = random.randrange(18, 26), random.randrange(300)
                stranger.sendall(struct.pack(">BHH", kind, 0x0303, size) + random.randbytes(size))
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(65536):
                pass


def half_handshakes(random: Random, target: Target) -> None:
    """Handshakes that stop, and are reset."""
    hello = make_client_hello()
    with ExitStack() as crowd:
        for _ in range(random.randrange(1, 40)):
            stranger = crowd.enter_context(connect(random, target, random.choice(TLS)))
            stranger.sendall(hello[: random.choice((0, 1, 5, len(hello) // 2, len(hello)))])
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
        time.sleep(HELD_S)


def other_protocols(random: Random, target: Target) -> None:
    """PROXY, HTTP, SSH, TLS where there is none, Kerberos without a handshake."""
    for listener in (*SASL, "SSL", "MUTUAL"):
        with connect(random, target, listener) as stranger:
            greeting = random.choice(OTHER_PROTOCOLS)
            stranger.sendall(greeting + random.randbytes(random.choice((0, 20, 3000))))
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(65536):
                pass


def damaged_requests(random: Random, target: Target) -> None:
    """Damaged requests of the APIs that are open to everybody, and of all others."""
    mechanism = random.choice(MECHANISMS)
    token = SaslAuthenticateRequest(auth_bytes=make_token(random, mechanism))
    name = ApiVersionsRequest(client_software_name="stranger", client_software_version="1")
    kinds: list[tuple[Message, int]] = [
        (name, random.randrange(5)),
        (SaslHandshakeRequest(mechanism=mechanism), random.randrange(2)),
        (token, random.randrange(3)),
    ]
    for message, version in kinds:
        valid = frames.encode_request(message, version, 1, "stranger")[4:]
        with Stranger(random, target, random.choice(SASL)) as stranger:
            for damaged in mutants(random, valid, 2):
                stranger.send_frame(damaged)
            must_stay_out(stranger)
    with Stranger(random, target, random.choice(SASL)) as stranger:
        stranger.send(build_valid_frame(random, target))
        must_stay_out(stranger)


def wrong_tokens(random: Random, target: Target) -> None:
    """Damaged tokens of every mechanism, in requests and as bare frames, some of them large."""
    mechanism = random.choice(MECHANISMS)
    valid = make_token(random, mechanism)
    for damaged in mutants(random, valid, 3):
        if random.random() < 0.1:
            damaged += bytes([random.choice(b"a,=\x01\x00")]) * random.choice((70_000, TOKEN_BYTES_MAX - 1000))
        if damaged == valid:
            continue
        version = random.randrange(2)
        with Stranger(random, target, random.choice(SASL)) as stranger:
            assert stranger.request(SaslHandshakeRequest(mechanism=mechanism), version).error_code == 0
            for _ in range(random.randrange(1, 3)):
                if version == 0:
                    stranger.send_frame(damaged)
                else:
                    stranger.send_request(SaslAuthenticateRequest(auth_bytes=damaged), random.randrange(3))
            must_stay_out(stranger)


def wrong_order(random: Random, target: Target) -> None:
    """Handshakes, tokens and other requests in any order, all sent at once."""
    with Stranger(random, target, random.choice(SASL)) as stranger:
        for _ in range(random.randrange(2, 8)):
            mechanism = random.choice((*MECHANISMS, "GSSAPI", "", "plain"))
            choice = random.randrange(4)
            if choice == 0:
                stranger.send_request(SaslHandshakeRequest(mechanism=mechanism), random.randrange(2))
            elif choice == 1:
                token = next(mutants(random, make_token(random, "SCRAM-SHA-256"), 1))
                stranger.send_request(SaslAuthenticateRequest(auth_bytes=token), random.randrange(3))
            elif choice == 2:
                stranger.send_request(ApiVersionsRequest(), random.randrange(3))
            else:
                stranger.send(build_valid_frame(random, target))
        must_stay_out(stranger)


STRANGERS: tuple[Attack, ...] = (
    damaged_hellos,
    half_handshakes,
    other_protocols,
    damaged_requests,
    wrong_tokens,
    wrong_order,
)
