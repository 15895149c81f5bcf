"""Databases for tests of the JDBC connectors: a file of SQLite, and a server of PostgreSQL where it is installed."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import psutil
import pyarrow as pa

from ottla.connect.connector import Connector, ConnectorContext, SinkBatch
from ottla.connect.connectors.jdbc.connection_settings import make_dialect
from ottla.connect.connectors.jdbc.session import Session
from ottla.connect.data.record import Record
from ottla.connect.data.schema import Field, Schema, Type
from ottla.connect.settings.parsing import parse
from tests.needs import skip_without
from tests.patience import PATIENCE_S

T = TypeVar("T", bound=Connector)

ROW = Schema(
    Type.STRUCT,
    fields=(
        Field("id", Schema(Type.INT64)),
        Field("name", Schema(Type.STRING, optional=True)),
        Field("amount", Schema(Type.FLOAT64, optional=True)),
    ),
)
KEY = Schema(Type.INT64)


class Database:
    """A database by its URL."""

    def __init__(self, url: str, user: str | None = None) -> None:
        self.config = {"connection.url": url, **({"connection.user": user} if user else {})}
        values = {"connection.user": user, "connection.password": None, "db.timezone": "UTC"}
        self._dialect = make_dialect({"connection.url": url, **values})

    def open(self) -> AbstractContextManager[Session]:
        return self._dialect.open()

    def run(self, *statements: str) -> None:
        with self._dialect.open() as session:
            for each in statements:
                session.execute(each)
            session.commit()

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with self._dialect.open() as session:
            found: pa.Table = session.query(sql)
            return [tuple(row.values()) for row in found.to_pylist()]

    def make(self, kind: type[T], name: str = "jdbc", **config: Any) -> T:
        """A connector that has started. Names of settings have `_` for the dot."""
        given = {**self.config, **{key.replace("_", "."): str(value) for key, value in config.items()}}
        made = kind(parse(kind.settings, given), ConnectorContext(name, "workers", 1, {}))
        made.start()
        return made


class PostgreSqlServer:
    """A server in a directory. It refuses to run as root, who runs it as the user postgres."""

    def __init__(self, directory: Path, options: str = "") -> None:
        """`options` are more of the server's."""
        programs = _find_programs()
        self._prefix: list[str] = []
        if os.getuid() == 0:
            if shutil.which("runuser") is None:
                skip_without("PostgreSQL", "it does not run as root, and there is no runuser")
            self._prefix = ["runuser", "-u", "postgres", "--"]
            shutil.chown(directory, "postgres")
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            self.port = bound.getsockname()[1]
        data = str(directory / "data")
        self._run(str(programs / "initdb"), "-A", "trust", "-U", "postgres", "-N", "-D", data)
        self._control = [str(programs / "pg_ctl"), "-w", "-D", data, "-l", str(directory / "log")]
        self._options = f"-p {self.port} -h 127.0.0.1 -k {directory} {options}"
        self._pid_file = Path(data) / "postmaster.pid"

    def start(self) -> None:
        self._run(*self._control, "-o", self._options, "start")

    def stop(self) -> None:
        """As a crash: nothing is finished or written."""
        self._run(*self._control, "-m", "immediate", "stop")

    @property
    def process(self) -> psutil.Process:
        """The postmaster, whose children are all other processes of the server."""
        return psutil.Process(int(self._pid_file.read_text().split()[0]))

    def create(self, name: str) -> Database:
        """A database of its own for a test. It cannot be created in a transaction."""
        from adbc_driver_postgresql import dbapi

        place = f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres"
        with dbapi.connect(place, autocommit=True) as server, server.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
        return Database(f"jdbc:postgresql://127.0.0.1:{self.port}/{name}", "postgres")

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            [*self._prefix, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=PATIENCE_S, cwd="/"
        )
        assert done.returncode == 0, done.stderr.decode()


def _find_programs() -> Path:
    """The directory of initdb and pg_ctl; Debian has it outside the path. Without them the running test is skipped."""
    on_path = shutil.which("initdb")
    found = [Path(on_path).resolve().parent] if on_path else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not found or not (found[-1] / "pg_ctl").exists():
        skip_without("PostgreSQL", "initdb and pg_ctl are not installed")
    return found[-1]


@contextmanager
def postgresql_server(options: str = "") -> Iterator[PostgreSqlServer]:
    """Not in pytest's directory, which only the user who runs the tests may enter."""
    with TemporaryDirectory(prefix="ottla-jdbc-") as directory:
        server = PostgreSqlServer(Path(directory), options)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def make_records(start: int, rows: Sequence[Mapping[str, Any] | None], keys: Sequence[int] | None = None) -> SinkBatch:
    """Values of partition 0 of the topic `t`, without gaps; the key is the id unless it is given."""
    records = []
    for at, row in enumerate(rows):
        key = keys[at] if keys is not None else (row or {})["id"]
        schema = None if row is None else ROW
        value = None if row is None else {"name": None, "amount": None, **row}
        records.append(Record("t", value, schema, key, KEY, 1_000, [], 0, start + at))
    return SinkBatch("t", 0, start, start + len(rows), [records])
