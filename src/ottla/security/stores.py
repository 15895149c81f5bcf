"""Key stores and trust stores: keys and certificates from Kafka's ssl.* settings, as PEM text.

A store is PEM in a setting, a PEM file or a PKCS12 file. What is in a file decides how it is read: Java too reads
PKCS12 files that are declared to be JKS, which is the default of the setting. Stores that really are JKS are refused,
because no library reads them.
"""

from typing import TYPE_CHECKING, NamedTuple

from ottla.config import BrokerConfig, ConfigError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
FILE_BYTES_MAX = 16 << 20

CONVERSION = "keytool -importkeystore -srckeystore OLD -destkeystore NEW.p12 -deststoretype PKCS12"


class KeyStore(NamedTuple):
    """A key, which may be encrypted, and the certificates of its owner, its own one first."""

    key: str
    certificates: str
    password: str | None

    def __repr__(self) -> str:
        return "KeyStore(...)"


def read_key_store(config: BrokerConfig, prefix: str = "") -> KeyStore | None:
    """The key store of a listener; None if the settings name none. `prefix` begins the names in messages."""
    name = f"{prefix}ssl.keystore"
    chain, key = config.ssl_keystore_certificate_chain, config.ssl_keystore_key
    if chain is not None or key is not None:
        if chain is None or key is None:
            raise ConfigError(f"{name}.key and {name}.certificate.chain: set both, or neither")
        if config.ssl_keystore_location is not None:
            raise ConfigError(f"{name}.location: set either this or {name}.key, not both")
        if config.ssl_keystore_type.upper() != "PEM":
            raise ConfigError(f"{name}.type: {name}.key needs PEM, not {config.ssl_keystore_type}")
        return KeyStore(key, chain, config.ssl_key_password)
    if config.ssl_keystore_location is None:
        return None
    data = _read_file(f"{name}.location", config.ssl_keystore_location)
    if _is_pem(data, f"{name}.location", config.ssl_keystore_type):
        text = _decode(f"{name}.location", data)
        if config.ssl_keystore_password is not None and "BEGIN ENCRYPTED" not in text:
            raise ConfigError(f"{name}.password: a PEM file has none; ssl.key.password is that of an encrypted key")
        return KeyStore(text, text, config.ssl_key_password)
    return _read_pkcs12_keys(f"{name}.location", data, config.ssl_keystore_password)


def read_trust_store(config: BrokerConfig, prefix: str = "") -> str | None:
    """The trusted certificates, PEM; None if the settings name none."""
    name = f"{prefix}ssl.truststore"
    if config.ssl_truststore_certificates is not None:
        if config.ssl_truststore_location is not None:
            raise ConfigError(f"{name}.location: set either this or {name}.certificates, not both")
        if config.ssl_truststore_type.upper() != "PEM":
            raise ConfigError(f"{name}.type: {name}.certificates needs PEM, not {config.ssl_truststore_type}")
        return config.ssl_truststore_certificates
    if config.ssl_truststore_location is None:
        return None
    data = _read_file(f"{name}.location", config.ssl_truststore_location)
    if _is_pem(data, f"{name}.location", config.ssl_truststore_type):
        return _decode(f"{name}.location", data)
    return _read_pkcs12_certificates(f"{name}.location", data, config.ssl_truststore_password)


def read_pem(setting: str, path: str) -> str:
    """A file that has to be PEM."""
    data = _read_file(setting, path)
    _is_pem(data, setting, "PEM")
    return _decode(setting, data)


def find_files(config: BrokerConfig) -> tuple[str, ...]:
    """The files of the stores, which are read again when they change."""
    paths = config.ssl_keystore_location, config.ssl_truststore_location, config.ssl_crl_location
    return tuple(path for path in paths if path is not None)


def stat_files(paths: tuple[str, ...]) -> tuple[object, ...]:
    """Something that is different after any of the files has changed."""
    import os

    found: list[object] = []
    for path in paths:
        try:
            status = os.stat(path)
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        except OSError:
            found.append(None)
    return tuple(found)


def _read_file(setting: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{setting}: {path}: {error.strerror or error}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"{setting}: {path} is larger than {FILE_BYTES_MAX} bytes")
    return data


def _is_pem(data: bytes, setting: str, declared: str) -> bool:
    if data.startswith(JKS_MAGIC):
        raise ConfigError(f"{setting}: a store in the format JKS cannot be read; convert it: {CONVERSION}")
    is_pem = b"-----BEGIN " in data
    if not is_pem and declared.upper() == "PEM":
        raise ConfigError(f"{setting}: the file is not PEM")
    if is_pem and declared.upper() == "PKCS12":
        raise ConfigError(f"{setting}: the file is not PKCS12")
    return is_pem


def _decode(setting: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{setting}: the file is not PEM") from None


def _read_pkcs12_keys(setting: str, data: bytes, password: str | None) -> KeyStore:
    from cryptography.hazmat.primitives import serialization  # rarely needed, and large
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        key, own, others = pkcs12.load_key_and_certificates(data, _encode(password))
    except ValueError:
        raise ConfigError(f"{setting}: the file is not PKCS12, or its password is another one") from None
    if key is None or own is None:
        raise ConfigError(f"{setting}: the store has no key with its certificate")
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    return KeyStore(text, _write_certificates([own, *others]), None)


def _read_pkcs12_certificates(setting: str, data: bytes, password: str | None) -> str:
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        store = pkcs12.load_pkcs12(data, _encode(password))
    except ValueError:
        raise ConfigError(f"{setting}: the file is not PKCS12, or its password is another one") from None
    found = [each.certificate for each in (store.cert, *store.additional_certs) if each is not None]
    if not found:
        raise ConfigError(f"{setting}: the store has no certificate")
    return _write_certificates(found)


def _encode(password: str | None) -> bytes | None:
    return None if password is None else password.encode()


def _write_certificates(certificates: "list[Certificate]") -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return "".join(each.public_bytes(Encoding.PEM).decode() for each in certificates)
