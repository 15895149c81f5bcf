"""Key stores and trust stores: every form that is read, and a line for each that is not."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from ottla.config import BrokerConfig, ConfigError
from ottla.security.certificates import issue, make_authority, make_trust_store
from ottla.security.tls import build_client_context, build_server_context

AUTHORITY = make_authority("test", datetime.now(UTC))
ISSUED = issue(AUTHORITY, "broker", datetime.now(UTC), hosts=["localhost"])
OTHER = issue(AUTHORITY, "other", datetime.now(UTC), hosts=["localhost"])
ENCRYPTED = (
    load_pem_private_key(ISSUED.key.encode(), None)
    .private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password"))
    .decode()
)


def make_small_key() -> str:
    """A key of 1,024 bits and its certificate, which OpenSSL refuses."""
    key = rsa.generate_private_key(65537, 1024)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "small")])
    begin = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, begin, begin + timedelta(days=1))
    certificate = builder.sign(key, SHA256()).public_bytes(Encoding.PEM)
    return (key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate).decode()


def build(tmp_path: Path, settings: dict[str, str | bytes], client_auth: str = "none") -> ssl.SSLContext:
    """Values that are bytes, and PEM at a location, become files."""
    given = {}
    for name, value in settings.items():
        if name.endswith(".location") and value != "/missing":
            path = tmp_path / name
            path.write_bytes(value if isinstance(value, bytes) else value.encode())
            value = str(path)
        given[name] = str(value)
    config = BrokerConfig.of(given)
    build_client_context(config, "")
    return build_server_context(config, "", client_auth)


PEM = {"ssl.keystore.type": "PEM"}


@pytest.mark.parametrize(
    "settings",
    [
        {**PEM, "ssl.keystore.location": ISSUED.pem},
        {"ssl.keystore.location": ISSUED.pem},
        {**PEM, "ssl.keystore.key": ISSUED.key, "ssl.keystore.certificate.chain": ISSUED.certificate},
        {
            **PEM,
            "ssl.keystore.key": ENCRYPTED,
            "ssl.keystore.certificate.chain": ISSUED.certificate + AUTHORITY.certificate,
            "ssl.key.password": "password",
        },
        {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": ISSUED.make_pkcs12("broker", "p12", AUTHORITY.certificate),
            "ssl.keystore.password": "p12",
            "ssl.truststore.location": make_trust_store(AUTHORITY.certificate, "trust"),
            "ssl.truststore.password": "trust",
        },
        {
            "ssl.keystore.location": ISSUED.pem,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": AUTHORITY.certificate,
            "ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        },
    ],
)
def test_stores_are_read(tmp_path: Path, settings: dict[str, str | bytes]) -> None:
    has_trust = any("truststore" in name for name in settings)
    context = build(tmp_path, settings, "required" if has_trust else "none")
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    if "ssl.cipher.suites" in settings:
        assert context.maximum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "ssl.keystore.location: a listener with TLS needs a key"),
        ({**PEM, "ssl.keystore.location": "/missing"}, "ssl.keystore.location: /missing: No such file"),
        ({**PEM, "ssl.keystore.location": "nonsense"}, "the file is not PEM"),
        ({"ssl.keystore.location": b"\xfe\xed\xfe\xed\0\0"}, "JKS cannot be read; convert it"),
        ({"ssl.keystore.location": b"\x30\x82"}, "not PKCS12, or its password is another one"),
        (
            {
                "ssl.keystore.location": ISSUED.make_pkcs12("broker", "p12", AUTHORITY.certificate),
                "ssl.keystore.password": "wrong",
            },
            "its password is another one",
        ),
        ({**PEM, "ssl.keystore.key": ISSUED.key}, "set both, or neither"),
        (
            {**PEM, "ssl.keystore.key": OTHER.key, "ssl.keystore.certificate.chain": ISSUED.certificate},
            "do not belong together",
        ),
        (
            {**PEM, "ssl.keystore.key": ENCRYPTED, "ssl.keystore.certificate.chain": ISSUED.certificate},
            "set ssl.key.password",
        ),
        (
            {
                **PEM,
                "ssl.keystore.key": ENCRYPTED,
                "ssl.keystore.certificate.chain": ISSUED.certificate,
                "ssl.key.password": "hunter2",
            },
            "ssl.key.password is wrong",
        ),
        ({**PEM, "ssl.keystore.location": make_small_key()}, "OpenSSL refuses a certificate of it (ee key too small)"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols: 'TLSv1.1' is not one of"),
        ({"ssl.keystore.location": ISSUED.pem, "ssl.cipher.suites": "TLS_NULL"}, "unknown cipher suite"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, settings: dict[str, str | bytes], message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        build(tmp_path, settings)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert "hunter2" not in str(refusal.value)


def test_clients_are_not_verified_by_public_authorities(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs a trust store"):
        build(tmp_path, {"ssl.keystore.location": ISSUED.pem}, "required")
