"""The Python that Spark's tests run with: it connects first, and then becomes the requested Python."""

import os
import socket
import struct
import subprocess
from pathlib import Path

from tests.patience import PATIENCE_S
from tests.spark.early_python import create_early_python

WORKER = """
from pyspark.util import local_connect_and_auth
file, _ = local_connect_and_auth(None, None)
file.write(__name__.encode())
file.close()
"""


def test_a_worker_is_connected_before_it_begins(tmp_path: Path) -> None:
    # The worker gets from PySpark the connection that was made, and accepted by its secret, before PySpark was
    # imported.
    (tmp_path / "some_worker.py").write_text(WORKER)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        environment = {
            **os.environ,
            "PYTHONPATH": str(tmp_path),
            "PYTHON_WORKER_FACTORY_PORT": str(server.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": "secret",
        }
        with subprocess.Popen([create_early_python(tmp_path), "-m", "some_worker"], env=environment) as worker:
            connection, _ = server.accept()
            connection.settimeout(PATIENCE_S)
            with connection:
                assert connection.recv(10, socket.MSG_WAITALL) == struct.pack("!i", 6) + b"secret"
                connection.sendall(struct.pack("!i", 2) + b"ok")
                assert connection.recv(100, socket.MSG_WAITALL) == b"__main__"
            assert worker.wait(PATIENCE_S) == 0


def test_everything_else_is_plain_python(tmp_path: Path) -> None:
    command = [create_early_python(tmp_path), "-c", "import pyspark, sys; print(sys.argv)", "x y"]
    said = subprocess.run(command, capture_output=True, check=True, text=True, timeout=PATIENCE_S).stdout
    assert said == "['-c', 'x y']\n"
