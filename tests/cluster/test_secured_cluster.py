"""Three brokers that talk to each other over SASL_SSL, and clients over the same listener."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import ottla.testing
from ottla.replication.peer_login import PeerLogin
from ottla.security.jaas import OAUTH_MODULE
from ottla.testing import LocalCluster
from tests.clients.confluent import take_messages
from tests.clients.secured import ALICE, BROKER, BROKER_PASSWORD, SCRAM_USERS, Certificates, password_of
from tests.clients.secured import PLAIN_USERS as USERS
from tests.oauth_provider import OAuthProvider, run_provider
from tests.patience import PATIENCE_S


@pytest.fixture(scope="module", params=["SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"])
def mechanism(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def provider(certificates: Certificates) -> Iterator[OAuthProvider]:
    with run_provider(certificates) as provider:
        provider.clients[BROKER] = BROKER_PASSWORD
        yield provider


def settings_of(certificates: Certificates, provider: OAuthProvider, mechanism: str) -> dict[str, Any]:
    scram = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{BROKER}" password="{BROKER_PASSWORD}";'
    )
    trusted = f'ssl.truststore.type="PEM" ssl.truststore.location="{certificates.ca}"'
    return {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": mechanism,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": f"{OAUTH_MODULE} required {trusted};",
        "sasl.oauthbearer.allowed.urls": f"{provider.keys_url},{provider.token_url}",
        "sasl.oauthbearer.jwks.endpoint.url": provider.keys_url,
        "sasl.oauthbearer.token.endpoint.url": provider.token_url,
        "sasl.oauthbearer.client.credentials.client.id": BROKER,
        "sasl.oauthbearer.client.credentials.client.secret": BROKER_PASSWORD,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": USERS,
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": scram,
        "connections.max.reauth.ms": "2000",
        "initial.scram.credentials": SCRAM_USERS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.broker()),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
    }


@pytest.fixture(scope="module")
def cluster(certificates: Certificates, provider: OAuthProvider, mechanism: str) -> Iterator[LocalCluster]:
    with ottla.testing.cluster(brokers=3, **settings_of(certificates, provider, mechanism)) as cluster:
        yield cluster


def test_records_are_replicated(
    cluster: LocalCluster, certificates: Certificates, provider: OAuthProvider, mechanism: str
) -> None:
    # acks=all with three in-sync replicas waits for followers, which authenticate at the leader, and go on after their
    # logins had to be renewed. The killed leader's records are read from another broker.
    client: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap,
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": mechanism,
        "ssl.ca.location": str(certificates.ca),
    }
    if mechanism == "OAUTHBEARER":
        client["oauth_cb"] = lambda _: (provider.sign(ALICE), time.time() + provider.life_s)
    else:
        client |= {"sasl.username": ALICE, "sasl.password": password_of(mechanism)}
    admin = AdminClient(client)
    topic = NewTopic("orders", 1, 3, config={"min.insync.replicas": "3"})
    admin.create_topics([topic])["orders"].result(PATIENCE_S)
    producer = Producer({**client, "acks": "all"})
    sent: list[bytes] = []
    logins = count_logins(cluster)
    while count_logins(cluster) < logins + 3 or len(sent) < 20:
        sent.append(b"%d" % len(sent))
        producer.produce("orders", sent[-1])
        assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({**client, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
    try:
        assert [message.value() for message in take_messages(consumer, len(sent))] == sent
    finally:
        consumer.close()


def count_logins(cluster: LocalCluster) -> int:
    return sum(broker.inspect(lambda each: find_login(each).logins) for broker in cluster.brokers)


def find_login(broker: Any) -> PeerLogin:
    login = broker.participation._login
    assert isinstance(login, PeerLogin)
    return login
