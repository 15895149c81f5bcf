"""`ottla.testing.broker(security=...)`: real clients connect with the settings it hands out, and nobody else does."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

import ottla
from ottla.client.client import Client
from ottla.client.connection import NotAuthenticated, Unreachable
from ottla.testing import LocalBroker
from tests.patience import PATIENCE_S

QUIET: dict[str, Any] = {"log_level": 0, "error_cb": lambda error: None}


def list_topics(settings: dict[str, str]) -> list[str]:
    return sorted(AdminClient({**settings, **QUIET}).list_topics(timeout=PATIENCE_S).topics)


@pytest.mark.parametrize(
    ("security", "mechanism"),
    [("ssl", "PLAIN"), ("sasl_plaintext", "SCRAM-SHA-512"), ("sasl_ssl", "PLAIN"), ("sasl_ssl", "SCRAM-SHA-256")],
)
def test_clients_connect_with_the_settings_that_are_handed_out(security: str, mechanism: str) -> None:
    with ottla.testing.broker(security=security, mechanism=mechanism) as broker:
        broker.create_topic("orders")
        assert list_topics(broker.client_settings) == ["orders"]
        for settings in (broker.client_settings, broker.java_settings):  # both spellings, with Ottla's own client
            assert ottla.read("orders", bootstrap=broker.bootstrap, settings=settings).to_arrow().num_rows == 0
        if mechanism != "PLAIN":
            assert list_topics(broker.create_user("alice")) == ["orders"]
        assert broker.security is not None
        password = broker.client_settings.get("sasl.password", broker.security.find_password("admin"))
        assert password not in repr(broker) and password not in repr(Client(broker.client_settings).settings)


@pytest.fixture(scope="module")
def secured() -> Any:
    with ottla.testing.broker(security="sasl_ssl") as broker:
        yield broker


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sasl.password": "wrong"}, "[Aa]uthentication"),
        ({"sasl.username": "nobody"}, "[Aa]uthentication"),
        ({"security.protocol": "plaintext"}, "does the broker expect TLS"),
        ({"security.protocol": "ssl"}, "."),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token": "x"}, "does not offer OAUTHBEARER"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_a_wrong_login_is_refused_with_a_reason(secured: LocalBroker, change: dict[str, str], said: str) -> None:
    client = Client({**secured.client_settings, "default.api.timeout.ms": "500", **change})
    with pytest.raises(Unreachable, match=said) as caught:
        client.count_partitions(pattern=".*")
    assert secured.client_settings["sasl.password"] not in str(caught.value)
    client.close()


def test_a_client_that_trusts_another_authority_does_not_connect(secured: LocalBroker) -> None:
    untrusting = {key: value for key, value in secured.client_settings.items() if key != "ssl.ca.location"}
    with pytest.raises(NotAuthenticated, match="certificate"):
        Client(untrusting).count_partitions(pattern=".*")
    with pytest.raises(KafkaException) as caught:
        AdminClient({**untrusting, **QUIET}).list_topics(timeout=2)
    assert caught.value.args[0].code() in (KafkaError._TRANSPORT, KafkaError._SSL, KafkaError._ALL_BROKERS_DOWN)


@pytest.mark.ottla(security="sasl_ssl")
def test_the_fixture_takes_it(ottla_broker: LocalBroker) -> None:
    assert ottla_broker.client_settings["security.protocol"] == "sasl_ssl"
    assert list_topics(ottla_broker.client_settings) == []


def test_wrong_choices_are_named() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"security": "tls"}, "security='tls'"),
        ({"security": "ssl", "mechanism": "X"}, "mechanism"),
    ]
    for given, said in wrong:
        with pytest.raises(ValueError, match=said), ottla.testing.broker(**given):
            pass
