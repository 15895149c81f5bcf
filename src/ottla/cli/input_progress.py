"""How far `ottla produce` is in the files that it reads: a bar if all of them are files whose size is known."""

import os
import stat
import sys
from collections.abc import Sequence
from typing import BinaryIO, Self

from ottla.cli.output import counted
from ottla.cli.progress import ProgressLine, is_watched

STANDARD_INPUT = "-"


class InputProgress:
    """Used as a context manager around the work."""

    def __init__(self, names: Sequence[str], *, is_shown: bool) -> None:
        total = measure_files(names) if is_shown and is_watched() else None
        self._bar = ProgressLine("produce", total, is_shown=bool(total))
        self._file: BinaryIO | None = None
        self._before = 0
        """The bytes of the files that were read to their ends."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._bar.clear()

    def open_file(self, file: BinaryIO) -> None:
        """The next file is read from here on."""
        if not self._bar.is_shown:
            return
        if self._file is not None:
            self._before += _find_position(self._file)
        self._file = file

    def show(self, records: int) -> None:
        if self._bar.is_due() and self._file is not None:
            self._bar.show(self._before + _find_position(self._file), counted(records, "record"))


def measure_files(names: Sequence[str]) -> int | None:
    """The size of all files together; None if one of them is a pipe or a terminal, or is not there."""
    total = 0
    for name in names or (STANDARD_INPUT,):
        try:
            found = os.fstat(sys.stdin.fileno()) if name == STANDARD_INPUT else os.stat(name)
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        total += found.st_size
    return total


def _find_position(file: BinaryIO) -> int:
    """How much was read of a file; what was read of a file that is closed by now is its size."""
    if file.closed:
        return os.path.getsize(file.name)
    return file.tell()
