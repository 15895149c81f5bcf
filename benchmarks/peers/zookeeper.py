"""ZooKeeper servers as child processes, from the jars that PySpark brings."""

import contextlib
import signal
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from benchmarks.peers.apache_kafka import Unavailable, find_executable
from benchmarks.peers.broker_process import HOST, StartFailure, find_free_port

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
OPTIONS = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
TICK_MS = 500
SHORTEST_SESSION_MS = 500
LONGEST_SESSION_MS = 60_000
START_SECONDS = 120.0
ANSWER_SECONDS = 2.0
PROBE_PAUSE_SECONDS = 0.02


def find_jars() -> Path:
    """PySpark's directory of jars, in which ZooKeeper is."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise Unavailable("PySpark, whose jars have ZooKeeper, is not installed")
    jars = Path(found.origin).parent / "jars"
    if not any(jars.glob("zookeeper-[0-9]*.jar")):
        raise Unavailable(f"{jars} has no ZooKeeper")
    return jars


class ZooKeeperServer:
    """One server. It can be killed, paused and started again on its port, with its data."""

    def __init__(self, directory: Path, port: int, ensemble: tuple[str, ...] = (), number: int = 1) -> None:
        self.port = port
        self.directory = directory
        self._output = directory / "output.txt"
        data = directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(f"{number}\n")
        lines = [
            f"tickTime={TICK_MS}",
            f"minSessionTimeout={SHORTEST_SESSION_MS}",
            f"maxSessionTimeout={LONGEST_SESSION_MS}",
            "initLimit=40",
            "syncLimit=10",
            f"dataDir={data}",
            f"clientPort={port}",
            f"clientPortAddress={HOST}",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr",
            *(f"server.{index}={address}" for index, address in enumerate(ensemble, 1)),
        ]
        self._config = directory / "zoo.cfg"
        self._config.write_text("\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process_id(self) -> int:
        return self._running().pid

    def spawn(self) -> None:
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [find_executable("java"), *OPTIONS, "-cp", str(find_jars() / "*"), MAIN, str(self._config)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def await_serving(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._is_serving():
            if self._running().poll() is not None or time.monotonic() > deadline:
                printed = self._output.read_text(errors="replace")[-2000:]
                raise StartFailure(f"ZooKeeper does not serve on {HOST}:{self.port}: {printed}")
            time.sleep(PROBE_PAUSE_SECONDS)

    def start(self) -> None:
        self.spawn()
        self.await_serving()

    def send_signal(self, number: signal.Signals) -> None:
        self._running().send_signal(number)

    def kill(self) -> None:
        """kill -9; its data stays."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _is_serving(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), ANSWER_SECONDS) as connection:
            connection.sendall(b"srvr")
            return connection.makefile("rb").read().startswith(b"Zookeeper version")
        return False

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("ZooKeeper is not running")
        return self._process


class ZooKeeper:
    """An ensemble of one or several servers."""

    def __init__(self, directory: Path, servers: int = 1) -> None:
        ports = [(find_free_port(), find_free_port(), find_free_port()) for _ in range(servers)]
        ensemble = tuple(f"{HOST}:{peer}:{election}" for _, peer, election in ports) if servers > 1 else ()
        self.servers = [
            ZooKeeperServer(directory / f"zookeeper-{number}", port, ensemble, number)
            for number, (port, _, _) in enumerate(ports, 1)
        ]

    @property
    def addresses(self) -> str:
        return ",".join(f"{HOST}:{server.port}" for server in self.servers)

    def start(self) -> None:
        for server in self.servers:
            server.spawn()
        for server in self.servers:
            server.await_serving()

    def stop(self) -> None:
        for server in self.servers:
            server.kill()

    def __enter__(self) -> "ZooKeeper":
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
