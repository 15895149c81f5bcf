"""Certificates of clients that a listener refuses: revoked ones, and ones for another purpose."""

import socket
import ssl
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from ottla.config import BrokerConfig, ConfigError
from ottla.security.certificates import Issued
from ottla.security.tls import build_client_context, build_server_context
from ottla.testing import LocalBroker
from tests.clients.secured import Certificates, port_of, secured_broker
from tests.patience import PATIENCE_S


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def write_list(certificates: Certificates, path: Path, revoked: Sequence[Issued], days: int = 2) -> None:
    """A list of revoked certificates, signed by the authority."""
    authority = x509.load_pem_x509_certificate(certificates.authority.certificate.encode())
    key = load_pem_private_key(certificates.authority.key.encode(), None)
    begin = certificates.now - timedelta(days=3)
    builder = x509.CertificateRevocationListBuilder(authority.subject, begin, begin + timedelta(days=3 + days))
    for each in revoked:
        number = x509.load_pem_x509_certificate(each.certificate.encode()).serial_number
        entry = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(begin).build()
        builder = builder.add_revoked_certificate(entry)
    path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))  # type: ignore[arg-type]


def enters(broker: LocalBroker, certificates: Certificates, issued: Issued) -> bool:
    """Whether a client with this certificate gets an answer. With TLS 1.3 a refusal comes after the handshake."""
    context = ssl.create_default_context(cafile=str(certificates.ca))
    context.load_cert_chain(certificates.write("client.pem", issued.pem))
    request = bytes.fromhex("0000000a 0012 0000 00000001 ffff".replace(" ", ""))  # ApiVersions, version 0
    with socket.create_connection(("127.0.0.1", port_of(broker, "MUTUAL")), PATIENCE_S) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as client:
                client.sendall(request)
                return client.recv(4) != b""
        except OSError:  # an alert, or a reset after it
            return False


def test_a_revoked_certificate_is_refused(certificates: Certificates, tmp_path: Path) -> None:
    good, bad = (certificates.issue(name, is_server=False) for name in ("good", "bad"))
    path = tmp_path / "revoked.pem"
    write_list(certificates, path, [])
    with secured_broker(certificates, **{"listener.name.mutual.ssl.crl.location": str(path)}) as broker:
        assert enters(broker, certificates, good)
        assert enters(broker, certificates, bad)
        write_list(certificates, path, [bad])
        broker.advance(seconds=6)  # the file is read again when it has changed
        assert enters(broker, certificates, good)
        assert not enters(broker, certificates, bad)
        path.write_text("nonsense")
        broker.advance(seconds=6)  # the last list stays
        assert not enters(broker, certificates, bad)
        write_list(certificates, path, [], days=-1)
        broker.advance(seconds=6)
        assert not enters(broker, certificates, good)  # a list that has ended says nothing


def test_what_cannot_be_a_list_is_named(certificates: Certificates, tmp_path: Path) -> None:
    store = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(certificates.ca)}
    own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(certificates.broker())}
    path = tmp_path / "revoked.pem"
    config = BrokerConfig.of({**store, **own, "ssl.crl.location": str(path)})
    contents: tuple[str | None, ...] = (None, "nonsense", certificates.issue("another authority").certificate)
    for content in contents:
        if content is not None:
            path.write_text(content)
        with pytest.raises(ConfigError, match=r"ssl\.crl\.location"):
            build_server_context(config, "", "required")
        with pytest.raises(ConfigError, match=r"ssl\.crl\.location"):
            build_client_context(config, "")


def make_for(certificates: Certificates, purposes: Sequence[x509.ObjectIdentifier]) -> Issued:
    """A certificate for 127.0.0.1 with these extended key usages."""
    template = certificates.issue("alice", hosts=["127.0.0.1"])
    found = x509.load_pem_x509_certificate(template.certificate.encode())
    builder = x509.CertificateBuilder(
        found.issuer,
        found.subject,
        found.public_key(),
        found.serial_number + 1,
        found.not_valid_before_utc,
        found.not_valid_after_utc,
    )
    for extension in found.extensions:
        value = extension.value
        if isinstance(value, x509.ExtendedKeyUsage):
            value = x509.ExtendedKeyUsage(purposes)
        builder = builder.add_extension(value, extension.critical)
    key = load_pem_private_key(certificates.authority.key.encode(), None)
    signed = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type]
    return Issued(signed.public_bytes(Encoding.PEM).decode(), template.key)


def test_a_certificate_for_another_purpose_is_refused(certificates: Certificates) -> None:
    """A server's certificate is no login, and a client's certificate is no broker: as in Java."""
    usages = ExtendedKeyUsageOID
    of_server, of_client = (make_for(certificates, [each]) for each in (usages.SERVER_AUTH, usages.CLIENT_AUTH))
    path = certificates.write("purpose.pem", of_client.pem)
    with secured_broker(certificates) as broker:
        assert enters(broker, certificates, of_client)
        assert not enters(broker, certificates, of_server)
        assert not enters(broker, certificates, make_for(certificates, [usages.EMAIL_PROTECTION]))
    with secured_broker(certificates, **{"listener.name.mutual.ssl.keystore.location": str(path)}) as broker:
        assert not enters(broker, certificates, of_client)
