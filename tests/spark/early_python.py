"""A Python for Spark that connects back to the JVM at once, and imports PySpark afterwards.

Spark gives the Python process that plans a stream ten seconds from its start to its connection, and there is no setting
for it. Most of that time goes into imports, so on a busy machine a query would fail for being late. This executable
takes Python's place (PYSPARK_PYTHON): it connects, and hands the connection to a process that is forked from one which
has imported PySpark already (`fork_server.py`). Without such a server it becomes the real Python.
"""

import runpy
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.fork_server import HAND_OVER, run_fork_server

IMPORTED = (
    *("pyspark.worker", "pyspark.sql.worker.plan_data_source_read", "pyspark.sql.streaming.datasource"),
    *("pyspark_ottla", "pyspark_ottla.stream_reader", "pyspark_ottla.stream_writer", "ottla.spark.sinks"),
)

EXECUTABLE = """#!{python} -IS
import os, signal, socket, struct, sys
{hand_over}
arguments = sys.argv[1:]
port = os.environ.get("PYTHON_WORKER_FACTORY_PORT")
if port and arguments[:1] == ["-m"] and arguments[1:2] != ["pyspark.daemon"]:
    connection = socket.create_connection(("127.0.0.1", int(port)))
    secret = os.environ["PYTHON_WORKER_FACTORY_SECRET"].encode()
    connection.sendall(struct.pack("!i", len(secret)) + secret)
    assert connection.recv(6, socket.MSG_WAITALL) == b"\\0\\0\\0\\2ok"
    if "{server}":
        hand_over("{server}", arguments[1:], [0, 1, 2, connection.detach()])
    connection.set_inheritable(True)
    program = "from tests.spark.early_python import run; run(sys.argv[2:], [int(sys.argv[1])])"
    path = "import sys; sys.path[:0] = {paths}; "
    arguments = ["-c", path + program, str(connection.fileno()), *arguments[1:]]
os.execv("{python}", ["{python}", *arguments])
"""


@contextmanager
def run_early_python(directory: Path) -> Iterator[str]:
    """The path of the executable, and a server for it."""
    with run_fork_server("tests.spark.early_python") as server:
        yield create_early_python(directory, str(server))


def create_early_python(directory: Path, server: str = "") -> str:
    """Create the executable in a directory. Returns its path."""
    executable = directory / "early-python"
    paths = [str(Path(__file__).parents[2])]
    executable.write_text(EXECUTABLE.format(python=sys.executable, server=server, hand_over=HAND_OVER, paths=paths))
    executable.chmod(0o755)
    return str(executable)


def run(words: Sequence[str], connections: Sequence[int]) -> int:
    """A module of PySpark, as `python -m` runs it, with a connection that is there already."""
    import pyspark.util

    def connect(*_: object) -> tuple[Any, socket.socket]:
        connection = socket.socket(fileno=connections[0])
        return connection.makefile("rwb", 65536), connection

    pyspark.util.local_connect_and_auth = connect  # type: ignore[assignment]
    for module in ("pyspark.worker_util", "pyspark.sql.worker.utils"):
        if module in sys.modules:
            sys.modules[module].local_connect_and_auth = connect  # type: ignore[attr-defined]
    sys.argv = [*words]
    sys.modules.pop(words[0], None)
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    return 0
