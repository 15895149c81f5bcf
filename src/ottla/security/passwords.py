"""Passwords and keys among the settings that are made while a broker runs: encrypted in the metadata.

    encrypted:1:<iterations>:<salt>:<ciphertext>          salt and ciphertext in base64

PBKDF2 derives a key from password.encoder.secret and the salt, and AES-SIV encrypts the value under it, bound to the
broker and the setting it belongs to: nobody who can write to the metadata can move it elsewhere. AES-SIV needs no
random number, so the same value has the same text and a decider stays a pure function. Values without the first word
are those of a broker that had no secret, and are read as they are.
"""

import base64
import binascii
import functools
import hashlib

from ottla.config import BrokerConfig, ConfigError

MARK = "encrypted:"
SECRET = "password.encoder.secret"
ITERATIONS_MAX = 10_000_000
REMEMBERED = 64
"""Derived keys that are kept: to derive one takes milliseconds."""

_VERSION = "1"
_KEY_BYTES = 64  # two keys of AES-256
_SALT_BYTES = 16


def is_encrypted(text: str) -> bool:
    return text.startswith(MARK)


def encrypt(config: BrokerConfig, cluster_id: str, broker: str, setting: str, value: str) -> str:
    """ConfigError if the broker has no secret to encrypt with."""
    secret = config.password_encoder_secret
    if not secret:
        raise ConfigError(f"{setting}: it is stored only if the broker has {SECRET}, to encrypt it with")
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV  # rarely needed, and large

    iterations, owner = config.password_encoder_iterations, _name_owner(broker, setting)
    salt = hashlib.sha256(cluster_id.encode() + b"\0" + owner).digest()[:_SALT_BYTES]
    data = AESSIV(_derive(secret, salt, iterations)).encrypt(value.encode(), [owner])
    return f"{MARK}{_VERSION}:{iterations}:{base64.b64encode(salt).decode()}:{base64.b64encode(data).decode()}"


def decrypt(config: BrokerConfig, broker: str, setting: str, text: str) -> str:
    """The value of a text in the metadata. ConfigError if neither the secret nor the old one fits."""
    if not is_encrypted(text):
        return text
    secrets = [each for each in (config.password_encoder_secret, config.password_encoder_old_secret) if each]
    if not secrets:
        raise ConfigError(f"{setting}: it is encrypted, and the broker has no {SECRET}")
    for secret in secrets:
        value = _decrypt_with(secret, broker, setting, text)
        if value is not None:
            return value
    raise ConfigError(f"{setting}: it was encrypted with another {SECRET} (password.encoder.old.secret)")


def needs_renewal(config: BrokerConfig, broker: str, setting: str, text: str) -> bool:
    """Whether a text in the metadata is not encrypted, or with the old secret, and a secret is there to encrypt it."""
    secret = config.password_encoder_secret
    return bool(secret) and (not is_encrypted(text) or _decrypt_with(secret or "", broker, setting, text) is None)


def _decrypt_with(secret: str, broker: str, setting: str, text: str) -> str | None:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

    try:
        version, count, salt, data = text.removeprefix(MARK).split(":")
        iterations = int(count)
        if version != _VERSION or not 1 <= iterations <= ITERATIONS_MAX:
            return None
        key = _derive(secret, base64.b64decode(salt, validate=True), iterations)
        return AESSIV(key).decrypt(base64.b64decode(data, validate=True), [_name_owner(broker, setting)]).decode()
    except (ValueError, binascii.Error, InvalidTag):
        return None


def _name_owner(broker: str, setting: str) -> bytes:
    return f"{broker}\0{setting}".encode()


@functools.lru_cache(REMEMBERED)
def _derive(secret: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", secret.encode(), salt, iterations, _KEY_BYTES)
