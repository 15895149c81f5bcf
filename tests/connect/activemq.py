"""A real ActiveMQ for tests that run long. It needs Java, and the jars: from the project's cache, or brought into it
by Maven once. Otherwise the tests are skipped, with the reason."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import PROJECT
from benchmarks.peers.apache_kafka import Unavailable, find_executable, resolve
from ottla.cli.ports import pick_port
from tests.needs import skip_without

VERSION = "5.18.3"
JARS = PROJECT / ".cache" / f"activemq-{VERSION}" / "jars"
SERVER = Path(__file__).with_name("ActiveMQServer.java")
RESOLVE_S = 300
ARTIFACTS = (
    ("org.apache.activemq", "activemq-stomp", VERSION),
    ("org.apache.activemq", "activemq-jaas", VERSION),
    ("org.apache.activemq", "activemq-kahadb-store", VERSION),
    ("com.thoughtworks.xstream", "xstream", "1.4.20"),  # with jettison: map messages as JSON
    ("org.codehaus.jettison", "jettison", "1.5.4"),
    ("org.slf4j", "slf4j-nop", "1.7.36"),
)


class ActiveMQ:
    """A broker with the user `ottla` and its password `hush-hush`, which can be killed and started again."""

    def __init__(self, directory: Path) -> None:
        try:
            self._java = find_executable("java")
            if not JARS.is_dir():
                resolve(JARS, RESOLVE_S, ARTIFACTS)
        except Unavailable as reason:
            skip_without("ActiveMQ", str(reason))
        self._directory = directory
        self.port = pick_port()
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"stomp://127.0.0.1:{self.port}"

    def start(self) -> None:
        log = self._directory / "server.log"
        command = [self._java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*", str(SERVER)]
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [*command, str(self._directory / "data"), str(self.port)],
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


@contextmanager
def activemq(directory: Path) -> Iterator[ActiveMQ]:
    server = ActiveMQ(directory)
    server.start()
    try:
        yield server
    finally:
        server.kill()
