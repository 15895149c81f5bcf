"""Client settings: names of the Java client and of librdkafka mean the same, and a wrong setting is named."""

import pytest

from ottla.client.settings import ClientSettings

SERVERS = {"bootstrap.servers": "one:9092, [::1]:9093"}
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="se\\"cret";'


def test_both_clients_names_are_understood() -> None:
    java = ClientSettings.of(
        {
            **SERVERS,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": LOGIN,
            "request.timeout.ms": "5000",
        }
    )
    rdkafka = ClientSettings.of(
        {
            "metadata.broker.list": SERVERS["bootstrap.servers"],
            "security.protocol": "sasl_plaintext",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "me",
            "sasl.password": 'se"cret',
            "socket.timeout.ms": "5000",
        }
    )
    assert java == rdkafka
    assert java.bootstrap == (("one", 9092), ("::1", 9093))
    assert java.security.login is not None
    assert (java.security.login.username, java.security.login.password) == ("me", 'se"cret')
    assert java.request_timeout_s == 5


def test_settings_without_meaning_for_this_client_are_ignored() -> None:
    assert ClientSettings.of({**SERVERS, "group.id": "x", "fetch.min.bytes": "1"}) == ClientSettings.of(SERVERS)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "bootstrap.servers: no broker is named"),
        ({"bootstrap.servers": "one"}, "'one' is not host:port"),
        ({"bootstrap.servers": "one:99999"}, "'one:99999' is not host:port"),
        ({**SERVERS, "request.timeout.ms": "soon"}, "request.timeout.ms: 'soon'"),
        ({**SERVERS, "check.crcs": "maybe"}, "check.crcs: 'maybe'"),
        ({**SERVERS, "security.protocol": "SSH"}, "security.protocol: 'ssh' is unknown"),
        ({**SERVERS, "security.protocol": "SSL", "ssl.truststore.location": "x.jks"}, "x.jks: No such file"),
        ({**SERVERS, "security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "sasl.mechanism: 'GSSAPI'"),
    ],
)
def test_an_unsupported_setting_is_named(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        ClientSettings.of(settings)
