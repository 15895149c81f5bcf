"""Listeners: four text settings become typed addresses, or a refusal."""

import pytest

from ottla.config import BrokerConfig, ConfigError, Listener


def test_by_default_plaintext_on_all_interfaces() -> None:
    """This is Kafka's default. Nothing is advertised, so clients get the address that they connected to."""
    endpoints = BrokerConfig.of({}).endpoints
    assert endpoints.bound == (Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    assert endpoints.advertised is None
    assert endpoints.inter_broker == endpoints.bound[0]


@pytest.mark.parametrize(
    ("given", "bound", "advertised"),
    [
        ({"port": "9093"}, ("", 9093), None),
        ({"host.name": "10.0.0.1"}, ("10.0.0.1", 9092), None),
        ({"host.name": "::1", "port": "9093"}, ("::1", 9093), None),
        ({"port": "9093", "advertised.host.name": "far"}, ("", 9093), ("far", 9093)),
        ({"host.name": "near", "advertised.port": "443"}, ("near", 9092), ("near", 443)),
        ({"advertised.host.name": "far"}, ("", 9092), ("far", 9092)),
        ({"listeners": "PLAINTEXT://:1", "port": "2"}, ("", 1), None),
    ],
)
def test_addresses_of_the_zookeeper_era(
    given: dict[str, str], bound: tuple[str, int], advertised: tuple[str, int] | None
) -> None:
    """Before Kafka 3.0 host and port could have settings of their own."""
    endpoints = BrokerConfig.of(given).endpoints
    assert endpoints.bound == (Listener("PLAINTEXT", *bound, "PLAINTEXT"),)
    assert endpoints.advertised == (advertised and (Listener("PLAINTEXT", *advertised, "PLAINTEXT"),))


def test_named_listeners() -> None:
    """Names map to protocols without regard to case, IPv6 addresses have brackets, and the inter-broker listener has a
    name."""
    endpoints = BrokerConfig.of(
        {
            "listeners": "inside://[::1]:19092, OUTSIDE://0.0.0.0:9092",
            "advertised.listeners": "OUTSIDE://broker.example.com:443",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,outside:SASL_SSL",
            "inter.broker.listener.name": "INSIDE",
        }
    ).endpoints
    assert endpoints.bound == (
        Listener("INSIDE", "::1", 19092, "PLAINTEXT"),
        Listener("OUTSIDE", "0.0.0.0", 9092, "SASL_SSL"),
    )
    assert endpoints.advertised == (Listener("OUTSIDE", "broker.example.com", 443, "SASL_SSL"),)
    assert endpoints.inter_broker.name == "INSIDE"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"listeners": "localhost:9092"}, "listeners: 'localhost:9092' is not <name>://<host>:<port>"),
        ({"listeners": "X://:1"}, "listeners: listener X is missing in listener.security.protocol.map"),
        (
            {"listeners": "PLAINTEXT://:70000"},
            "listeners: port 70000 of 'PLAINTEXT://:70000' is not between 0 and 65535",
        ),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "listeners: listener PLAINTEXT is named twice"),
        ({"listeners": "PLAINTEXT://:1,SSL://:1"}, "listeners: PLAINTEXT and SSL both use port 1"),
        ({"listeners": ""}, "listeners: there must be at least one that is not a controller listener"),
        ({"advertised.listeners": "SSL://a:1"}, "advertised.listeners: SSL is not in listeners"),
        (
            {"advertised.listeners": "PLAINTEXT://0.0.0.0:1"},
            "advertised.listeners: no client can connect to 0.0.0.0; name a host",
        ),
        ({"inter.broker.listener.name": "INSIDE"}, "inter.broker.listener.name: INSIDE is not in listeners"),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "inter.broker.listener.name: set either this or security.inter.broker.protocol, not both",
        ),
        (
            {"security.inter.broker.protocol": "SSL"},
            "security.inter.broker.protocol: no listener named SSL in listeners",
        ),
        (
            {"listener.security.protocol.map": "PLAINTEXT:TLS"},
            "listener.security.protocol.map: 'PLAINTEXT:TLS' is not <listener>:<PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL>",
        ),
    ],
)
def test_wrong_listeners_are_refused_in_one_line(given: dict[str, str], message: str) -> None:
    """The line names the setting and the listener."""
    with pytest.raises(ConfigError) as refusal:
        BrokerConfig.of(given)
    assert str(refusal.value) == message
