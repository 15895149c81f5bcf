"""A Python for Spark that connects back to the JVM at once, and imports PySpark afterwards.

Spark gives the Python process that plans a stream ten seconds from its start to its connection, and there is no setting
for it. Most of that time goes into imports, so on a busy machine a query would fail for being late. This executable
takes Python's place (PYSPARK_PYTHON): it connects, hands the connection to the real Python, and becomes it.
"""

import sys
from pathlib import Path

EXECUTABLE = """#!{python} -IS
import os, socket, struct, sys

arguments = sys.argv[1:]
port = os.environ.get("PYTHON_WORKER_FACTORY_PORT")
if port and arguments[:1] == ["-m"] and arguments[1:2] != ["pyspark.daemon"]:
    connection = socket.create_connection(("127.0.0.1", int(port)))
    secret = os.environ["PYTHON_WORKER_FACTORY_SECRET"].encode()
    connection.sendall(struct.pack("!i", len(secret)) + secret)
    assert connection.recv(6, socket.MSG_WAITALL) == b"\\0\\0\\0\\2ok"
    connection.set_inheritable(True)
    os.environ["OTTLA_WORKER_CONNECTION"] = str(connection.fileno())
    arguments = ["{second}", *arguments[1:]]
os.execv("{python}", ["{python}", *arguments])
"""

SECOND = """
import os, runpy, socket, sys
import pyspark.util

def connect(*_):
    connection = socket.socket(fileno=int(os.environ["OTTLA_WORKER_CONNECTION"]))
    return connection.makefile("rwb", 65536), connection

pyspark.util.local_connect_and_auth = connect
for module in ("pyspark.worker_util", "pyspark.sql.worker.utils"):
    if module in sys.modules:
        sys.modules[module].local_connect_and_auth = connect
del sys.path[0], sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def create_early_python(directory: Path) -> str:
    """Create the executable in a directory. Returns its path."""
    executable, second = directory / "early-python", directory / "early_python_second.py"
    second.write_text(SECOND)
    executable.write_text(EXECUTABLE.format(python=sys.executable, second=second))
    executable.chmod(0o755)
    return str(executable)
