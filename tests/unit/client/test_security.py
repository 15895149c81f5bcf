"""Security settings: the names of both clients give the same TLS and the same login, and no secret is shown."""

import json
import ssl
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest

from ottla.client.sasl import Login, SaslError, authenticate
from ottla.client.security import Security, hide_secrets, make_librdkafka_settings, translate_settings
from ottla.client.stores import repair_pem
from ottla.client.tokens import TokenError, TokenSource
from ottla.security.certificates import Issued, issue, make_authority, make_trust_store

NOW = datetime.now(UTC)
PASSWORD = "changeit"
AUTHORITY = make_authority("test authority", NOW)
BROKER = issue(AUTHORITY, "broker", NOW, hosts=["broker.example", "127.0.0.1"])
CLIENT = issue(AUTHORITY, "alice", NOW, is_server=False)
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    (directory / "ca.pem").write_text(AUTHORITY.certificate)
    (directory / "ca.p12").write_bytes(make_trust_store(AUTHORITY.certificate, PASSWORD))
    (directory / "client.pem").write_text(CLIENT.pem)
    (directory / "client.p12").write_bytes(CLIENT.make_pkcs12("alice", PASSWORD, AUTHORITY.certificate))
    (directory / "client.jks").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    return directory


def shake_hands(settings: dict[str, str], host: str = "broker.example", broker: Issued = BROKER) -> str:
    """Does a TLS handshake in memory, with a broker that asks for a certificate. Returns the client's name in it."""
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.maximum_version = ssl.TLSVersion.TLSv1_2  # its handshake ends with the client's certificate checked
    server_context.verify_mode = ssl.CERT_OPTIONAL
    server_context.load_verify_locations(cadata=AUTHORITY.certificate)
    from ottla.client.stores import _as_file

    with _as_file(broker.pem) as path:
        server_context.load_cert_chain(path)
    client_context = Security.of({"security.protocol": "SSL", **settings}).context
    assert client_context is not None
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=host)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    done: set[ssl.SSLObject] = set()
    while len(done) < 2:
        for side in (client, server):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
    peer = server.getpeercert() or {}
    return ",".join(value for part in peer.get("subject", ()) for _, value in part)  # type: ignore[str-unpack]


def spellings(files: Path) -> dict[str, dict[str, str]]:
    ca, pem = str(files / "ca.pem"), str(files / "client.pem")
    one_line = " ".join(CLIENT.certificate.split("\n")).strip()
    return {
        "librdkafka, files": {"ssl.ca.location": ca, "ssl.certificate.location": pem, "ssl.key.location": pem},
        "librdkafka, texts": {
            "ssl.ca.pem": AUTHORITY.certificate,
            "ssl.certificate.pem": CLIENT.certificate,
            "ssl.key.pem": CLIENT.key,
        },
        "librdkafka, PKCS12": {
            "ssl.ca.location": ca,
            "ssl.keystore.location": str(files / "client.p12"),
            "ssl.keystore.password": PASSWORD,
        },
        "Java, PEM files": {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": ca,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": pem,
        },
        "Java, PEM texts on one line": {
            "ssl.truststore.certificates": AUTHORITY.certificate.replace("\n", "\\n"),
            "ssl.keystore.certificate.chain": one_line,
            "ssl.keystore.key": CLIENT.key,
        },
        "Java, PKCS12 with the default type": {
            "ssl.truststore.location": str(files / "ca.p12"),
            "ssl.truststore.password": PASSWORD,
            "ssl.keystore.location": str(files / "client.p12"),
            "ssl.keystore.password": PASSWORD,
        },
    }


def test_every_spelling_of_certificates_proves_who_the_client_is(files: Path) -> None:
    for name, settings in spellings(files).items():
        assert shake_hands(settings) == "alice", name


def test_librdkafka_takes_every_spelling(files: Path) -> None:
    # Only whether librdkafka can load it: it reads certificates when a client is made.
    from confluent_kafka.admin import AdminClient

    for settings in spellings(files).values():
        translated: Any = make_librdkafka_settings({"security.protocol": "SSL", **settings})
        AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **translated})


