"""One JVM that runs many of Kafka's command line tools, one after the other, which saves the start of a JVM for each.

`ToolServer.java` is the program in that JVM, and describes the protocol.
"""

import contextlib
import os
import selectors
import struct
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("ToolServer.java")
TOOLS_JAR = "kafka-tools-[0-9]*.jar"

_NUMBER = struct.Struct(">i")


class Unanswered(Exception):
    """The server has ended, or cannot run here: only a whole JDK can run a class from its source."""


class Done(NamedTuple):
    """The exit status of a tool and what it printed."""

    status: int
    output: str
    errors: str


class ToolServer:
    """The JVM as a child process. Its protocol goes over standard input and output."""

    def __init__(self, java: str, options: Sequence[str], jars: Path) -> None:
        (tools,) = jars.glob(TOOLS_JAR)
        libraries = os.pathsep.join(sorted(str(jar) for jar in jars.glob("*.jar") if jar != tools))
        self._process = subprocess.Popen(
            [java, *options, "-cp", libraries, str(SOURCE), str(tools)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._lock = threading.Lock()

    def run(self, words: Sequence[str], stdin: str, timeout_seconds: float) -> Done:
        """Run one tool. Raises Unanswered or TimeoutExpired; the server has ended after either."""
        parts = [_NUMBER.pack(len(words))]
        for text in (*words, stdin):
            data = text.encode()
            parts += [_NUMBER.pack(len(data)), data]
        with self._lock:
            assert self._process.stdin is not None
            if self._process.stdin.closed:
                raise Unanswered(words[0])
            deadline = time.monotonic() + timeout_seconds
            try:
                self._process.stdin.write(b"".join(parts))
                self._process.stdin.flush()
                return Done(self._read_number(deadline), self._read_text(deadline), self._read_text(deadline))
            except TimeoutError:
                self.close()
                raise subprocess.TimeoutExpired(list(words), timeout_seconds) from None
            except (OSError, EOFError) as error:
                self.close()
                raise Unanswered(f"{words[0]}: {error!r}") from None

    def close(self) -> None:
        """Kill the JVM. May be called more than once."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):  # a request that the JVM did not read
                pipe.close()

    def _read_text(self, deadline: float) -> str:
        return self._read(self._read_number(deadline), deadline).decode()

    def _read_number(self, deadline: float) -> int:
        number: int
        (number,) = _NUMBER.unpack(self._read(_NUMBER.size, deadline))
        return number

    def _read(self, count: int, deadline: float) -> bytes:
        assert self._process.stdout is not None
        descriptor, found = self._process.stdout.fileno(), bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while len(found) < count:
                if not selector.select(max(deadline - time.monotonic(), 0)):
                    raise TimeoutError
                part = os.read(descriptor, count - len(found))
                if not part:
                    raise EOFError
                found += part
        return bytes(found)
