"""A broker with a listener for each security protocol, its certificates and users, for tests of authentication."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import ottla.testing
from ottla.security.certificates import Issued, issue, make_authority
from ottla.security.jaas import PLAIN_MODULE, SCRAM_MODULE
from ottla.testing import LocalBroker

ALICE = "alice"
PASSWORD = 'a secret, [with] =odd "signs"'
BROKER, BROKER_PASSWORD = "broker", "broker-secret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

SCRAM_PASSWORD = "salted, [and] peppered"


def quote(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


PLAIN_USERS = (
    f'{PLAIN_MODULE} required username="{BROKER}" password="{BROKER_PASSWORD}" '
    f'user_{BROKER}="{BROKER_PASSWORD}" user_{ALICE}="{quote(PASSWORD)}";'
)
SCRAM_USERS = ",".join(
    f'{mechanism}=[name={name},password="{password}"]'
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    for name, password in ((ALICE, SCRAM_PASSWORD), (BROKER, BROKER_PASSWORD))
)


def password_of(mechanism: str) -> str:
    return PASSWORD if mechanism == "PLAIN" else SCRAM_PASSWORD


class Certificates:
    """An authority, and files of certificates that it has signed."""

    def __init__(self, directory: Path, name: str = "test authority") -> None:
        self.directory = directory
        self.now = datetime.now(UTC)
        self.authority = make_authority(name, self.now)
        self.ca = self.write("ca.pem", self.authority.certificate)

    def issue(self, name: str, **options: Any) -> Issued:
        return issue(self.authority, name, options.pop("now", self.now), **options)

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text)
        return path

    def broker(self, name: str = "broker", hosts: tuple[str, ...] = ("127.0.0.1", "localhost")) -> Path:
        """A PEM key store."""
        return self.write(f"{name}.pem", self.issue(name, hosts=hosts).pem)


def settings_of(certificates: Certificates) -> dict[str, str]:
    jaas = f'{SCRAM_MODULE} required username="{BROKER}" password="{BROKER_PASSWORD}";'
    return {
        "listeners": ",".join(
            f"{name}://127.0.0.1:0" for name in ("SASL_SSL", "SASL_PLAINTEXT", "SSL", "MUTUAL", "PLAINTEXT")
        ),
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL,MUTUAL:SSL,"
        "PLAINTEXT:PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_ssl.plain.sasl.jaas.config": PLAIN_USERS,
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": jaas,
        "sasl.jaas.config": PLAIN_USERS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.broker()),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/L,DEFAULT",
        "initial.scram.credentials": SCRAM_USERS,
    }


@contextmanager
def secured_broker(certificates: Certificates, **settings: str) -> Iterator[LocalBroker]:
    chosen: dict[str, Any] = {**settings_of(certificates), **settings}
    with ottla.testing.broker(**chosen) as broker:
        yield broker


def port_of(broker: LocalBroker, listener: str) -> int:
    return next(each.port for each in broker._listeners if each.name == listener)


def librdkafka(
    broker: LocalBroker, certificates: Certificates, listener: str, mechanism: str = "", **changes: Any
) -> Mapping[str, Any]:
    """Settings of a client of this listener."""
    protocol = {"MUTUAL": "SSL"}.get(listener, listener)
    settings: dict[str, Any] = {
        "bootstrap.servers": f"127.0.0.1:{port_of(broker, listener)}",
        "security.protocol": protocol.lower(),
        "log_level": 0,
        "error_cb": lambda error: None,
    }
    if "SSL" in protocol:
        settings["ssl.ca.location"] = str(certificates.ca)
    if protocol.startswith("SASL"):
        settings |= {"sasl.mechanism": mechanism, "sasl.username": ALICE, "sasl.password": password_of(mechanism)}
    return {**settings, **changes}
