"""Certificates and keys of a client or a server: PEM texts, PEM files and PKCS12 files, and the TLS context with them.

Java's settings call them trust store (the authorities that a client trusts) and key store (the client's own
certificate and key). A store is recognised by its content, because Java's own default type, JKS, stands in many files
of settings whose store is PKCS12. A password or a key is in no message.
"""

import os
import re
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

_PEM_MARK: Final = b"-----BEGIN "
_JKS_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_LINE: Final = 64
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS: Final = {"TLSV1.2": ssl.TLSVersion.TLSv1_2, "TLSV1.3": ssl.TLSVersion.TLSv1_3}


class KeyPair(NamedTuple):
    """A certificate chain and its private key, as PEM texts."""

    chain: str
    key: str

    def __repr__(self) -> str:
        return "KeyPair(...)"


def make_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """The TLS context for settings with librdkafka's names. ValueError, which names the setting, if one is wrong."""
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if _has_authorities(settings):
        context = _without_authorities()
        _load_authorities(context, settings)
    if settings.get("enable.ssl.certificate.verification", "true").strip().lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif settings.get("ssl.endpoint.identification.algorithm", "https").strip().lower() == "none":
        context.check_hostname = False
    if settings.get("ssl.crl.location"):
        _load(context, "ssl.crl.location", settings["ssl.crl.location"])
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    _load_own_certificate(context, settings)
    _limit_versions(context, settings)
    if settings.get("ssl.cipher.suites"):
        _choose_ciphers(context, settings["ssl.cipher.suites"])
    return context


def make_server_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """The TLS context of a server, for settings with librdkafka's names and `ssl.client.auth` of Java's servers.

    ValueError, which names the setting, if one is wrong or there is no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    names = ("ssl.keystore.location", "ssl.certificate.pem", "ssl.certificate.location")
    if not any(settings.get(name) for name in names):
        raise ValueError("ssl.keystore.location: a server needs a certificate with its key")
    _load_own_certificate(context, settings)
    wanted = settings.get("ssl.client.auth", "none").strip().lower()
    if wanted not in _CLIENT_AUTH:
        raise ValueError(f"ssl.client.auth: {wanted!r} is none of {', '.join(_CLIENT_AUTH)}")
    context.verify_mode = _CLIENT_AUTH[wanted]
    if wanted != "none":
        if not _has_authorities(settings):
            raise ValueError(f"ssl.truststore.location: ssl.client.auth={wanted} needs authorities to trust")
        _load_authorities(context, settings)
    _limit_versions(context, settings)
    if settings.get("ssl.cipher.suites"):
        _choose_ciphers(context, settings["ssl.cipher.suites"])
    return context


def read_trust_store(location: str, password: str) -> str:
    """The certificates of a PEM or PKCS12 file, as PEM text."""
    content = _read_file("ssl.truststore.location", location)
    if _PEM_MARK in content:
        return content.decode("utf-8", "replace")
    _refuse_jks("ssl.truststore", location, content)
    from cryptography.hazmat.primitives.serialization import Encoding

    store = _open_pkcs12("ssl.truststore", location, content, password)
    found = [store.cert.certificate] if store.cert is not None else []
    found += [each.certificate for each in store.additional_certs]
    if not found:
        raise ValueError(f"ssl.truststore.location: {location} has no certificate")
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in found)


def read_key_store(location: str, password: str) -> KeyPair | None:
    """The certificate and key of a PKCS12 file; None for a PEM file, which libraries of TLS read themselves."""
    content = _read_file("ssl.keystore.location", location)
    if _PEM_MARK in content:
        return None
    _refuse_jks("ssl.keystore", location, content)
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    store = _open_pkcs12("ssl.keystore", location, content, password)
    if store.key is None or store.cert is None:
        raise ValueError(f"ssl.keystore.location: {location} has no certificate with its key")
    chain = [store.cert.certificate, *(each.certificate for each in store.additional_certs)]
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return KeyPair("".join(each.public_bytes(Encoding.PEM).decode() for each in chain), key.decode())


def repair_pem(text: str) -> str:
    """PEM text with its line breaks. In a setting of one line they are blanks, or the two characters `\\n`."""
    blocks = []
    for kind, body in _BLOCK.findall(text.replace("\\n", "\n")):
        packed = "".join(body.split())
        if ":" in packed:  # the headers of an encrypted key of the old format: its lines have a meaning
            return text
        lines = [packed[start : start + _LINE] for start in range(0, len(packed), _LINE)]
        blocks.append("\n".join((f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----")))
    return "\n".join(blocks) + "\n" if blocks else text


def _has_authorities(settings: Mapping[str, str]) -> bool:
    return bool(settings.get("ssl.ca.pem") or settings.get("ssl.ca.location"))


def _without_authorities() -> ssl.SSLContext:
    """A context that trusts nobody yet: not the authorities of the machine either, if the user names others."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _load_authorities(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    if settings.get("ssl.ca.pem"):
        try:
            context.load_verify_locations(cadata=repair_pem(settings["ssl.ca.pem"]))
        except (ssl.SSLError, ValueError, OSError):
            raise ValueError("ssl.ca.pem: it has no certificate in PEM format") from None
    if settings.get("ssl.ca.location"):
        _load(context, "ssl.ca.location", settings["ssl.ca.location"])


