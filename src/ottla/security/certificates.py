"""Makes a certificate authority, and certificates that it signs, for a laptop, a test cluster or a test.

The keys are elliptic (P-256): they are made in a millisecond, and every client of Kafka takes them. A certificate is
good from an hour before it is made, because the clocks of machines differ. The caller passes the time.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 825
"""The longest life of a server's certificate that Apple's libraries accept."""
SKEW: Final = timedelta(hours=1)
ORGANIZATION: Final = "Ottla"


class BadCertificate(ValueError):
    """A name, an address or a file that no certificate can be made of, in one line."""


class Issued(NamedTuple):
    """A certificate with its key, in the formats that clients and brokers read."""

    certificate: str
    """The certificate alone, as PEM."""
    key: str
    """The key without a password, as PEM in PKCS8."""

    def __repr__(self) -> str:
        return "Issued(...)"

    @property
    def pem(self) -> str:
        """Key and certificate in one text, which Kafka's PEM key store is."""
        return self.key + self.certificate

    def make_pkcs12(self, name: str, password: str, authority: str) -> bytes:
        """A PKCS12 key store with the authority's certificate in its chain."""
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
        from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

        key = load_pem_private_key(self.key.encode(), None)
        certificate = x509.load_pem_x509_certificate(self.certificate.encode())
        chain = [x509.load_pem_x509_certificate(authority.encode())]
        encryption = BestAvailableEncryption(password.encode())
        return serialize_key_and_certificates(name.encode(), key, certificate, chain, encryption)  # type: ignore[arg-type]


def make_trust_store(authority: str, password: str) -> bytes:
    """A PKCS12 trust store that Java reads: its entries are marked as trusted."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore

    certificate = x509.load_pem_x509_certificate(authority.encode())
    encryption = BestAvailableEncryption(password.encode())
    return serialize_java_truststore([PKCS12Certificate(certificate, b"ca")], encryption)


def make_authority(name: str, now: datetime, days: int = AUTHORITY_DAYS) -> Issued:
    """A certificate authority that signs itself."""
    from cryptography import x509

    key = _make_key()
    subject = _make_name(name)
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _begin(subject, subject, key, now, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _sign(builder, key, key)


def issue(
    authority: Issued,
    name: str,
    now: datetime,
    *,
    hosts: Sequence[str] = (),
    days: int = CERTIFICATE_DAYS,
    is_server: bool = True,
) -> Issued:
    """A certificate for a broker (with its host names and addresses) or a client, signed by the authority.

    A broker's certificate is good for both sides of TLS, because a broker is also a client of other brokers. No
    certificate outlives its authority.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509.oid import ExtendedKeyUsageOID

    signer = x509.load_pem_x509_certificate(authority.certificate.encode())
    signing_key = load_pem_private_key(authority.key.encode(), None)
    key = _make_key()
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if is_server:
        purposes.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
    builder = _begin(_make_name(name), signer.subject, key, now, days, signer.not_valid_after_utc)
    builder = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),  # type: ignore[arg-type]
            critical=False,
        )
    )
    if hosts:
        names = [_make_alternative_name(host) for host in dict.fromkeys(hosts)]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return _sign(builder, key, signing_key)  # type: ignore[arg-type]


def read_authority(certificate: str, key: str) -> Issued:
    """An authority of before. BadCertificate unless the key belongs to the certificate and it may sign others."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        found = x509.load_pem_x509_certificate(certificate.encode())
        private = load_pem_private_key(key.encode(), None)
    except (ValueError, TypeError):
        raise BadCertificate("the authority's certificate or key is not PEM, or has a password") from None
    if found.public_key() != private.public_key():
        raise BadCertificate("the authority's key does not belong to its certificate")
    try:
        may_sign = found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        may_sign = False
    if not may_sign:
        raise BadCertificate("the certificate is not that of an authority")
    return Issued(certificate, key)


def find_expiry(certificate: str) -> datetime:
    """When a certificate ends, in UTC."""
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(certificate.encode()).not_valid_after_utc
    except ValueError:
        raise BadCertificate("it is not a certificate in PEM format") from None


def _make_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _make_name(name: str) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    if not name.strip() or len(name) > 64 or not name.isprintable():
        raise BadCertificate(f"{name!r} cannot be the name in a certificate: it has 1 to 64 printable characters")
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _make_alternative_name(host: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(host.removeprefix("[").removesuffix("]")))
    except ValueError:
        pass
    try:
        if not host or ":" in host or "/" in host or any(letter.isspace() for letter in host):
            raise ValueError(host)
        return x509.DNSName(host.encode("idna").decode() if not host.startswith("*.") else host)
    except (ValueError, UnicodeError):
        raise BadCertificate(f"{host!r} is neither a host name nor an address") from None


def _begin(
    subject: "x509.Name",
    issuer: "x509.Name",
    key: "EllipticCurvePrivateKey",
    now: datetime,
    days: int,
    ends_at_most: datetime | None = None,
) -> "x509.CertificateBuilder":
    from cryptography import x509

    end = now + timedelta(days=days)
    if ends_at_most is not None:
        if ends_at_most <= now:
            raise BadCertificate("the authority has expired")
        end = min(end, ends_at_most)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now - SKEW, end - SKEW))
        .not_valid_after(end)
    )


def _sign(
    builder: "x509.CertificateBuilder", key: "EllipticCurvePrivateKey", signing_key: "EllipticCurvePrivateKey"
) -> Issued:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    certificate = builder.sign(signing_key, SHA256())
    return Issued(
        certificate.public_bytes(Encoding.PEM).decode(),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
    )
