"""A process that has imported what short programs need, and forks for each of them.

Python's start and its imports take far longer than most commands and planning processes do. A program is a process with
its own standard streams, directory, environment and exit status, as ever. A script takes its place: it hands over its
words and its streams, and ends as the program ends.

    python -m tests.fork_server <socket> <module>      ends with its standard input

The module has `IMPORTED`, names of modules that start no thread, and `run(words, connections)`, which is the program;
the connections are descriptors that the script has handed over beside its streams.

An order is its length, and texts that are separated by a zero byte: the directory, the number of words, the words, the
environment. Its first byte brings the descriptors. The answer is the status, negative for a signal, as in `subprocess`.
SIGINT and SIGTERM that the script gets go to the program, each as a byte; if the script is killed, so is the program.
"""

import gc
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[1]
LENGTH = struct.Struct("!I")
STATUS = struct.Struct("!i")
DESCRIPTORS_MAX = 4

HAND_OVER = """
def hand_over(path, words, descriptors):
    texts = [os.getcwd(), str(len(words)), *words, *(f"{name}={value}" for name, value in os.environ.items())]
    order = b"\\0".join(map(os.fsencode, texts))
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [struct.pack("!I", len(order))], descriptors)
        connection.sendall(order)
        for each in descriptors[3:]:
            os.close(each)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: connection.send(bytes((number,))))
        (status,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
    if status < 0:
        signal.signal(-status, signal.SIG_DFL) if status != -signal.SIGKILL else None
        os.kill(os.getpid(), -status)
    os._exit(status)
"""
"""For scripts, which need os, signal, socket and struct."""


class Order(NamedTuple):
    directory: bytes
    words: list[bytes]
    environment: dict[bytes, bytes]
    descriptors: list[int]


@contextmanager
def run_fork_server(module: str) -> Iterator[Path]:
    """The path of its socket."""
    with TemporaryDirectory(prefix="ottla-") as directory:
        path = Path(directory) / "socket"
        paths = os.pathsep.join((str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")))
        with subprocess.Popen(
            [sys.executable, "-m", "tests.fork_server", str(path), module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths.rstrip(os.pathsep)},
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield path
            process.stdin.close()
            assert process.wait(PATIENCE_S) == 0


def serve(path: str) -> Order | None:
    """Fork for each order. Returns the order in the process that must run it, and None in the server, at its end."""
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as selector:
        listener.bind(path)
        listener.listen(64)
        selector.register(listener, selectors.EVENT_READ)
        selector.register(0, selectors.EVENT_READ)
        assert threading.active_count() == 1, "a fork would lose the threads"
        print("ready", flush=True)
        while all(key.fileobj is listener for key, _ in selector.select()):
            _reap(os.WNOHANG)
            connection, _ = listener.accept()
            with connection:
                order = receive_order(connection)
                if order is None:  # whoever had it was killed
                    continue
                if os.fork() == 0:
                    return run_and_answer(order, connection)
            for each in order.descriptors:
                os.close(each)
    _reap(0)
    return None


def receive_order(connection: socket.socket) -> Order | None:
    header, descriptors, _, _ = socket.recv_fds(connection, LENGTH.size, DESCRIPTORS_MAX)
    length = LENGTH.unpack(header)[0] if len(header) == LENGTH.size else 0
    data = connection.recv(length, socket.MSG_WAITALL) if length else b""
    if not length or len(data) != length:
        for each in descriptors:
            os.close(each)
        return None
    directory, count, *texts = data.split(b"\0")
    words, variables = texts[: int(count)], texts[int(count) :]
    return Order(directory, words, dict(_split(each) for each in variables), descriptors)


def _split(variable: bytes) -> tuple[bytes, bytes]:
    name, _, value = variable.partition(b"=")
    return name, value


def run_and_answer(order: Order, connection: socket.socket) -> Order | None:
    """Fork once more. Returns the order in the new process; the other one sends its status when it has ended."""
    child = os.fork()
    if child == 0:
        return order
    for each in order.descriptors:
        os.close(each)
    ended = os.pidfd_open(child)
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        selector.register(ended, selectors.EVENT_READ)
        while not any(key.fileobj == ended for key, _ in selector.select()):
            number = connection.recv(1) or bytes((signal.SIGKILL,))
            os.kill(child, number[0])
            if number[0] == signal.SIGKILL:
                break
    _, status = os.waitpid(child, 0)
    try:
        connection.sendall(STATUS.pack(os.waitstatus_to_exitcode(status)))
    except OSError:
        os._exit(1)
    os._exit(0)


def put_on(order: Order) -> None:
    """Let this process look as if it had just been started."""
    for number, stream in enumerate(order.descriptors[:3]):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(order.directory)
    os.environb.clear()
    os.environb.update(order.environment)
    sys.path[:0] = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each not in sys.path]
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as long as the process lives
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115


def _reap(options: int) -> None:
    """Take note of children that have ended: what they took counts as taken by this process."""
    try:
        while os.waitpid(-1, options)[0]:
            pass
    except ChildProcessError:
        return


if __name__ == "__main__":
    program = import_module(sys.argv[2])
    for name in program.IMPORTED:
        import_module(name)
    gc.freeze()
    if (given := serve(sys.argv[1])) is not None:
        put_on(given)
        sys.exit(program.run([os.fsdecode(word) for word in given.words], given.descriptors[3:]))
