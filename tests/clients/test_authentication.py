"""Real clients authenticate: every mechanism with and without TLS, and what they see when it fails."""

import asyncio
import gc
import logging
import time
import warnings
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from aiokafka.helpers import create_ssl_context
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric import rsa
from kafka import KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError

from ottla.testing import LocalBroker
from tests.clients.secured import (
    ALICE,
    MECHANISMS,
    Certificates,
    librdkafka,
    password_of,
    port_of,
    secured_broker,
)
from tests.patience import PATIENCE_MS, PATIENCE_S
from tests.unit.security.test_oauth import RSA_KEY, sign, write_keys

STRANGER = rsa.generate_private_key(65537, 2048)
"""The key of another provider."""

REFUSED = (KafkaError._SSL, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
"""What librdkafka says when a broker refuses its certificate. With TLS 1.3 the client learns it after the handshake."""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(certificates: Certificates) -> Iterator[LocalBroker]:
    with secured_broker(certificates) as broker:
        yield broker


def collect_open_sockets() -> None:
    """Forget what a client has left open. Otherwise the warning comes in whichever test runs then."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def produce(settings: Any) -> None:
    producer = Producer(settings)
    problems: list[Any] = []
    producer.produce("orders", b"value", on_delivery=lambda error, message: problems.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert problems == [None]


def find_error(settings: Any) -> KafkaError:
    """What a client says that cannot connect."""
    errors: list[KafkaError] = []
    producer = Producer({**settings, "error_cb": errors.append})
    producer.produce("orders", b"value")  # which makes it connect
    for _ in range(10 * PATIENCE_S):
        producer.poll(0.1)
        if errors:
            break
    producer.purge()
    return errors[0]


@pytest.mark.parametrize("listener", ["SASL_SSL", "SASL_PLAINTEXT"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_authenticates(
    broker: LocalBroker, certificates: Certificates, listener: str, mechanism: str
) -> None:
    produce(librdkafka(broker, certificates, listener, mechanism))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused(broker: LocalBroker, certificates: Certificates, mechanism: str) -> None:
    for change in ({"sasl.password": "wrong"}, {"sasl.username": "nobody"}):
        error = find_error(librdkafka(broker, certificates, "SASL_SSL", mechanism, **change))
        assert error.code() == KafkaError._AUTHENTICATION, error


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_authenticates(broker: LocalBroker, certificates: Certificates, mechanism: str) -> None:
    async def send(password: str) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=f"127.0.0.1:{port_of(broker, 'SASL_SSL')}",
            security_protocol="SASL_SSL",
            ssl_context=create_ssl_context(cafile=str(certificates.ca)),
            sasl_mechanism=mechanism,
            sasl_plain_username=ALICE,
            sasl_plain_password=password,
        )
        try:
            async with asyncio.timeout(PATIENCE_S):
                await producer.start()
                await producer.send_and_wait("orders", b"value")
        finally:
            await producer.stop()

    asyncio.run(send(password_of(mechanism)))
    with pytest.raises(AioKafkaError):
        asyncio.run(send("wrong"))
    collect_open_sockets()  # a producer that could not log in leaves its connection to the garbage collector


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_authenticates(
    broker: LocalBroker, certificates: Certificates, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1, "kafka")  # its records hold tracebacks, and those the sockets below

    def open_producer(password: str, limit_ms: int) -> KafkaProducer:
        return KafkaProducer(
            bootstrap_servers=f"127.0.0.1:{port_of(broker, 'SASL_SSL')}",
            security_protocol="SASL_SSL",
            ssl_cafile=str(certificates.ca),
            sasl_mechanism=mechanism,
            sasl_plain_username=ALICE,
            sasl_plain_password=password,
            bootstrap_timeout_ms=limit_ms,
        )

    producer = open_producer(password_of(mechanism), PATIENCE_MS)
    assert producer.send("orders", b"value").get(PATIENCE_S).offset >= 0
    producer.close()
    with pytest.raises(KafkaPythonError) as refusal:
        open_producer("wrong", 3000)
    del refusal
    collect_open_sockets()  # a producer that could not connect does not close the sockets that wake it


def test_a_certificate_is_a_name(broker: LocalBroker, certificates: Certificates) -> None:
    # Without a certificate, or with one of another authority, nobody comes in.
    own = certificates.write("alice.pem", certificates.issue("Alice", is_server=False).pem)
    mine = {"ssl.key.location": str(own), "ssl.certificate.location": str(own)}
    produce(librdkafka(broker, certificates, "MUTUAL", **mine))
    assert find_error(librdkafka(broker, certificates, "MUTUAL")).code() in REFUSED


def test_foreign_certificates_are_refused(broker: LocalBroker, certificates: Certificates, tmp_path: Path) -> None:
    foreign = Certificates(tmp_path, "another authority")
    expired = certificates.issue("alice", is_server=False, now=certificates.now - timedelta(days=30), days=2)
    for issued in (foreign.issue("alice", is_server=False), expired):
        path = certificates.write("refused.pem", issued.pem)
        stolen = {"ssl.key.location": str(path), "ssl.certificate.location": str(path)}
        error = find_error(librdkafka(broker, certificates, "MUTUAL", **stolen))
        assert error.code() in REFUSED, error
    error = find_error(librdkafka(broker, certificates, "SSL", **{"ssl.ca.location": str(foreign.ca)}))
    assert error.code() in REFUSED, error
    assert "certificate" in error.str(), error


@pytest.mark.parametrize("kind", ["expired", "another host"])
def test_a_client_refuses_a_broker_with_a_bad_certificate(certificates: Certificates, kind: str) -> None:
    if kind == "expired":
        issued = certificates.issue("broker", hosts=["127.0.0.1"], now=certificates.now - timedelta(days=30), days=2)
    else:
        issued = certificates.issue("broker", hosts=["elsewhere.example"])
    path = certificates.write("bad.pem", issued.pem)
    with secured_broker(certificates, **{"ssl.keystore.location": str(path)}) as broker:
        error = find_error(librdkafka(broker, certificates, "SSL"))
    assert error.code() in REFUSED, error
    assert "certificate" in error.str(), error


def test_a_certificate_for_a_name_is_enough_for_a_listener_on_that_name(certificates: Certificates) -> None:
    # Without advertised.listeners clients are sent to the name, which the certificate has, and not to its address.
    settings = {
        "listeners": "SSL://localhost:0",
        "listener.security.protocol.map": "SSL:SSL",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.location": str(certificates.broker("named", hosts=("localhost",))),
    }
    with secured_broker(certificates, **settings) as broker:
        client = librdkafka(broker, certificates, "SSL", **{"bootstrap.servers": f"localhost:{broker.port}"})
        produce(client)
        known: Any
        (known,) = AdminClient(dict(client)).list_topics(timeout=PATIENCE_S).brokers.values()
        assert (known.host, known.port) == ("localhost", broker.port)


def test_librdkafka_shows_a_token(certificates: Certificates, tmp_path: Path) -> None:
    url = write_keys(tmp_path / "keys.json")
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.allowed.urls": url,
    }
    now = int(time.time())
    with secured_broker(certificates, **settings) as broker:
        for subject, key in (("alice", RSA_KEY), ("alice", STRANGER)):
            token = sign(key, sub=subject, iat=now, exp=now + 600)
            client = dict(librdkafka(broker, certificates, "SASL_SSL", "PLAIN"))
            for name in ("sasl.username", "sasl.password"):
                del client[name]
            client |= {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda config, t=token: (t, now + 600)}
            if key is RSA_KEY:
                produce(client)
            else:
                assert find_error(client).code() == KafkaError._AUTHENTICATION