def test_a_broker_is_checked_unless_told_otherwise() -> None:
    trusting = {"ssl.ca.pem": AUTHORITY.certificate}
    assert shake_hands(trusting, "127.0.0.1") == ""
    with pytest.raises(ssl.SSLCertVerificationError, match=r"[Hh]ostname mismatch"):
        shake_hands(trusting, "other.example")
    for off in ("none", ""):  # librdkafka's way, and Java's
        shake_hands({**trusting, "ssl.endpoint.identification.algorithm": off}, "other.example")
    stranger = {"ssl.ca.pem": make_authority("stranger", NOW).certificate}
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands({**stranger, "ssl.endpoint.identification.algorithm": "none"})
    shake_hands({**stranger, "enable.ssl.certificate.verification": "false"})
    with pytest.raises(ssl.SSLCertVerificationError):  # authorities of this machine
        shake_hands({})
    late = issue(AUTHORITY, "broker", NOW - timedelta(days=9), hosts=["broker.example"], days=1)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shake_hands(trusting, broker=late)


def test_old_versions_of_tls_are_refused() -> None:
    for text, lowest in (("TLSv1.2,TLSv1.3", ssl.TLSVersion.TLSv1_2), ("TLSv1.3", ssl.TLSVersion.TLSv1_3)):
        context = Security.of({"security.protocol": "SSL", "ssl.enabled.protocols": text}).context
        assert context is not None and context.minimum_version == lowest
    default = Security.of({"security.protocol": "SSL"}).context
    assert default is not None and default.minimum_version == ssl.TLSVersion.TLSv1_2
    with pytest.raises(ValueError, match=r"ssl\.enabled\.protocols: 'TLSv1' has neither"):
        Security.of({"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1"})


def test_wrong_stores_are_named_without_their_passwords(files: Path) -> None:
    wrong = {
        "is a JKS file, which only Java reads": {"ssl.keystore.location": str(files / "client.jks")},
        "No such file": {"ssl.truststore.location": str(files / "missing.p12")},
        "ssl.keystore.password right": {
            "ssl.keystore.location": str(files / "client.p12"),
            "ssl.keystore.password": "hunter2",
        },
        "ssl.ca.pem: it has no certificate": {"ssl.ca.pem": "hunter2"},
        "certificate and key": {"ssl.certificate.pem": CLIENT.certificate, "ssl.key.pem": BROKER.key},
    }
    for message, settings in wrong.items():
        with pytest.raises(ValueError, match=message) as caught:
            Security.of({"security.protocol": "ssl", **settings})
        assert "hunter2" not in str(caught.value)


def test_an_encrypted_key_needs_its_password(files: Path) -> None:
    # Without a password OpenSSL would ask at the terminal, and the client would hang.
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    private = load_pem_private_key(CLIENT.key.encode(), None)
    encryption = BestAvailableEncryption(PASSWORD.encode())
    key = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()
    settings = {
        "ssl.ca.pem": AUTHORITY.certificate,
        "ssl.keystore.certificate.chain": CLIENT.certificate,
        "ssl.keystore.key": key,
    }
    assert shake_hands({**settings, "ssl.key.password": PASSWORD}) == "alice"
    for guess in ({}, {"ssl.key.password": "wrong"}):
        with pytest.raises(ValueError, match="certificate and key"):
            Security.of({"security.protocol": "SSL", **settings, **guess})


def test_logins_of_both_clients_mean_the_same() -> None:
    java = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{SCRAM} username=alice password="a \\"b\\" \'c\'";',
    }
    ours = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanisms": "scram-sha-512",
        "sasl.username": "alice",
        "sasl.password": "a \"b\" 'c'",
    }
    assert Security.of(java) == Security.of(ours)
    assert make_librdkafka_settings(java) == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "a \"b\" 'c'",
    }
    token = Security.of({**java, "sasl.jaas.config": f'{SCRAM} username="id" password="hmac" tokenauth="true";'})
    assert token.login == Login("SCRAM-SHA-512", "id", "hmac", is_delegation_token=True)


def test_a_login_without_credentials_is_refused() -> None:
    sasl = {"security.protocol": "SASL_SSL"}
    for settings, message in (
        ({}, r"sasl\.mechanism: it is not set"),
        ({"sasl.mechanism": "GSSAPI"}, r"sasl\.mechanism: 'GSSAPI' is not supported"),
        ({"sasl.mechanism": "PLAIN"}, r"sasl\.username: PLAIN needs it"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "alice"}, r"sasl\.password: PLAIN needs it"),
        ({"sasl.mechanism": "OAUTHBEARER"}, r"sasl\.oauthbearer\.token\.endpoint\.url: OAUTHBEARER needs it"),
    ):
        with pytest.raises(ValueError, match=message):
            Security.of({**sasl, **settings})


