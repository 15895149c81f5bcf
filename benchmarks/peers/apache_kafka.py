"""A real Apache Kafka: its jars, a broker, and its command line tools.

Maven resolves the jars into `.cache/apache-kafka-<version>/jars` under the project root, once, from the repository that
the user's Maven is set up for. OTTLA_KAFKA_JARS names a directory of jars to use instead. Kafka's distribution is not
needed: the broker and every tool is a class in those jars.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from benchmarks import PROJECT
from benchmarks.peers.broker_process import HOST, BrokerProcess
from benchmarks.peers.tool_server import Done, ToolServer, Unanswered
from ottla.cli.ports import pick_port

VERSION = "4.3.1"
DEBEZIUM = "3.2.0.Final"
JARS_VARIABLE = "OTTLA_KAFKA_JARS"
CACHE = PROJECT / ".cache" / f"apache-kafka-{VERSION}"
Artifact = tuple[str, str, str]
"""Maven coordinates: group, name and version."""
ARTIFACTS: tuple[Artifact, ...] = (
    ("org.apache.kafka", "kafka_2.13", VERSION),
    ("org.apache.kafka", "kafka-tools", VERSION),
    ("org.apache.kafka", "kafka-streams", VERSION),
    ("org.apache.kafka", "connect-runtime", VERSION),
    ("org.apache.kafka", "connect-file", VERSION),
    ("org.slf4j", "slf4j-nop", "1.7.36"),
)
RESOLVE_SECONDS = 600
CLUSTER_ID = "b3R0bGEtYmVuY2htYXJrcw"
BROKER_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
)
SHORT_LIVED_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
"""JVM options that halve the time of a tool that runs for a second: little compilation, a simple garbage collector."""


_servers: list[ToolServer] | None = None
"""At most one server, which is started for the first tool. None: every tool has a JVM of its own."""


class Unavailable(Exception):
    """Apache Kafka cannot run on this machine. The message says what is missing."""


class ToolFailure(Exception):
    """A tool of Kafka ended with an error. The message is what it printed."""


def find_executable(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"{name} is not installed")
    return found


def find_jars(patience_seconds: float = RESOLVE_SECONDS) -> Path:
    """The directory with all jars. Resolves them first if they are not there yet."""
    if given := os.environ.get(JARS_VARIABLE):
        if not any(Path(given).glob("kafka-clients-*.jar")):
            raise Unavailable(f"{JARS_VARIABLE} names a directory without Kafka's jars: {given}")
        return Path(given)
    complete = CACHE / "jars"
    if not complete.is_dir():
        resolve(complete, patience_seconds, ARTIFACTS)
    return complete


def find_mirror_jars(patience_seconds: float = RESOLVE_SECONDS) -> Path:
    """The directory with MirrorMaker 2 and its client, without what is in `find_jars` already."""
    complete = PROJECT / ".cache" / f"kafka-mirror-{VERSION}" / "jars"
    if not complete.is_dir():
        artifacts = [("org.apache.kafka", name, VERSION) for name in ("connect-mirror", "connect-mirror-client")]
        resolve(complete, patience_seconds, artifacts, alone=True)
    return complete


def find_debezium_jars(patience_seconds: float = RESOLVE_SECONDS) -> Path:
    """The directory with Debezium's connectors for PostgreSQL and JDBC, and what they need."""
    complete = PROJECT / ".cache" / f"debezium-{DEBEZIUM}" / "jars"
    if not complete.is_dir():
        names = ("debezium-connector-postgres", "debezium-connector-jdbc")
        resolve(complete, patience_seconds, [("io.debezium", name, DEBEZIUM) for name in names])
    return complete


