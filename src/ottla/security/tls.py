"""TLS contexts from Kafka's ssl.* settings: for the clients of a listener, and for connections to other brokers and to
ZooKeeper.

OpenSSL reads keys from files only. Keys that are in a setting or in a PKCS12 store are written to a file in memory that
no other process sees, or to a private temporary file where there is no such thing.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.config import BrokerConfig, ConfigError
from ottla.security.ciphers import choose_ciphers
from ottla.security.stores import KeyStore, read_key_store, read_pem, read_trust_store
from ottla.security.tls_objects import ServerContext

_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

TlsContext = ssl.SSLContext


def build_server_context(config: BrokerConfig, prefix: str, client_auth: str) -> ssl.SSLContext:
    """The context of a listener with these settings. It reads files: call it in a thread, or at the start.

    ConfigError names a setting, beginning with `prefix`.
    """
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 1  # to resume a session with, as Java gives; OpenSSL would make two for each connection
    _limit(context, config, prefix)
    keys = read_key_store(config, prefix)
    if keys is None:
        raise ConfigError(f"{prefix}ssl.keystore.location: a listener with TLS needs a key and a certificate")
    _load_keys(context, keys, f"{prefix}ssl.keystore")
    trusted = read_trust_store(config, prefix)
    if client_auth != "none":
        if trusted is None:
            # Java would trust every public authority, which would let in whoever has a certificate of any web site.
            raise ConfigError(f"{prefix}ssl.truststore.location: ssl.client.auth={client_auth} needs a trust store")
        _trust(context, trusted, f"{prefix}ssl.truststore")
        _check_revocation(context, config, prefix)
        context.options |= ssl.OP_NO_TICKET  # every connection shows its certificate
        context.num_tickets = 0  # of TLS 1.3, which has tickets of another kind with that option
    context.verify_mode = _VERIFY[client_auth]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    return context


def build_client_context(config: BrokerConfig, prefix: str) -> ssl.SSLContext:
    """The context of connections to other brokers. Without a trust store public authorities are trusted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _limit(context, config, prefix)
    trusted = read_trust_store(config, prefix)
    if trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _trust(context, trusted, f"{prefix}ssl.truststore")
    _check_revocation(context, config, prefix)
    keys = read_key_store(config, prefix)
    if keys is not None:
        _load_keys(context, keys, f"{prefix}ssl.keystore")
    context.check_hostname = config.ssl_endpoint_identification_algorithm.lower() == "https"
    return context


def build_zookeeper_context(config: BrokerConfig) -> ssl.SSLContext:
    """The context of connections to ZooKeeper. Without a trust store public authorities are trusted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    trusted, keys = "zookeeper.ssl.truststore.location", "zookeeper.ssl.keystore.location"
    if config.zookeeper_ssl_truststore_location is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _trust(context, read_pem(trusted, config.zookeeper_ssl_truststore_location), trusted)
    if config.zookeeper_ssl_keystore_location is not None:
        text = read_pem(keys, config.zookeeper_ssl_keystore_location)
        store = KeyStore(text, text, config.zookeeper_ssl_keystore_password)
        _load_keys(context, store, keys, "zookeeper.ssl.keystore.password")
    context.check_hostname = bool(config.zookeeper_ssl_endpoint_identification_algorithm)
    return context


def _limit(context: ssl.SSLContext, config: BrokerConfig, prefix: str) -> None:
    """Set versions and cipher suites."""
    versions = config.ssl_enabled_protocols
    if not versions:
        raise ConfigError(f"{prefix}ssl.enabled.protocols: name at least one version")
    if config.ssl_cipher_suites:
        chosen = choose_ciphers(f"{prefix}ssl.cipher.suites", config.ssl_cipher_suites)
        versions = tuple(each for each in versions if each in chosen.versions)
        if not versions:
            raise ConfigError(f"{prefix}ssl.cipher.suites: no suite belongs to a version of ssl.enabled.protocols")
        if chosen.openssl:
            try:
                context.set_ciphers(":".join(chosen.openssl))
            except ssl.SSLError:
                raise ConfigError(f"{prefix}ssl.cipher.suites: OpenSSL has none of {chosen.openssl}") from None
    context.minimum_version = min(_VERSIONS[each] for each in versions)
    context.maximum_version = max(_VERSIONS[each] for each in versions)


def _load_keys(context: ssl.SSLContext, keys: KeyStore, setting: str, password: str = "ssl.key.password") -> None:
    """`password`: the setting that has the password of the key."""

    def refuse_to_ask() -> str:
        raise ConfigError(f"{setting}: the key is encrypted; set {password}")

    try:
        with _as_file(keys.certificates) as certificates, _as_file(keys.key) as key:
            context.load_cert_chain(certificates, key, keys.password if keys.password is not None else refuse_to_ask)
    except ssl.SSLError as error:
        raise ConfigError(f"{setting}: {_explain_refusal(error.reason or '', password)}") from None
    except OSError as error:
        raise ConfigError(f"{setting}: {error.strerror or error}") from None


def _explain_refusal(reason: str, password: str) -> str:
    """What is wrong with a key store, by the reason that OpenSSL names."""
    if "KEY_VALUES_MISMATCH" in reason:
        return "key and certificate do not belong together"
    if reason.endswith(("_TOO_WEAK", "_TOO_SMALL")):
        name = reason.replace("_", " ").lower()
        return f"OpenSSL refuses a certificate of it ({name}); issue one that is signed with SHA-256 and has 2048 bits"
    return f"it has no usable key and certificate, or {password} is wrong"


def _trust(context: ssl.SSLContext, certificates: str, setting: str) -> None:
    try:
        context.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError):
        raise ConfigError(f"{setting}: it has no usable certificate") from None


def _check_revocation(context: ssl.SSLContext, config: BrokerConfig, prefix: str) -> None:
    """Refuse certificates that their authority has revoked, and those whose authority has no list in the file."""
    path = config.ssl_crl_location
    if path is None:
        return
    trusted = context.cert_store_stats()["x509"]
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError:
        raise ConfigError(f"{prefix}ssl.crl.location: {path} has no usable list of revoked certificates") from None
    except OSError as error:
        raise ConfigError(f"{prefix}ssl.crl.location: {path}: {error.strerror or error}") from None
    found = context.cert_store_stats()
    if found["x509"] != trusted:
        raise ConfigError(f"{prefix}ssl.crl.location: {path} has certificates, which would be trusted; move them away")
    if not found["crl"]:
        raise ConfigError(f"{prefix}ssl.crl.location: {path} has no list of revoked certificates")
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """A path at which OpenSSL finds the text, for as long as the context is entered."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("ottla", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile("w") as file:  # others may not read it
        file.write(text)
        file.flush()
        yield file.name