def _load(context: ssl.SSLContext, name: str, location: str) -> None:
    try:
        if os.path.isdir(location):
            context.load_verify_locations(capath=location)
        else:
            context.load_verify_locations(cafile=location)
    except ssl.SSLError:
        raise ValueError(f"{name}: {location} has nothing in PEM format") from None
    except OSError as error:
        raise ValueError(f"{name}: {location}: {error.strerror or error}") from None


def _load_own_certificate(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    password = settings.get("ssl.key.password", "")
    if settings.get("ssl.keystore.location"):
        location = settings["ssl.keystore.location"]
        pair = read_key_store(location, settings.get("ssl.keystore.password", ""))
        if pair is None:
            _load_chain(context, location, location, password, "ssl.keystore.location")
            return
        with _as_file(pair.chain) as chain, _as_file(pair.key) as key:
            _load_chain(context, chain, key, "", "ssl.keystore.location")
    elif settings.get("ssl.certificate.pem"):
        certificate = repair_pem(settings["ssl.certificate.pem"])
        with _as_file(certificate) as chain:
            key_text = settings.get("ssl.key.pem")
            if key_text:
                with _as_file(repair_pem(key_text)) as key:
                    _load_chain(context, chain, key, password, "ssl.certificate.pem")
            else:
                _load_chain(context, chain, settings.get("ssl.key.location") or chain, password, "ssl.certificate.pem")
    elif settings.get("ssl.certificate.location"):
        location = settings["ssl.certificate.location"]
        _load_chain(context, location, settings.get("ssl.key.location") or location, password, location)


def _load_chain(context: ssl.SSLContext, chain: str, key: str, password: str, name: str) -> None:
    try:
        # Without a password OpenSSL would ask for it at the terminal.
        context.load_cert_chain(chain, key, lambda: password)
    except ssl.SSLError as error:
        reason = (error.reason or "it cannot be used").replace("_", " ").lower()
        hint = " (is ssl.key.password right?)" if "decrypt" in reason or "password" in reason else ""
        raise ValueError(f"the certificate and key, {name}: {reason}{hint}") from None
    except OSError as error:
        where = chain if not os.path.exists(chain) else key
        raise ValueError(f"the certificate and key: {where}: {error.strerror or error}") from None


def _limit_versions(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    text = settings.get("ssl.enabled.protocols", "")
    named = [part.strip().upper() for part in text.split(",") if part.strip()]
    if not named:
        return
    versions = sorted(_VERSIONS[name] for name in named if name in _VERSIONS)
    if not versions:
        raise ValueError(f"ssl.enabled.protocols: {text!r} has neither TLSv1.2 nor TLSv1.3")
    context.minimum_version, context.maximum_version = versions[0], versions[-1]


def _choose_ciphers(context: ssl.SSLContext, text: str) -> None:
    names = [part.strip() for part in re.split(r"[,:]", text) if part.strip()]
    if all(name.startswith("TLS_AES") or name.startswith("TLS_CHACHA") for name in names):
        return  # suites of TLS 1.3, which Python's library does not choose from
    try:
        context.set_ciphers(":".join(names))
    except ssl.SSLError:
        raise ValueError(f"ssl.cipher.suites: OpenSSL knows none of {text!r}; it has names of its own") from None


def _read_file(name: str, location: str) -> bytes:
    try:
        with open(location, "rb") as file:
            return file.read()
    except OSError as error:
        raise ValueError(f"{name}: {location}: {error.strerror or error}") from None


def _refuse_jks(store: str, location: str, content: bytes) -> None:
    if content.startswith(_JKS_MAGIC):
        raise ValueError(
            f"{store}.location: {location} is a JKS file, which only Java reads; make PKCS12 of it with"
            " keytool -importkeystore -deststoretype PKCS12"
        )


def _open_pkcs12(store: str, location: str, content: bytes, password: str) -> "PKCS12KeyAndCertificates":
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        return load_pkcs12(content, password.encode() if password else None)
    except (ValueError, TypeError):
        hint = f"is {store}.password right?" if content[:1] == b"\x30" else "it is neither PEM nor PKCS12"
        raise ValueError(f"{store}.location: {location} cannot be read: {hint}") from None


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """A name under which a library that reads only files finds a text. Where possible the text is on no disk."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("ottla")
        try:
            os.write(descriptor, text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile(prefix="ottla-") as file:  # only its owner can read it
        file.write(text.encode())
        file.flush()
        yield file.name
