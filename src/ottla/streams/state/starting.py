"""Starts state servers as processes."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from typing import IO, Final, Self

import orjson

from ottla.streams.errors import StreamsError
from ottla.streams.state.tables import MEMORY_MB

_ARENAS: Final = "2"
"""Many threads with heaps of their own took 540 MB where two heaps take 425 MB."""


def _make_command(options: Mapping[str, object]) -> list[str]:
    given = [f"--{name}={value}" for name, value in options.items()]
    return [sys.executable, "-m", "ottla.streams.state.server", *given]


def _make_environment() -> dict[str, str]:
    return {"MALLOC_ARENA_MAX": _ARENAS, **os.environ}


def _introduce(process: subprocess.Popen[bytes], settings: Mapping[str, str], token: str) -> str | None:
    """Tell a new server what it must know, and wait until it listens. Its address, or None if it has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(orjson.dumps({"settings": dict(settings), "token": token}) + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
    except OSError:
        line = b""
    address: str | None = orjson.loads(line)["address"] if line else None
    return address


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
        self._process = subprocess.Popen(
            _make_command(options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=_make_environment(),
        )
        address = _introduce(self._process, settings, token)
        if address is None:
            self.kill()
            raise StreamsError(f"a state server for {directory} did not start; its standard error says why")
        self.address: str = address

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


def start_detached(base: str, settings: Mapping[str, str], token: str, *, host: str, silence_s: float) -> str:
    """Starts a server that outlives this process, and returns its address. It ends when it is told to, or when nobody
    has asked it anything for `silence_s`.

    The server takes the first directory below `base` that no other server has, so it finds the tables that a server
    before it has left there. StreamsError if it does not start.
    """
    directory, lock = _claim_directory(base)
    options = {"directory": directory, "host": host, "silence-s": silence_s}
    try:
        with open(os.path.join(directory, "server.log"), "ab") as log:
            process = subprocess.Popen(
                _make_command(options),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_make_environment(),
                pass_fds=(lock,),
                start_new_session=True,
            )
    finally:
        os.close(lock)  # the server has it too, and the lock lasts as long as one of them does
    address = _introduce(process, settings, token)
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(OSError):  # it has ended before it read everything
        process.stdin.close()
    process.stdout.close()
    if address is None:
        process.wait()
        raise StreamsError(f"a state server for {directory} did not start; server.log in that directory says why")
    return address


def _claim_directory(base: str) -> tuple[str, int]:
    """A directory for one server, and the descriptor of its lock."""
    for number in count():
        directory = os.path.join(base, f"server-{number}")
        os.makedirs(directory, exist_ok=True)
        lock = os.open(os.path.join(directory, "server.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
        else:
            return directory, lock
    raise AssertionError("unreachable")
