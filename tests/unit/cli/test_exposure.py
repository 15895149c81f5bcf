"""`ottla up` opens nothing to the network by mistake."""

import logging

import pytest

from ottla.cli.command_error import CommandError
from ottla.cli.exposure import check_exposure
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
