"""What a client may do before and after it has authenticated, request by request: the attacks that must fail."""

import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import ottla.testing
from ottla.errors import ErrorCode
from ottla.security import scram
from ottla.server.entrance import AUTHENTICATION_S
from ottla.testing import LocalBroker
from ottla.wire import frames
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.clients.secured import (
    ALICE,
    BROKER,
    BROKER_PASSWORD,
    MECHANISMS,
    PASSWORD,
    SCRAM_PASSWORD,
    Certificates,
    port_of,
    secured_broker,
    settings_of,
)
from tests.raw_client import RawClient

PLAIN_TOKEN = f"\0{ALICE}\0{PASSWORD}".encode()
METADATA = MetadataRequest(topics=None)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(certificates: Certificates) -> Iterator[LocalBroker]:
    with secured_broker(certificates, **{"sasl.server.max.receive.size": "20000"}) as broker:
        yield broker


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[RawClient]:
    with connect(broker) as client:
        yield client


def connect(broker: LocalBroker, listener: str = "SASL_PLAINTEXT") -> RawClient:
    return RawClient("127.0.0.1", port_of(broker, listener))


def begin(client: RawClient, mechanism: str = "PLAIN", version: int = 1) -> int:
    return int(client.request(SaslHandshakeRequest(mechanism=mechanism), version).error_code)


