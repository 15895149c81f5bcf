"""A PostgreSQL server of this machine, in a directory of its own. It needs initdb and pg_ctl."""

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from benchmarks.peers.apache_kafka import Unavailable
from benchmarks.peers.broker_process import HOST

COMMAND_SECONDS = 300.0
USER = "postgres"
LOGICAL = "-c wal_level=logical -c fsync=off -c max_replication_slots=20 -c max_wal_size=4GB"
"""Options of a server whose changes are captured, and whose data nobody misses after a power cut."""


class PostgreSqlServer:
    """It is not started. It refuses to run as root, who runs it as the user postgres. Raises Unavailable."""

    def __init__(self, directory: Path, options: str = "") -> None:
        """`options` are more of the server's."""
        programs = find_programs()
        self._prefix: list[str] = []
        if os.getuid() == 0:
            if shutil.which("runuser") is None:
                raise Unavailable("PostgreSQL does not run as root, and there is no runuser")
            self._prefix = ["runuser", "-u", USER, "--"]
            shutil.chown(directory, USER)
        with socket.socket() as bound:
            bound.bind((HOST, 0))
            self.port: int = bound.getsockname()[1]
        data = directory / "data"
        self._run(str(programs / "initdb"), "-A", "trust", "-U", USER, "-N", "-D", str(data))
        self._control = [str(programs / "pg_ctl"), "-w", "-D", str(data), "-l", str(directory / "log")]
        self._options = f"-p {self.port} -h {HOST} -k {directory} {options}"
        self._pid_file = data / "postmaster.pid"

    def start(self) -> None:
        self._run(*self._control, "-o", self._options, "start")

    def stop(self) -> None:
        """As a crash: nothing is finished or written."""
        self._run(*self._control, "-m", "immediate", "stop")

    @property
    def process(self) -> psutil.Process:
        """The postmaster, whose children are all other processes of the server."""
        return psutil.Process(int(self._pid_file.read_text().split()[0]))

    def run(self, sql: str, database: str = "postgres") -> None:
        """Each statement is a transaction of its own."""
        from adbc_driver_postgresql import dbapi

        place = f"host={HOST} port={self.port} user={USER} dbname={database}"
        with dbapi.connect(place, autocommit=True) as server, server.cursor() as cursor:
            for statement in filter(str.strip, sql.split(";")):
                cursor.execute(statement)

    def query_number(self, sql: str, database: str = "postgres") -> int:
        with self.open_query(sql, database) as ask:
            return ask()

    @contextmanager
    def open_query(self, sql: str, database: str = "postgres") -> Iterator[Callable[[], int]]:
        """A query for a number that is asked often: all use one connection, because a new one is dear."""
        from adbc_driver_postgresql import dbapi

        place = f"host={HOST} port={self.port} user={USER} dbname={database}"
        with dbapi.connect(place, autocommit=True) as server, server.cursor() as cursor:

            def ask() -> int:
                cursor.execute(sql)
                return int(cursor.fetchone()[0])

            yield ask

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            [*self._prefix, *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=COMMAND_SECONDS,
            cwd="/",
        )
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]} ended with status {done.returncode}: {done.stderr.decode()}")


def find_programs() -> Path:
    """The directory of initdb and pg_ctl; Debian has it outside the path."""
    on_path = shutil.which("initdb")
    found = [Path(on_path).resolve().parent] if on_path else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not found or not (found[-1] / "pg_ctl").exists():
        raise Unavailable("initdb and pg_ctl of PostgreSQL are not installed")
    return found[-1]


@contextmanager
def run_postgresql(options: str = "") -> Iterator[PostgreSqlServer]:
    """A server that runs, in a temporary directory that its user may enter."""
    with TemporaryDirectory(prefix="ottla-postgresql-") as directory:
        server = PostgreSqlServer(Path(directory), options)
        server.start()
        try:
            yield server
        finally:
            server.stop()