def resolve(complete: Path, patience_seconds: float, artifacts: Sequence[Artifact], *, alone: bool = False) -> None:
    """Have Maven copy the jars into a directory beside `complete`, and rename that to `complete` when all are there.

    `alone` leaves out the dependencies of the artifacts. Of the processes that want the same jars at a time, one asks
    Maven, and the others wait for it.
    """
    maven = find_executable("mvn")
    complete.parent.mkdir(parents=True, exist_ok=True)
    with complete.with_name(f"{complete.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not complete.is_dir():
                raise Unavailable(f"Maven could not resolve {artifacts[0][1]} for another process") from None
        if not complete.is_dir():
            _run_maven(maven, complete, patience_seconds, artifacts, alone=alone)


def _run_maven(
    maven: str, complete: Path, patience_seconds: float, artifacts: Sequence[Artifact], *, alone: bool
) -> None:
    partial = Path(tempfile.mkdtemp(prefix="jars-", dir=complete.parent))
    try:
        project = partial / "pom.xml"
        project.write_text(build_project_file(artifacts, alone=alone))
        command = [
            maven,
            "--batch-mode",
            "--quiet",
            "--file",
            str(project),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={partial}",
        ]
        options = " ".join((*SHORT_LIVED_JVM, os.environ.get("MAVEN_OPTS", "")))
        try:
            done = subprocess.run(
                command,
                env={**os.environ, "MAVEN_OPTS": options},
                capture_output=True,
                text=True,
                timeout=patience_seconds,
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"Maven did not resolve {artifacts[0][1]} within {patience_seconds:g} s") from None
        if done.returncode != 0:
            raise Unavailable(f"Maven could not resolve {artifacts[0][1]}: {done.stdout.strip()[-2000:]}")
        partial.rename(complete)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def build_project_file(artifacts: Sequence[Artifact] = ARTIFACTS, *, alone: bool = False) -> str:
    no_dependencies = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    dependencies = "\n".join(
        f"    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{no_dependencies if alone else ''}</dependency>"
        for group, artifact, version in artifacts
    )
    return f"""<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>ottla</groupId>
  <artifactId>apache-kafka-peer</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""


def java_command(
    class_name: str, *arguments: str, options: tuple[str, ...] = (), more_jars: Sequence[Path] = ()
) -> list[str]:
    """`more_jars` are directories of jars that are looked at after Kafka's own."""
    java = find_executable("java")
    path = os.pathsep.join(str(directory / "*") for directory in (find_jars(), *more_jars))
    return [java, *options, "-cp", path, class_name, *arguments]


def run_tool(class_name: str, *arguments: str, stdin: str = "", timeout_seconds: float = 300) -> str:
    """Run one of Kafka's command line classes. Returns what it printed on standard output, raises ToolFailure."""
    done = _run_in_server((class_name, *arguments), stdin, timeout_seconds)
    if done is None:
        command = java_command(class_name, *arguments, options=SHORT_LIVED_JVM)
        ended = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout_seconds)
        done = Done(ended.returncode, ended.stdout, ended.stderr)
    if done.status != 0:
        raise ToolFailure(f"{class_name} ended with status {done.status}: {done.output}{done.errors}")
    return done.output


@contextmanager
def share_one_jvm() -> Iterator[None]:
    """Within this context all tools run in one JVM, which is started for the first of them."""
    global _servers
    _servers = []
    try:
        yield
    finally:
        for server in _servers:
            server.close()
        _servers = None


def _run_in_server(words: Sequence[str], stdin: str, timeout_seconds: float) -> Done | None:
    """None if there is no server or it has ended: then the tool needs a JVM of its own."""
    if _servers is None:
        return None
    if not _servers:
        _servers.append(ToolServer(find_executable("java"), SHORT_LIVED_JVM, find_jars()))
    try:
        return _servers[0].run(words, stdin, timeout_seconds)
    except Unanswered:
        return None


class ApacheKafka(BrokerProcess):
    """One broker that is its own controller (KRaft), on free ports of the loopback address, in a formatted directory.

    `directory` is created if it is missing, and kept. Without it, a temporary directory is removed when the broker
    stops.
    """

    def __init__(
        self,
        directory: Path | None = None,
        settings: Mapping[str, str] | None = None,
        options: tuple[str, ...] = BROKER_OPTIONS,
    ) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="apache-kafka-") if directory is None else None
        self.directory = Path(self._temporary.name) if self._temporary else Path(directory or ".")
        self.directory.mkdir(parents=True, exist_ok=True)
        port = pick_port()
        self.properties = self.directory / "server.properties"
        lines = build_one_node_settings(port, pick_port(), self.directory / "data") | dict(settings or {})
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        format_options = ("--ignore-formatted", "-t", CLUSTER_ID, "-c", str(self.properties))
        run_tool("kafka.tools.StorageTool", "format", *format_options)
        command = java_command("kafka.Kafka", str(self.properties), options=options)
        super().__init__(f"Apache Kafka {VERSION}", command, port, self.directory / "output.txt")

    def stop(self, timeout_seconds: float = 30) -> None:
        super().stop(timeout_seconds)
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> "ApacheKafka":
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def build_one_node_settings(port: int, controller_port: int, data: Path) -> dict[str, str]:
    """Kafka's defaults, except that internal topics have one replica, because there is one node."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