def send_token(client: RawClient, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
    answer = client.request(SaslAuthenticateRequest(auth_bytes=token), version)
    assert isinstance(answer, SaslAuthenticateResponse)
    return answer


def log_in(client: RawClient, name: str = ALICE, password: str = PASSWORD) -> SaslAuthenticateResponse:
    assert begin(client) == ErrorCode.NONE
    return send_token(client, f"\0{name}\0{password}".encode())


def log_in_with_scram(
    client: RawClient, name: str, password: str, mechanism: str = "SCRAM-SHA-256"
) -> SaslAuthenticateResponse:
    assert begin(client, mechanism) == ErrorCode.NONE
    conversation = scram.ClientConversation(mechanism, name, password, b"nonce")
    first = send_token(client, conversation.client_first)
    assert first.error_code == ErrorCode.NONE
    last = send_token(client, conversation.answer(bytes(first.auth_bytes)))
    if last.error_code == ErrorCode.NONE:
        conversation.check(bytes(last.auth_bytes))
    return last


# Before authentication


def test_no_other_api_is_answered_before_authentication(broker: LocalBroker) -> None:
    # Every key that exists and some that do not, in version 0 and in a version that nobody knows.
    keys = [api.key for api in frames.apis() if api.key not in (17, 18)]
    with ExitStack() as stack:
        clients = []
        for key in (*keys, 1000, -1):
            for version in (0, 99):
                client = stack.enter_context(connect(broker))
                client.send_frame(struct.pack(">hhih", key, version, 1, -1) + bytes(20))
                clients.append(client)
        for client in clients:
            with pytest.raises(ConnectionError):
                client.read_frame()


def test_requests_behind_the_authentication_wait_for_it(client: RawClient) -> None:
    # A pipelined request is handled after the authentication, never before it.
    client.send_request(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    client.send_request(SaslAuthenticateRequest(auth_bytes=PLAIN_TOKEN), 2)
    client.send_request(METADATA, 12)
    assert client.read_response(SaslHandshakeRequest(), 1).error_code == ErrorCode.NONE
    assert client.read_response(SaslAuthenticateRequest(), 2).error_code == ErrorCode.NONE
    assert client.read_response(METADATA, 12).brokers


def test_a_failed_authentication_ends_the_connection(client: RawClient) -> None:
    client.send_request(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    client.send_request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
    client.send_request(METADATA, 12)
    began = time.monotonic()
    assert client.read_response(SaslHandshakeRequest(), 1).error_code == ErrorCode.NONE
    answer = client.read_response(SaslAuthenticateRequest(), 2)
    assert time.monotonic() - began >= 0.09  # connection.failed.authentication.delay.ms
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with pytest.raises(ConnectionError):
        client.read_frame()


def test_a_large_frame_is_refused_before_authentication_only(broker: LocalBroker) -> None:
    for size in (20_001, 300_000, 100_000_000):
        with connect(broker) as client:
            client.send(struct.pack(">ihhi", size, 18, 0, 1) + bytes(min(size - 8, 100_000)))
            assert client.is_closed_by_peer()
    with connect(broker) as client:
        log_in(client)
        assert client.request(MetadataRequest(topics=[], allow_auto_topic_creation=False), 12).brokers
        client.send_request(ApiVersionsRequest(client_software_name="x" * 20_000, client_software_version="1"), 3)
        assert client.read_response(ApiVersionsRequest(), 3).error_code == ErrorCode.NONE


def test_a_mechanism_that_is_not_enabled_is_refused(client: RawClient) -> None:
    answer = client.request(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == list(MECHANISMS)
    assert client.is_closed_by_peer()


def test_a_token_without_a_handshake_is_refused(client: RawClient) -> None:
    client.send_request(SaslAuthenticateRequest(auth_bytes=PLAIN_TOKEN), 2)
    with pytest.raises(ConnectionError):
        client.read_frame()


def test_a_listener_without_sasl_says_so(broker: LocalBroker) -> None:
    with connect(broker, "PLAINTEXT") as client:
        assert begin(client) == ErrorCode.ILLEGAL_SASL_STATE
        assert send_token(client, PLAIN_TOKEN).error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_a_client_that_does_not_authenticate_is_closed(certificates: Certificates) -> None:
    with (
        secured_broker(certificates) as broker,
        connect(broker) as silent,
        connect(broker) as slow,
        connect(broker) as right,
    ):
        assert begin(slow, "SCRAM-SHA-256") == ErrorCode.NONE
        assert log_in(right).error_code == ErrorCode.NONE
        broker.advance(seconds=AUTHENTICATION_S + 1)
        assert silent.is_closed_by_peer()
        assert slow.is_closed_by_peer()
        assert right.request(METADATA, 12).brokers


# Raw tokens


def test_tokens_may_be_bare_frames(broker: LocalBroker) -> None:
    with connect(broker) as client:
        assert begin(client, version=0) == ErrorCode.NONE
        client.send_frame(PLAIN_TOKEN)
        assert client.read_frame() == b""
        assert client.request(METADATA, 12).brokers
    with connect(broker) as client:
        assert begin(client, "SCRAM-SHA-512", version=0) == ErrorCode.NONE
        conversation = scram.ClientConversation("SCRAM-SHA-512", ALICE, SCRAM_PASSWORD, b"nonce")
        client.send_frame(conversation.client_first)
        client.send_frame(conversation.answer(bytes(client.read_frame())))
        conversation.check(bytes(client.read_frame()))
        assert client.request(METADATA, 12).brokers


@pytest.mark.parametrize("token", [b"", b"\0alice\0wrong", struct.pack(">hhih", 3, 12, 1, -1) + bytes(20)])
def test_a_wrong_bare_token_ends_the_connection(broker: LocalBroker, token: bytes) -> None:
    with connect(broker) as client:
        assert begin(client, version=0) == ErrorCode.NONE
        client.send_frame(token)
        with pytest.raises(ConnectionError):
            client.read_frame()


# Users


def test_an_unknown_user_gets_the_answer_of_a_wrong_password(broker: LocalBroker) -> None:
    # The first answer has a salt and iterations for both, the same whenever it is asked, and the last one the same
    # error, so that nobody learns which users exist.
    firsts, lasts = [], []
    for name in (ALICE, "nobody", "nobody"):
        with connect(broker) as client:
            begin(client, "SCRAM-SHA-256")
            first = bytes(send_token(client, f"n,,n={name},r=abc".encode()).auth_bytes)
            firsts.append(first.split(b",", 1)[1])
        with connect(broker) as client:
            last = log_in_with_scram(client, name, "wrong")
            lasts.append((last.error_code, last.error_message))
    assert firsts[1] == firsts[2]
    assert [len(each) for each in firsts] == [len(firsts[0])] * 3
    assert firsts[0].split(b"i=")[1] == firsts[1].split(b"i=")[1]
    assert lasts[0] == lasts[1]
    assert lasts[0][0] == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_credential_of_one_mechanism_is_none_of_another(broker: LocalBroker) -> None:
    with connect(broker) as client:
        assert log_in(client, ALICE, SCRAM_PASSWORD).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with connect(broker) as client:
        assert log_in_with_scram(client, ALICE, PASSWORD).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


# Authentication again


def test_a_client_may_authenticate_again_as_itself_only(certificates: Certificates) -> None:
    with secured_broker(certificates, **{"connections.max.reauth.ms": "60000"}) as broker:
        with connect(broker) as client:
            assert log_in(client).session_lifetime_ms == 60_000
            broker.advance(seconds=50)
            assert log_in(client).error_code == ErrorCode.NONE
            broker.advance(seconds=50)
            assert client.request(METADATA, 12).brokers
            answer = log_in(client, BROKER, BROKER_PASSWORD)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert client.is_closed_by_peer()
        with connect(broker) as client:
            log_in(client)
            broker.advance(seconds=2)
            assert begin(client, "SCRAM-SHA-256") == ErrorCode.ILLEGAL_SASL_STATE
            assert client.is_closed_by_peer()
        with connect(broker) as client:
            log_in(client)
            broker.advance(seconds=61)
            client.send_request(METADATA, 12)
            with pytest.raises(ConnectionError):
                client.read_frame()
        with connect(broker) as client:  # one that comes back too late may still authenticate
            log_in(client)
            broker.advance(seconds=61)
            assert log_in(client).error_code == ErrorCode.NONE
            assert client.request(METADATA, 12).brokers


# TLS


def shake_hands(broker: LocalBroker, certificates: Certificates, listener: str = "SSL") -> bytes:
    """The certificate of the broker."""
    context = ssl.create_default_context(cafile=certificates.ca)
    address = ("127.0.0.1", port_of(broker, listener))
    with (
        socket.create_connection(address) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        return secured.getpeercert(True) or b""


def test_old_versions_of_tls_are_refused(broker: LocalBroker, certificates: Certificates) -> None:
    context = ssl.create_default_context(cafile=certificates.ca)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("127.0.0.1", port_of(broker, "SSL"))) as plain, pytest.raises(OSError):
        context.wrap_socket(plain, server_hostname="127.0.0.1")


def test_silent_handshakes_hold_up_nobody(broker: LocalBroker, certificates: Certificates) -> None:
    # More connections than there may be handshakes: the oldest ones give way.
    from ottla.server.handshakes import HANDSHAKES_MAX

    address = ("127.0.0.1", port_of(broker, "SSL"))
    silent = [socket.create_connection(address) for _ in range(HANDSHAKES_MAX + 20)]
    try:
        assert shake_hands(broker, certificates)
        silent[0].settimeout(60)
        assert silent[0].recv(1) == b""
    finally:
        for each in silent:
            each.close()


def test_a_certificate_file_is_loaded_when_it_changes(certificates: Certificates) -> None:
    path = certificates.broker("renewed")
    with secured_broker(certificates, **{"ssl.keystore.location": str(path)}) as broker:
        before = shake_hands(broker, certificates)
        path.write_text("nonsense")
        broker.advance(seconds=6)
        assert shake_hands(broker, certificates) == before
        path.write_text(certificates.issue("renewed", hosts=["127.0.0.1"]).pem)
        broker.advance(seconds=6)
        after = shake_hands(broker, certificates)
        assert after != before
        assert shake_hands(broker, certificates, "SSL") == after


def test_certificates_are_changed_by_settings(certificates: Certificates) -> None:
    with secured_broker(certificates) as broker, connect(broker, "PLAINTEXT") as client:
        before = shake_hands(broker, certificates)

        def alter(key: str, value: str) -> tuple[int, str | None]:
            config = AlterableConfig(name=key, config_operation=0, value=value)
            resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
            answer = client.request(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0]
            return answer.error_code, answer.error_message

        key = "listener.name.ssl.ssl.keystore.location"
        assert alter("ssl.keystore.location", "/x")[0] == ErrorCode.INVALID_REQUEST
        assert alter(key, "/does/not/exist")[0] == ErrorCode.INVALID_REQUEST
        other = certificates.broker("another name")
        code, message = alter(key, str(other))
        assert (code, "ssl.allow.dn.changes" in str(message)) == (ErrorCode.INVALID_REQUEST, True)
        assert shake_hands(broker, certificates) == before
        renewed = certificates.write("new.pem", certificates.issue("broker", hosts=["127.0.0.1", "localhost"]).pem)
        assert alter(key, str(renewed)) == (ErrorCode.NONE, None)
        assert shake_hands(broker, certificates) != before
        assert shake_hands(broker, certificates, "SASL_SSL") == before
        # A login module cannot be named from afar: CVE-2023-25194.
        attack = 'com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://x";'
        assert alter("listener.name.ssl.plain.sasl.jaas.config", attack)[0] == ErrorCode.INVALID_REQUEST


def test_a_key_that_is_set_at_run_time_is_encrypted(certificates: Certificates) -> None:
    # In force at once and after a restart, never described, and in no file of the broker.
    issued = certificates.issue("broker", hosts=["127.0.0.1", "localhost"])
    prefix = "listener.name.ssl.ssl.keystore"
    new = {f"{prefix}.type": "PEM", f"{prefix}.key": issued.key, f"{prefix}.certificate.chain": issued.certificate}
    first = certificates.issue("broker", hosts=["127.0.0.1", "localhost"])
    settings: dict[str, Any] = {
        **settings_of(certificates),
        "ssl.keystore.key": first.key,
        "ssl.keystore.certificate.chain": first.certificate,
    }
    del settings["ssl.keystore.location"]

    def alter(client: RawClient) -> tuple[int, str | None]:
        configs = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in new.items()]
        resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
        answer = client.request(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0]
        return answer.error_code, answer.error_message

    with ottla.testing.broker(**settings) as broker, connect(broker, "PLAINTEXT") as client:
        code, message = alter(client)
        assert (code, "password.encoder.secret" in str(message)) == (ErrorCode.INVALID_REQUEST, True)
    settings["password.encoder.secret"] = "key of keys"
    with ottla.testing.broker(**settings) as broker:
        before = shake_hands(broker, certificates, "SSL")
        with connect(broker, "PLAINTEXT") as client:
            assert alter(client) == (ErrorCode.NONE, None)
            asked = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=list(new))
            (described,) = client.request(DescribeConfigsRequest(resources=[asked]), 4).results
            values = {each.name: each.value for each in described.configs}
            assert values == {**dict.fromkeys(new), f"{prefix}.type": "PEM"}
        after = shake_hands(broker, certificates, "SSL")
        assert after != before
        broker.restart()
        assert shake_hands(broker, certificates, "SSL") == after
        broker.stop()
        lines = [line for line in issued.key.splitlines() if not line.startswith("---")]
        for path in Path(broker.directory).rglob("*"):
            assert path.is_dir() or not any(line.encode() in path.read_bytes() for line in lines), path


def test_no_secret_is_described(broker: LocalBroker) -> None:
    # CVE-2019-12399.
    with connect(broker, "PLAINTEXT") as client:
        resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
        client.send_request(request, 4)
        frame = bytes(client.read_frame())
    for secret in (BROKER_PASSWORD, SCRAM_PASSWORD, "a secret"):
        assert secret.encode() not in frame
    answer: Any = frames.decode_response(frames.find_api_of(request).response, 4, frame)[1]
    values = {each.name: each.value for each in answer.results[0].configs}
    assert values["listener.name.sasl_ssl.plain.sasl.jaas.config"] is None
    assert values["listener.name.mutual.ssl.client.auth"] == "required"
