"""Encrypted listeners, and users with passwords."""

import asyncio
import http.client
import json
import socket
import ssl
from base64 import b64encode
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ottla.cli.command_error import CommandError
from ottla.cli.connect.asking import ask
from ottla.client.http_connections import CONNECTIONS_MAX
from ottla.connect.errors import BadConfig
from ottla.connect.rest.handshakes import HANDSHAKES_MAX, TlsListener
from ottla.connect.rest.listeners import read_rest_options
from ottla.security.certificates import Issued, issue, make_authority
from tests.patience import PATIENCE_S
from tests.unit.connect.rest.conftest import serve

EXTENSION = "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def authority() -> Issued:
    return make_authority("tests", NOW)


@pytest.fixture(scope="module")
def store(authority: Issued, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PEM file with the key and the certificate of this machine."""
    made = tmp_path_factory.mktemp("tls") / "server.pem"
    made.write_text(issue(authority, "localhost", NOW, hosts=["localhost", "127.0.0.1"]).pem)
    return made


def make_users(directory: Path, users: str = "ottla=hush:hush\n") -> dict[str, str]:
    """The properties of a worker that asks for passwords."""
    (directory / "users.properties").write_text(users)
    (directory / "jaas.conf").write_text(
        "// the users\nKafkaConnect {\n  org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule"
        f' required\n  file="{directory / "users.properties"}";\n}};\n'
    )
    return {"rest.extension.classes": EXTENSION, "java.security.auth.login.config": str(directory / "jaas.conf")}


def get(port: int, context: ssl.SSLContext) -> int:
    connection = http.client.HTTPSConnection("localhost", port, timeout=PATIENCE_S, context=context)
    try:
        connection.request("GET", "/connectors")
        answer = connection.getresponse()
        assert json.loads(answer.read()) == []
        return answer.status
    finally:
        connection.close()


@pytest.mark.parametrize("prefix", ["listeners.https.", ""])
def test_an_encrypted_listener(authority: Issued, store: Path, prefix: str) -> None:
    """Its certificate is checked by the client, who must trust the authority."""
    properties = {
        "listeners": "https://127.0.0.1:0",
        f"{prefix}ssl.keystore.location": str(store),
        f"{prefix}ssl.keystore.type": "PEM",
    }
    with serve(properties) as client:
        trusting = ssl.create_default_context(cadata=authority.certificate)
        assert get(client.port, trusting) == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            get(client.port, ssl.create_default_context())


def test_texts_instead_of_files(authority: Issued) -> None:
    """PEM texts in properties, and clients that need a certificate themselves."""
    server = issue(authority, "localhost", NOW, hosts=["localhost"])
    properties = {
        "listeners": "https://127.0.0.1:0",
        "listeners.https.ssl.keystore.certificate.chain": server.certificate,
        "listeners.https.ssl.keystore.key": server.key,
        "listeners.https.ssl.truststore.certificates": authority.certificate,
        "listeners.https.ssl.client.auth": "required",
    }
    with serve(properties) as client:
        context = ssl.create_default_context(cadata=authority.certificate)
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # with 1.3 the refusal comes after the handshake
        with pytest.raises((ssl.SSLError, ConnectionError)):
            get(client.port, context)


def test_plain_and_encrypted_listeners_at_once(authority: Issued, store: Path) -> None:
    properties = {
        "listeners": "http://127.0.0.1:0,https://127.0.0.1:0",
        "listeners.https.ssl.keystore.location": str(store),
    }
    with serve(properties) as client:
        assert client.send("GET", "/connectors")[0] == 200
        assert get(client.ports[1], ssl.create_default_context(cadata=authority.certificate)) == 200


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({}, "ssl.keystore.location: a server needs a certificate"),
        ({"listeners.https.ssl.keystore.location": "/nowhere"}, "listeners.https.ssl.keystore.location: /nowhere"),
        ({"ssl.keystore.certificate.chain": "nonsense", "ssl.keystore.key": "hush"}, "ssl.certificate.pem"),
        ({"listeners": "ftp://x:1"}, "write http://HOST:PORT or https://HOST:PORT"),
    ],
)
def test_certificates_that_cannot_be_used(more: dict[str, str], reason: str) -> None:
    with pytest.raises(BadConfig) as failure:
        read_rest_options({"listeners": "https://127.0.0.1:0", **more})
    assert reason in str(failure.value)
    assert "hush" not in str(failure.value)


def test_users(tmp_path: Path) -> None:
    """Everything needs a password, and the command line takes it from the URL."""
    with serve(make_users(tmp_path)) as client:
        for path in ("/", "/connectors", "/health", "/nowhere"):
            status, document, headers = client.send("GET", path)
            assert (status, document["message"]) == (401, "User cannot access the resource.")
            assert headers["www-authenticate"].startswith("Basic")
        for wrong in ("ottla:hush", "nobody:hush:hush", ":", "ottla"):
            login = f"Basic {b64encode(wrong.encode()).decode()}"
            assert client.send("GET", "/connectors", Authorization=login)[0] == 401
        for wrong in ("Basic ?", "Bearer b3R0bGE=", "Basic /w=="):
            assert client.send("GET", "/connectors", Authorization=wrong)[0] == 401
        login = f"Basic {b64encode(b'ottla:hush:hush').decode()}"
        assert client.send("GET", "/connectors", Authorization=login)[:2] == (200, [])
        assert ask(f"http://ottla:hush%3Ahush@127.0.0.1:{client.port}", "GET", "/connectors") == []
        with pytest.raises(CommandError, match="User cannot access the resource") as failure:
            ask(f"http://ottla:wrong@127.0.0.1:{client.port}", "GET", "/connectors")
        assert "wrong" not in str(failure.value)


def test_the_jaas_file_of_kafka_opts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = make_users(tmp_path)
    place = properties.pop("java.security.auth.login.config")
    monkeypatch.setenv("KAFKA_OPTS", f"-Xmx1g -Djava.security.auth.login.config={place}")
    options = read_rest_options(properties)
    assert options.users is not None
    assert options.users.passwords == {"ottla": "hush:hush"}
    assert "hush" not in repr(options)


@pytest.mark.parametrize("users", ["", "ottla=\n"])
def test_a_file_without_users_lets_nobody_in(tmp_path: Path, users: str) -> None:
    """Kafka Connect would let everybody in."""
    with pytest.raises(BadConfig, match="has no users"):
        read_rest_options(make_users(tmp_path, users))


def test_other_extensions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"com\.example\.Audit: extensions are Java classes"):
        read_rest_options({"rest.extension.classes": "com.example.Audit"})
    with pytest.raises(BadConfig, match=r"set java\.security\.auth\.login\.config"):
        read_rest_options({"rest.extension.classes": EXTENSION})
    (tmp_path / "jaas.conf").write_text("KafkaServer { x required; };")
    with pytest.raises(BadConfig, match="no section KafkaConnect"):
        read_rest_options(
            {"rest.extension.classes": EXTENSION, "java.security.auth.login.config": str(tmp_path / "jaas.conf")}
        )


def test_connections_without_a_request_keep_nobody_out(tmp_path: Path) -> None:
    """Also not those of strangers, who have no password."""
    with serve(make_users(tmp_path)) as client, ExitStack() as crowd:
        for _ in range(CONNECTIONS_MAX + 10):
            crowd.enter_context(socket.create_connection(("127.0.0.1", client.port), PATIENCE_S))
        login = b64encode(b"ottla:hush:hush").decode()
        assert client.send("GET", "/connectors", Authorization=f"Basic {login}")[0] == 200


def listen_with_time(time_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long encrypted listeners that are made from now on wait for a handshake."""
    monkeypatch.setattr(TlsListener.__init__, "__defaults__", (time_s,))


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01"])
def test_handshakes_that_do_not_end_keep_nobody_out(
    authority: Issued, store: Path, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one address the oldest are given up for new ones. Another address does not lose its handshake."""
    listen_with_time(2 * PATIENCE_S, monkeypatch)
    properties = {"listeners": "https://127.0.0.1:0", "listeners.https.ssl.keystore.location": str(store)}
    trusting = ssl.create_default_context(cadata=authority.certificate)
    with serve(properties) as client, ExitStack() as crowd:

        def come(address: str) -> socket.socket:
            made = socket.create_connection(("127.0.0.1", client.port), PATIENCE_S, (address, 0))
            crowd.enter_context(made).sendall(said)
            return made

        other, *strangers = [come("127.0.0.2"), *(come("127.0.0.1") for _ in range(HANDSHAKES_MAX + 10))]
        assert get(client.port, trusting) == 200
        for each in strangers[:10]:
            assert is_closed(each)
        if not said:
            crowd.enter_context(trusting.wrap_socket(other, server_hostname="localhost"))


def is_closed(stranger: socket.socket) -> bool:
    try:
        return stranger.recv(100) == b""
    except ConnectionResetError:
        return True


def test_a_handshake_has_to_end_in_time(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listen_with_time(0.05, monkeypatch)
    properties = {"listeners": "https://127.0.0.1:0", "listeners.https.ssl.keystore.location": str(store)}
    with serve(properties) as client, socket.create_connection(("127.0.0.1", client.port), PATIENCE_S) as stranger:
        assert is_closed(stranger)


def test_a_connection_that_arrives_just_before_the_end_is_closed() -> None:
    """Its handshake has not taken its first step, so there is nothing yet that would close the connection."""

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as bound:
            listener = TlsListener(bound, asyncio.Protocol, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            with socket.create_connection(bound.getsockname(), PATIENCE_S) as client:
                listener._accept()
                listener.close()
                await listener.wait_closed()
                await asyncio.sleep(0)
                assert is_closed(client)

    asyncio.run(main())


def test_what_a_config_provider_returns_is_in_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not as the name of a setting: those of a transform have its name in them."""
    monkeypatch.setenv("OTTLA_TEST_SECRET", "hush-hush")
    properties = {
        "config.providers": "env",
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    }
    with serve(properties) as client:
        for setting in ("transforms", "predicates", "topic", "tasks.max", "key.converter", "errors.tolerance"):
            config = {"connector.class": "FileStreamSource", "topic": "t", setting: "${env:OTTLA_TEST_SECRET}"}
            found = client.send("PUT", "/connector-plugins/FileStreamSource/config/validate", {"name": "c", **config})
            created = client.send("POST", "/connectors", {"name": setting, "config": config})
            assert "hush" not in json.dumps([found, created, client.send("GET", "/connectors?expand=info")])


def test_a_number_that_is_too_long() -> None:
    with serve({}) as client:
        body = b'{"offsets":[{"partition":{"a":' + b"9" * 5000 + b'},"offset":null}]}'
        status, document, _ = client.send("PATCH", "/connectors/c/offsets", raw=body, Content_Type="application/json")
        assert (status, document["message"]) == (500, "The request body has a number that is too long")
