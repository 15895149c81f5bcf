"""Secrets among settings that are made at run time: encrypted in the metadata, or not stored at all."""

import logging
from collections.abc import Sequence

import pytest

from ottla.cluster.changes import Change, ConfigResource, SetConfig
from ottla.cluster.configs import (
    ConfigAlteration,
    Operation,
    alter_brokers,
    apply_run_time_settings,
    preview,
    renew_encryption,
)
from ottla.cluster.image import EMPTY, Image
from ottla.config import BrokerConfig, ConfigError
from ottla.errors import ErrorCode, KafkaError
from ottla.security import passwords

KEY = "listener.name.ssl.ssl.keystore.password"
OTHER = "listener.name.ssl.ssl.key.password"
VALUE = "größer als geheim"
WITH_SECRET = BrokerConfig.of({"node.id": "1", "password.encoder.secret": "first"})


def stored(image: Image) -> dict[str, str]:
    return dict(image.config(ConfigResource.BROKER, "1"))


def replay(image: Image, changes: Sequence[Change]) -> Image:
    return image.replay(image.version + 1, changes)


def altered(image: Image, config: BrokerConfig, *alterations: ConfigAlteration) -> Image:
    return replay(image, alter_brokers(image, "1", alterations, config).changes)


def test_a_secret_is_encrypted_and_comes_into_force() -> None:
    image = altered(EMPTY, WITH_SECRET, ConfigAlteration(KEY, Operation.SET, VALUE))
    text = stored(image)[KEY]
    assert passwords.is_encrypted(text)
    assert VALUE not in text
    assert apply_run_time_settings(WITH_SECRET, image).of_listener("SSL").ssl_keystore_password == VALUE
    # Nothing is random, and a value that is set again is no change.
    assert alter_brokers(image, "1", [ConfigAlteration(KEY, Operation.SET, VALUE)], WITH_SECRET).changes == []
    other = alter_brokers(image, "1", [ConfigAlteration(KEY, Operation.SET, "another")], WITH_SECRET).changes
    assert preview(image, WITH_SECRET, other).of_listener("SSL").ssl_keystore_password == "another"
    assert stored(altered(image, WITH_SECRET, ConfigAlteration(KEY, Operation.DELETE))) == {}


def test_without_a_secret_to_encrypt_with_nothing_secret_is_stored() -> None:
    config = BrokerConfig.of({"node.id": "1"})
    with pytest.raises(KafkaError, match=r"password\.encoder\.secret") as refusal:
        altered(EMPTY, config, ConfigAlteration(KEY, Operation.SET, VALUE))
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
    assert VALUE not in str(refusal.value)
    location = ConfigAlteration("listener.name.ssl.ssl.keystore.location", Operation.SET, "/store.p12")
    assert stored(altered(EMPTY, config, location)) == {location.name: "/store.p12"}


@pytest.mark.parametrize("place", [("2", KEY), ("1", OTHER)])
def test_a_text_of_another_place_is_none_of_this_one(place: tuple[str, str]) -> None:
    text = passwords.encrypt(WITH_SECRET, "cluster", *place, VALUE)
    assert passwords.decrypt(WITH_SECRET, *place, text) == VALUE
    with pytest.raises(ConfigError):
        passwords.decrypt(WITH_SECRET, "1", KEY, text)


@pytest.mark.parametrize("text", ["encrypted:", "encrypted:1:x:y:z", "encrypted:2:4096:AAAA:AAAA", "encrypted:1:0::"])
def test_a_text_that_was_changed_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"password\.encoder\.secret"):
        passwords.decrypt(WITH_SECRET, "1", KEY, text)


def test_a_broker_with_another_secret_starts_and_leaves_the_setting_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    image = altered(EMPTY, WITH_SECRET, ConfigAlteration(KEY, Operation.SET, VALUE))
    for given in ({}, {"password.encoder.secret": "another"}):
        config = BrokerConfig.of({"node.id": "1", "log.retention.ms": "7", **given})
        assert apply_run_time_settings(config, image).of_listener("SSL").ssl_keystore_password is None
        # Other settings can be changed, and this one is still there, for when the secret is back.
        changed = altered(image, config, ConfigAlteration("log.retention.ms", Operation.SET, "5"))
        assert stored(changed) == {**stored(image), "log.retention.ms": "5"}
        assert KEY in caplog.text
        caplog.clear()


def test_a_new_secret_encrypts_what_the_old_one_has_encrypted() -> None:
    image = altered(EMPTY, WITH_SECRET, ConfigAlteration(KEY, Operation.SET, VALUE))
    image = replay(image, [SetConfig(ConfigResource.BROKER, "1", OTHER, "of a broker without a secret")])
    renewed = BrokerConfig.of(
        {"node.id": "1", "password.encoder.secret": "second", "password.encoder.old.secret": "first"}
    )
    decision = renew_encryption(image, renewed)
    assert decision.result == 2
    after = replay(image, decision.changes)
    alone = BrokerConfig.of({"node.id": "1", "password.encoder.secret": "second"})
    found = apply_run_time_settings(alone, after).of_listener("SSL")
    assert (found.ssl_keystore_password, found.ssl_key_password) == (VALUE, "of a broker without a secret")
    assert all(map(passwords.is_encrypted, stored(after).values()))
    assert renew_encryption(after, renewed).changes == []
