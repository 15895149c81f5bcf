"""The process in which compactions happen: neither the interpreter's lock nor memory is shared with the broker.

The broker starts the child for the first order and ends it when there is nothing more to do. Pickled values go over two
pipes: an order in, then for every report out a reply that lets the child continue. So a child whose broker is gone
notices that at its next report and ends, and the child waits while the broker swaps a segment in or limits the pace.
The child reads and writes only in the directory that an order names.
"""

import errno
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Any

from ottla.storage.cleaner.order import (
    GIVEN_UP,
    BytesProcessed,
    Cleaned,
    CompactionOrder,
    NoProcess,
    Report,
    Uncleanable,
)
from ottla.storage.disk_errors import describe_error
from ottla.storage.files import Disk, RealDisk

NICENESS = 5
"""Compaction gets the processor time that serving clients leaves."""

_GO_ON = True
_SHORTAGES = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""Errors of a fork that pass: too many processes, no memory, no descriptors for the pipes. EAGAIN does not pass if a
file operation answers it, so it is none of the shortages of `disk_errors`."""


class ChildCompactor:
    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._begun = False

    def begin(self, order: CompactionOrder) -> None:
        if self._child is None:
            self._child = _start()
        self._begun = True
        _send(self._child.stdin, order)

    def step(self) -> Report:
        child = self._child
        if child is None:
            raise Uncleanable(GIVEN_UP)
        if not self._begun:
            _send(child.stdin, _GO_ON)
        self._begun = False
        try:
            report = pickle.load(_pipe(child.stdout))
        except (EOFError, pickle.UnpicklingError, ValueError):
            self.end()
            raise Uncleanable(f"the compacting process ended with status {child.returncode}") from None
        if isinstance(report, Exception):
            raise report
        return report  # type: ignore[no-any-return]

    def end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                with suppress(OSError):
                    _pipe(pipe).close()


def _start() -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },  # the child finds ottla where this process did
            start_new_session=True,  # Ctrl-C is for the broker, which ends this one
        )
    except OSError as error:
        if error.errno in _SHORTAGES:
            raise NoProcess(f"cannot start the compacting process: {describe_error(error)}") from None
        raise


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _send(pipe: IO[bytes] | None, value: Any) -> None:
    try:
        pickle.dump(value, _pipe(pipe))
        _pipe(pipe).flush()
    except (BrokenPipeError, ValueError):
        pass  # the child is gone, which shows when its next report is read


# In the child


def serve(orders: IO[bytes], reports: IO[bytes]) -> None:
    """Carry out orders until the broker closes a pipe."""
    disk = RealDisk()
    with suppress(EOFError, BrokenPipeError):
        while True:
            for report in _reports(disk, pickle.load(orders)):
                pickle.dump(report, reports)
                reports.flush()
                if isinstance(report, BytesProcessed | Cleaned):
                    pickle.load(orders)


def _reports(disk: Disk, order: CompactionOrder) -> Iterator[Report | Exception]:
    from ottla.storage.cleaner.compaction import compact  # the broker, which imports this module too, never compacts

    try:
        yield from compact(disk, order)
    except (OSError, Uncleanable) as error:
        yield error
    except MemoryError:
        yield Uncleanable("there is not enough memory")


if __name__ == "__main__":
    os.nice(NICENESS)
    serve(sys.stdin.buffer, sys.stdout.buffer)