def test_secrets_are_in_no_repr_and_hidden_when_shown() -> None:
    secrets = {
        "sasl.password": "hunter2",
        "sasl.jaas.config": f'{SCRAM} username="alice" password="hunter2";',
        "ssl.key.password": "hunter2",
        "ssl.keystore.key": "hunter2",
        "ssl.key.pem": "hunter2",
        "sasl.oauthbearer.client.secret": "hunter2",
        "sasl.oauthbearer.token": "hunter2",
    }
    shown = hide_secrets({**secrets, "ssl.key.location": "/key", "sasl.oauthbearer.token.endpoint.url": "https://x"})
    assert "hunter2" not in str(shown)
    assert (shown["ssl.key.location"], shown["sasl.oauthbearer.token.endpoint.url"]) == ("/key", "https://x")
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "alice", "sasl.password": "hunter2"}
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        assert "hunter2" not in repr(Security.of({**login, "sasl.mechanism": mechanism}))
    bearer = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    assert "hunter2" not in repr(Security.of({**bearer, "sasl.oauthbearer.token": "hunter2"}))


def make_token(seconds: float) -> str:
    claims = json.dumps({"sub": "alice", "exp": (NOW + timedelta(seconds=seconds)).timestamp()})
    return ".".join(urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in ("{}", claims, "signature"))


def hear(said: list[bytes], message: bytes) -> bytes:
    said.append(message)
    return b""


def test_a_token_comes_from_a_file_that_may_change(tmp_path: Path) -> None:
    file = tmp_path / "token"
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
        "sasl.jaas.config": "OAuthBearerLoginModule required extension_traceId=7;",
    }
    login = Security.of(settings).login
    assert login is not None
    for token in (make_token(60), make_token(120)):
        file.write_text(f"{token}\n")
        said: list[bytes] = []
        authenticate(login, "", partial(hear, said))
        assert said == [f"n,,\x01auth=Bearer {token}\x01traceId=7\x01\x01".encode()]
    find_for_librdkafka = make_librdkafka_settings(settings)["oauth_cb"]
    assert callable(find_for_librdkafka)
    assert find_for_librdkafka("")[0] == token
    file.write_text("root:x:0:0\nhunter2")  # some other file of the machine
    with pytest.raises(SaslError) as caught:
        authenticate(login, "", lambda message: b"")
    assert "hunter2" not in str(caught.value) and "has no token" in str(caught.value)


def test_a_broker_that_refuses_a_token_is_answered_as_the_standard_says() -> None:
    login = Login("OAUTHBEARER", tokens=TokenSource(token="t"))
    said: list[bytes] = []

    def refuse(message: bytes) -> bytes:
        said.append(message)
        return b'{"status":"invalid_token"}' if len(said) == 1 else b""

    with pytest.raises(SaslError, match="refused the token"):
        authenticate(login, "", refuse)
    assert said[1] == b"\x01"


class TokenEndpoint(BaseHTTPRequestHandler):
    asked: ClassVar[list[tuple[str, str]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.asked.append((self.headers["Authorization"], body))
        good = "Basic" in self.headers["Authorization"] and "nobody" not in self.path
        self.send_response(200 if good else 401)
        self.end_headers()
        self.wfile.write(json.dumps({"access_token": make_token(3600), "expires_in": 3600}).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    TokenEndpoint.asked.clear()
    with HTTPServer(("127.0.0.1", 0), TokenEndpoint) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_token_comes_from_an_endpoint_and_is_kept(endpoint: str) -> None:
    source = TokenSource(url=f"{endpoint}/token", client_id="a b", client_secret="s:x", scope="kafka")
    assert source.find_token() == source.find_token()
    assert TokenEndpoint.asked == [("Basic YSUyMGI6cyUzQXg=", "grant_type=client_credentials&scope=kafka")]
    refused = TokenSource(url=f"{endpoint}/nobody", client_id="a", client_secret="hunter2")
    with pytest.raises(TokenError, match="HTTP status 401") as caught:
        refused.find_token()
    assert "hunter2" not in str(caught.value)
    names = translate_settings(
        {
            "security.protocol": "SASL_SSL",
            "sasl.jaas.config": 'OAuthBearerLoginModule required clientId="a" clientSecret="s" scope="kafka";',
        }
    )
    assert (names["sasl.oauthbearer.client.id"], names["sasl.oauthbearer.client.secret"]) == ("a", "s")


def test_pem_on_one_line_gets_its_lines_back() -> None:
    assert repair_pem(" ".join(CLIENT.pem.split("\n"))) == CLIENT.pem
    assert repair_pem("nothing") == "nothing"
