"""`ottla up` opens nothing to the network by mistake."""

import logging

import pytest

from ottla.cli.command_error import CommandError
from ottla.cli.exposure import check_exposure, warn_of_loopback
from ottla.config import BrokerConfig

TLS = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/x"}


@pytest.mark.parametrize(
    "settings",
    [
        {"listeners": "PLAINTEXT://localhost:1"},
        {"listeners": "PLAINTEXT://127.0.0.1:1,SSL://[::1]:2", **TLS},
        {"listeners": "SASL_PLAINTEXT://0.0.0.0:1"},
        {"listeners": "SSL://:1", "ssl.client.auth": "required", **TLS},
        {"listeners": "SSL://:1", "listener.name.ssl.ssl.client.auth": "required", **TLS},
        {
            "listeners": "PLAINTEXT://:1",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        },
    ],
)
def test_safe_listeners_are_opened(settings: dict[str, str]) -> None:
    check_exposure(BrokerConfig.of(settings))


@pytest.mark.parametrize(
    "listeners",
    ["PLAINTEXT://:1", "PLAINTEXT://0.0.0.0:1", "PLAINTEXT://[::]:1", "PLAINTEXT://box.example:1", "SSL://10.0.0.1:1"],
)
def test_others_are_refused_unless_it_is_meant(listeners: str, caplog: pytest.LogCaptureFixture) -> None:
    for more in ({}, {"ssl.client.auth": "requested"}):
        with pytest.raises(CommandError, match="--allow-anonymous-network"):
            check_exposure(BrokerConfig.of({"listeners": f"{listeners},SASL_SSL://:2", **TLS, **more}))
    with caplog.at_level(logging.WARNING):
        check_exposure(BrokerConfig.of({"listeners": listeners, "allow.anonymous.network": "true", **TLS}))
    assert "ANYBODY ON THE NETWORK" in caplog.text


LOCAL = "PLAINTEXT://localhost:9092"
ELSEWHERE = "localhost:2181,zk1.example:2181/kafka"


@pytest.mark.parametrize(
    ("settings", "host"),
    [
        ({"listeners": LOCAL, "zookeeper.connect": ELSEWHERE}, "localhost"),
        ({"listeners": "PLAINTEXT://[::1]:9092", "zookeeper.connect": "[2001:db8::1]:2181"}, "::1"),
        ({"advertised.listeners": "PLAINTEXT://127.0.0.1:9092", "zookeeper.connect": "zk1"}, "127.0.0.1"),
        ({"listeners": LOCAL, "zookeeper.connect": "localhost:2181,127.0.0.1:2182,[::1]:2183/kafka"}, None),
        ({"listeners": LOCAL, "advertised.listeners": "PLAINTEXT://box:9092", "zookeeper.connect": ELSEWHERE}, None),
        ({"listeners": f"CLIENTS://{LOCAL[12:]},PLAINTEXT://:9093", "zookeeper.connect": ELSEWHERE}, None),
        ({"zookeeper.connect": ELSEWHERE}, None),
        ({"listeners": LOCAL}, None),
    ],
)
def test_a_loopback_address_for_brokers_of_other_machines_is_a_warning(
    settings: dict[str, str], host: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    # Each broker would find itself at localhost, and nobody would complain.
    protocols = "CLIENTS:PLAINTEXT,PLAINTEXT:PLAINTEXT"
    with caplog.at_level(logging.WARNING):
        warn_of_loopback(BrokerConfig.of({"listener.security.protocol.map": protocols, **settings}))
    expected = [f"brokers of other machines are told to connect to {host}, where they find only themselves"]
    assert [each.split(";")[0] for each in caplog.messages] == (expected if host else [])
    assert all("set listeners or advertised.listeners" in each for each in caplog.messages)
