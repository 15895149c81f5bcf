"""Security of a test's broker or cluster: certificates, users, and the settings of clients that may do everything.

The certificates are made once in a process, and their files are removed when it ends. Each broker or cluster has
passwords of its own. The user `admin` is a super user.

    ssl               TLS; clients show a certificate
    sasl_plaintext    PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 without encryption
    sasl_ssl          the same over TLS
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, NamedTuple

from ottla.security.certificates import Issued, issue, make_authority, make_trust_store
from ottla.testing.local import ADMIN

PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
STORE_PASSWORD: Final = "testing"
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
HOSTS: Final = ("localhost", "127.0.0.1", "::1")

_PASSWORD_BYTES: Final = 12


class Certificates(NamedTuple):
    """The files of this process's test authority. `key_file` and `key_store` are those of one client."""

    directory: str
    authority: Issued
    broker: Issued

    @property
    def authority_file(self) -> str:
        return os.path.join(self.directory, "ca.pem")

    @property
    def trust_store(self) -> str:
        return os.path.join(self.directory, "truststore.p12")

    def find_key_file(self, user: str) -> str:
        """The key and certificate of a client, one PEM file; made when it is first asked for."""
        path = os.path.join(self.directory, f"{user}.pem")
        if not os.path.exists(path):
            made = issue(self.authority, user, datetime.now(UTC), is_server=False)
            _write(path, made.pem.encode())
            _write(path.replace(".pem", ".p12"), made.make_pkcs12(user, STORE_PASSWORD, self.authority.certificate))
        return path


@cache
def make_certificates() -> Certificates:
    """An authority and a certificate for all brokers of this process."""
    directory = tempfile.mkdtemp(prefix="ottla-certificates-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    now = datetime.now(UTC)
    authority = make_authority("ottla.testing", now)
    made = Certificates(directory, authority, issue(authority, "broker", now, hosts=HOSTS))
    _write(made.authority_file, authority.certificate.encode())
    _write(made.trust_store, make_trust_store(authority.certificate, STORE_PASSWORD))
    return made


class TestSecurity:
    """The security of one broker or cluster."""

    __test__ = False  # for pytest, which looks for classes of this name

    def __init__(self, protocol: str, *, acls: bool, mechanism: str = "SCRAM-SHA-256") -> None:
        if protocol.lower() not in PROTOCOLS:
            raise ValueError(f"security={protocol!r}: there are {', '.join(PROTOCOLS)}")
        if mechanism.upper() not in MECHANISMS:
            raise ValueError(f"mechanism={mechanism!r}: there are {', '.join(MECHANISMS)}")
        self.protocol = protocol.lower()
        self.mechanism = mechanism.upper()
        self.acls = acls
        self._passwords = {ADMIN: _make_password()}

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("ssl")

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("sasl")

    def make_broker_settings(self) -> dict[str, str]:
        """By Kafka's names. One listener, whose name is that of its protocol."""
        listener = self.protocol.upper()
        found = {"listeners": f"{listener}://127.0.0.1:0"}
        if self.has_tls:
            certificates = make_certificates()
            found |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": certificates.broker.certificate,
                "ssl.keystore.key": certificates.broker.key,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": certificates.authority.certificate,
            }
        if self.protocol == "ssl":
            found["ssl.client.auth"] = "required"
        if self.has_sasl:
            password = self._passwords[ADMIN]
            module = "org.apache.kafka.common.security.plain.PlainLoginModule"
            login = f'username="{ADMIN}" password="{password}" user_{ADMIN}="{password}"'
            users = [f"{name}=[name={ADMIN},password={password}]" for name in MECHANISMS[1:]]
            found |= {
                "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                f"listener.name.{self.protocol}.plain.sasl.jaas.config": f"{module} required {login};",
                "initial.scram.credentials": ",".join(users),
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
            }
        if self.protocol != "plaintext":
            found["security.inter.broker.protocol"] = listener
        if self.acls:
            found["authorizer.class.name"] = AUTHORIZER
            found["super.users"] = ";".join({f"User:{ADMIN}", self.name_principal(ADMIN), self._broker_principal})
        return found

    @property
    def _broker_principal(self) -> str:
        return "User:CN=broker" if self.protocol == "ssl" else self.name_principal(ADMIN)

    def name_principal(self, user: str) -> str:
        """How ACLs and quotas name a user."""
        if self.protocol == "plaintext":
            return "User:ANONYMOUS"
        return f"User:CN={user}" if self.protocol == "ssl" else f"User:{user}"

    def find_password(self, user: str) -> str:
        return self._passwords[user]

    def add_user(self, user: str, password: str | None) -> None:
        self._passwords[user] = password or _make_password()

    def make_client_settings(self, user: str = ADMIN) -> dict[str, str]:
        """With librdkafka's names."""
        found = {"security.protocol": self.protocol}
        if self.has_tls:
            found["ssl.ca.location"] = make_certificates().authority_file
        if self.protocol == "ssl":
            key = make_certificates().find_key_file(user)
            found |= {"ssl.certificate.location": key, "ssl.key.location": key}
        if self.has_sasl:
            found |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": user,
                "sasl.password": self._passwords[user],
            }
        return found

    def make_java_settings(self, user: str = ADMIN) -> dict[str, str]:
        """With the names of the Java client."""
        found = {"security.protocol": self.protocol.upper()}
        if self.has_tls:
            certificates = make_certificates()
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": certificates.authority_file}
        if self.protocol == "ssl":
            store = certificates.find_key_file(user).replace(".pem", ".p12")
            found |= {
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": store,
                "ssl.keystore.password": STORE_PASSWORD,
            }
        if self.has_sasl:
            kind = "plain.Plain" if self.mechanism == "PLAIN" else "scram.Scram"
            login = f'username="{user}" password="{self._passwords[user]}"'
            found |= {
                "sasl.mechanism": self.mechanism,
                "sasl.jaas.config": f"org.apache.kafka.common.security.{kind}LoginModule required {login};",
            }
        return found


def choose_security(settings: Mapping[str, Any]) -> "tuple[TestSecurity | None, dict[str, Any]]":
    """The security that `security`, `acls` and `mechanism` ask for, and the other settings."""
    others = dict(settings)
    protocol, acls = others.pop("security", None), others.pop("acls", False)
    mechanism = others.pop("mechanism", "SCRAM-SHA-256")
    if protocol is None and not acls:
        return None, others
    return TestSecurity(protocol or "plaintext", acls=acls, mechanism=mechanism), others


def _make_password() -> str:
    return os.urandom(_PASSWORD_BYTES).hex()


def _write(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
