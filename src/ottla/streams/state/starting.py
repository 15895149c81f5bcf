"""Starts state servers as processes."""

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Final, Self

import orjson

from ottla.streams.errors import StreamsError
from ottla.streams.state.tables import MEMORY_MB

_ARENAS: Final = "2"
"""Many threads with heaps of their own took 540 MB where two heaps take 425 MB."""


class ServerProcess:
    """A state server that ends with this process at the latest."""

    def __init__(
        self,
        directory: str,
        settings: Mapping[str, str],
        token: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        memory_mb: int = MEMORY_MB,
        stderr: IO[bytes] | int | None = None,
    ) -> None:
        """Starts the process and waits until it listens. `settings` are client settings of the cluster.

        StreamsError if the server ends instead; why is on its standard error.
        """
        options = {"directory": directory, "host": host, "port": port, "memory-mb": memory_mb}
        command = [sys.executable, "-m", "ottla.streams.state.server"]
        command += [f"--{name}={value}" for name, value in options.items()]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={"MALLOC_ARENA_MAX": _ARENAS, **os.environ},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(orjson.dumps({"settings": dict(settings), "token": token}) + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = b""
        if not line:
            self.kill()
            raise StreamsError(f"a state server for {directory} did not start; its standard error says why")
        self.address: str = orjson.loads(line)["address"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """Lets the server write its tables to files, and waits until it has ended."""
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended before it read everything
            self._process.stdin.close()
        self._finish()

    def kill(self) -> None:
        """Ends the server at once. What it loses is read again from the changelogs."""
        self._process.kill()
        self.stop()

    def _finish(self) -> None:
        assert self._process.stdout is not None
        self._process.wait()
        self._process.stdout.close()
