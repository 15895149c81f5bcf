"""Whether a certificate may take the place of another one while the broker runs (ssl.allow.dn.changes, .san.changes).

A certificate by mistake would lock other brokers and clients out, which know this broker by its names.
"""

from typing import TYPE_CHECKING

from ottla.config import BrokerConfig, ConfigError
from ottla.security.names import write_distinguished_name
from ottla.security.stores import read_key_store

if TYPE_CHECKING:
    from cryptography.x509 import Certificate


def check_replacement(before: BrokerConfig, after: BrokerConfig, prefix: str) -> None:
    """ConfigError if the new certificate has another name, or lacks alternative names that the last one has."""
    try:
        old = _read_certificate(before)
    except ConfigError:
        return  # it cannot be read any more, so there is nothing to compare with
    new = _read_certificate(after)
    if old is None or new is None:
        return
    names = write_distinguished_name(old.subject), write_distinguished_name(new.subject)
    if names[0] != names[1] and not after.ssl_allow_dn_changes:
        raise ConfigError(
            f"{prefix}ssl.keystore: the certificate has the name {names[1]}, and the last one had {names[0]} "
            f"(ssl.allow.dn.changes)"
        )
    missing = _find_names(old) - _find_names(new)
    if missing and not after.ssl_allow_san_changes:
        raise ConfigError(
            f"{prefix}ssl.keystore: the certificate lacks {', '.join(sorted(missing))}, which the last one had "
            f"(ssl.allow.san.changes)"
        )


def _read_certificate(config: BrokerConfig) -> "Certificate | None":
    from cryptography import x509

    store = read_key_store(config)
    if store is None:
        return None
    try:
        return x509.load_pem_x509_certificates(store.certificates.encode())[0]
    except ValueError:
        raise ConfigError("ssl.keystore: it has no usable certificate") from None


def _find_names(certificate: "Certificate") -> set[str]:
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in names}
