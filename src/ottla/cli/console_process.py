"""The web console as a child of another command. It ends with its standard input, also if its parent was killed."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

STOP_S = 5.0


@contextmanager
def run_console(address: str, port: int, *, silent: bool = False) -> Iterator[None]:
    """Start the console of the cluster at `address`. It prints its own address, unless it is to be silent."""
    command = [sys.executable, "-m", "ottla", "console", "-b", address, "--port", str(port), "--with-parent"]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL if silent else None, start_new_session=True
    )
    try:
        yield
    finally:
        assert child.stdin is not None
        with suppress(OSError):
            child.stdin.close()
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
