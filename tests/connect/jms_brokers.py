"""Real JMS brokers for tests that run long: ActiveMQ, with and without TLS, and Artemis. They need Java, and the jars:
from the project's cache, or brought into it by Maven once. Otherwise the tests are skipped, with the reason."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks import PROJECT
from benchmarks.peers.apache_kafka import Unavailable, find_executable, resolve
from ottla.cli.ports import pick_port
from ottla.testing.security import STORE_PASSWORD, make_certificates
from tests.needs import skip_without

SERVER = Path(__file__).with_name("JmsServer.java")
RESOLVE_S = 300
CLASSIC_VERSION, ARTEMIS_VERSION = "5.18.3", "2.38.0"
CLASSIC = (
    ("org.apache.activemq", "activemq-stomp", CLASSIC_VERSION),
    ("org.apache.activemq", "activemq-jaas", CLASSIC_VERSION),
    ("org.apache.activemq", "activemq-kahadb-store", CLASSIC_VERSION),
    ("com.thoughtworks.xstream", "xstream", "1.4.20"),  # with jettison: map messages as JSON
    ("org.codehaus.jettison", "jettison", "1.5.4"),
    ("org.slf4j", "slf4j-nop", "1.7.36"),
)
ARTEMIS = (
    ("org.apache.activemq", "artemis-server", ARTEMIS_VERSION),
    ("org.apache.activemq", "artemis-stomp-protocol", ARTEMIS_VERSION),
    ("org.apache.activemq", "artemis-jms-client", ARTEMIS_VERSION),
)
ARTEMIS_CONFIGURATION = """<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <name>tests</name>
    <security-enabled>false</security-enabled>
    <journal-type>NIO</journal-type>
    <paging-directory>{directory}/paging</paging-directory>
    <bindings-directory>{directory}/bindings</bindings-directory>
    <journal-directory>{directory}/journal</journal-directory>
    <large-messages-directory>{directory}/large-messages</large-messages-directory>
    <acceptors>
      <acceptor name="stomp">tcp://127.0.0.1:{port}?protocols=STOMP</acceptor>
      <acceptor name="inside">vm://0</acceptor>
    </acceptors>
  </core>
</configuration>
"""


class JmsBroker:
    """A broker with the user `ottla` and its password `hush-hush`, which can be killed and started again."""

    def __init__(self, directory: Path, name: str, artifacts: Sequence[tuple[str, str, str]]) -> None:
        self.name = name
        self._jars = PROJECT / ".cache" / name / "jars"
        try:
            self._java = find_executable("java")
            if not self._jars.is_dir():
                resolve(self._jars, RESOLVE_S, artifacts)
        except Unavailable as reason:
            skip_without("ActiveMQ", str(reason))
        self._directory = directory
        self.port = pick_port()
        self.url = f"stomp://127.0.0.1:{self.port}"
        self.options: list[str] = []
        """Of Java."""
        self.arguments = [str(directory / "data"), self.url]
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        log = self._directory / "server.log"
        command = [self._java, "-Xmx256m", "-XX:TieredStopAtLevel=1", *self.options, "-cp", f"{self._jars}/*"]
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [*command, str(SERVER), *self.arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
            )
        assert self._read_line() == "ready", log.read_text()[-3000:]

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def send(self, destination: str, kind: str, count: int, first: int = 0) -> None:
        """Messages of a JMS client: `text`, `bytes` or `map`. A topic's name has `topic:` before it."""
        self._write(f"send {destination} {kind} {count} {first}")
        assert self._read_line() == "sent"

    def take(self, destination: str, count: int) -> list[str]:
        """What a JMS client receives. There must not be more."""
        self._write(f"take {destination} {count}")
        found = []
        while (line := self._read_line()) != "end":
            found.append(line)
        return found

    def _write(self, line: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _read_line(self) -> str:
        assert self._process is not None and self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, (self._directory / "server.log").read_text()[-3000:]
        return line.rstrip("\n")


def make_classic(directory: Path) -> JmsBroker:
    return JmsBroker(directory, f"activemq-{CLASSIC_VERSION}", CLASSIC)


def make_classic_with_tls(directory: Path) -> JmsBroker:
    """Its certificate is signed by the authority of `ottla.testing`."""
    broker = make_classic(directory)
    certificates = make_certificates()
    store = directory / "keys.p12"
    store.write_bytes(certificates.broker.make_pkcs12("broker", STORE_PASSWORD, certificates.authority.certificate))
    broker.url = f"stomp+ssl://127.0.0.1:{broker.port}"
    broker.arguments[1] = broker.url
    broker.options = [
        f"-Djavax.net.ssl.keyStore={store}",
        "-Djavax.net.ssl.keyStoreType=PKCS12",
        f"-Djavax.net.ssl.keyStorePassword={STORE_PASSWORD}",
    ]
    return broker


def make_artemis(directory: Path) -> JmsBroker:
    broker = JmsBroker(directory, f"artemis-{ARTEMIS_VERSION}", ARTEMIS)
    configuration = directory / "broker.xml"
    configuration.write_text(ARTEMIS_CONFIGURATION.format(directory=directory / "data", port=broker.port))
    broker.arguments = [str(configuration)]
    return broker


@contextmanager
def running_broker(broker: JmsBroker) -> Iterator[JmsBroker]:
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()
