"""Both brokers with the same listeners: PLAINTEXT, SSL and SASL_PLAINTEXT, one certificate and one user of PLAIN."""

import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.peers.apache_kafka import ApacheKafka
from benchmarks.peers.broker_process import HOST, BrokerProcess
from benchmarks.peers.ottla_broker import build_environment
from ottla.cli.ports import pick_port
from ottla.security.certificates import issue, make_authority

USER, PASSWORD = "alice", "secret"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class Secured:
    """The settings that both brokers share, and the ports of their listeners."""

    def __init__(self, directory: Path, *, authorizer: bool) -> None:
        now = datetime.now(UTC)
        authority = make_authority("benchmark", now)
        self.ca = directory / "ca.pem"
        self.ca.write_text(authority.certificate)
        self.store = directory / "broker.pem"
        self.store.write_text(issue(authority, "broker", now, hosts=(HOST, "localhost")).pem)
        self.plain_port, self.ssl_port, self.sasl_port = pick_port(), pick_port(), pick_port()
        self.listeners = ",".join(
            f"{name}://{HOST}:{port}"
            for name, port in (
                ("PLAINTEXT", self.plain_port),
                ("SSL", self.ssl_port),
                ("SASL_PLAINTEXT", self.sasl_port),
            )
        )
        self.settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.store),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{MODULE} required user_{USER}="{PASSWORD}";',
            "log.segment.delete.delay.ms": "1000",
        }
        if authorizer:
            self.settings |= {"authorizer.class.name": AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}


class SecuredOttla(BrokerProcess):
    def __init__(self, *, authorizer: bool = False) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="ottla-secured-")
        directory = Path(self._temporary.name)
        self.secured = Secured(directory, authorizer=authorizer)
        command = [sys.executable, "-m", "ottla", "up", "--data", str(directory / "data")]
        for name, value in (self.secured.settings | {"listeners": self.secured.listeners}).items():
            command += ["--set", f"{name}={value}"]
        super().__init__("Ottla", command, self.secured.plain_port, directory / "output.txt", build_environment())

    def stop(self, timeout_seconds: float = 30) -> None:
        super().stop(timeout_seconds)
        self._temporary.cleanup()


class SecuredKafka(ApacheKafka):
    def __init__(self, *, authorizer: bool = False) -> None:
        self._certificates = tempfile.TemporaryDirectory(prefix="kafka-secured-")
        self.secured = Secured(Path(self._certificates.name), authorizer=authorizer)
        super().__init__(settings=self.secured.settings)
        properties = self.properties.read_text()
        controller = next(
            entry
            for line in properties.splitlines()
            if line.startswith("listeners=")
            for entry in line.split(",")
            if entry.startswith("CONTROLLER://")
        )
        protocols = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT")
        protocol_map = ",".join([*(f"{name}:{name}" for name in protocols), "CONTROLLER:PLAINTEXT"])
        self.properties.write_text(
            f"{properties}listeners={self.secured.listeners},{controller}\n"
            f"advertised.listeners={self.secured.listeners}\nlistener.security.protocol.map={protocol_map}\n"
        )
        self.port = self.secured.plain_port

    def stop(self, timeout_seconds: float = 30) -> None:
        super().stop(timeout_seconds)
        self._certificates.cleanup()


AnyBroker = SecuredOttla | SecuredKafka
