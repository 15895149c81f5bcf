"""Names of cipher suites: Java's (those of IANA) and OpenSSL's, and the versions of TLS that have them."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.config import ConfigError

TLS_1_3 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
"""OpenSSL and Java have the same names for these, and Python cannot choose among them."""

EXCHANGES = {"ECDHE-ECDSA": "ECDHE_ECDSA", "ECDHE-RSA": "ECDHE_RSA", "DHE-RSA": "DHE_RSA", "": "RSA"}
CIPHERS = {
    "AES128-GCM-SHA256": "AES_128_GCM_SHA256",
    "AES256-GCM-SHA384": "AES_256_GCM_SHA384",
    "CHACHA20-POLY1305": "CHACHA20_POLY1305_SHA256",
    "AES128-SHA256": "AES_128_CBC_SHA256",
    "AES256-SHA256": "AES_256_CBC_SHA256",
    "AES256-SHA384": "AES_256_CBC_SHA384",
    "AES128-SHA": "AES_128_CBC_SHA",
    "AES256-SHA": "AES_256_CBC_SHA",
}
OPENSSL_NAMES = {
    f"TLS_{exchange}_WITH_{cipher}": "-".join(filter(None, (short, name)))
    for short, exchange in EXCHANGES.items()
    for name, cipher in CIPHERS.items()
}
"""Java's name -> OpenSSL's, of the suites of TLS 1.2."""


class Ciphers(NamedTuple):
    openssl: tuple[str, ...]
    """Suites of TLS 1.2, by OpenSSL's names."""
    versions: tuple[str, ...]
    """The versions of TLS that have at least one of the suites."""


def choose_ciphers(setting: str, names: Sequence[str]) -> Ciphers:
    """The suites of a setting. ConfigError if one is unknown, or if only some of TLS 1.3 are named."""
    older: list[str] = []
    newer: list[str] = []
    for name in names:
        if name in TLS_1_3:
            newer.append(name)
        elif name in OPENSSL_NAMES:
            older.append(OPENSSL_NAMES[name])
        elif name in OPENSSL_NAMES.values():
            older.append(name)
        else:
            raise ConfigError(f"{setting}: unknown cipher suite {name!r}")
    if newer and len(set(newer)) < len(TLS_1_3):
        raise ConfigError(f"{setting}: TLS 1.3 has either all of its suites or none: {', '.join(TLS_1_3)}")
    versions = (*(("TLSv1.2",) if older else ()), *(("TLSv1.3",) if newer else ()))
    return Ciphers(tuple(older), versions)
