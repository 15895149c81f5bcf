"""What a listener says about its own settings when it starts."""

from random import Random
from typing import Any, cast

import pytest

from ottla.config import BrokerConfig
from ottla.security.listener import build_security

JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'


@pytest.mark.parametrize(("mechanism", "is_told"), [("PLAIN", True), ("SCRAM-SHA-256", False)])
def test_passwords_without_encryption_are_warned_of(
    mechanism: str, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": mechanism, JAAS: USERS}
    config = BrokerConfig.of(settings)
    nobody = cast(Any, None)
    build_security(config.endpoints.bound[0], config, nobody, Random(1), lambda: 0, nobody)
    assert ("SASL_PLAINTEXT takes passwords without encryption" in caplog.text) == is_told
