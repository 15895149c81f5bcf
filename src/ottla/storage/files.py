"""The one file layer: everything that touches the disk goes through a `Disk`.

`Disk` and `File` are the interface. `RealDisk` is the operating system; the simulator has a disk that loses or tears
unsynced writes; tests wrap either to count, fail or crash at any operation.
"""

from collections.abc import Sequence
from typing import Protocol

Bytes = bytes | bytearray | memoryview


class File(Protocol):
    """One file. Appends go to its end; reads and writes name their position."""

    path: str

    @property
    def size(self) -> int: ...

    def append(self, data: Bytes) -> None:
        """Write all of `data` at the end. If it fails the caller truncates to the size it knew."""

    def write_at(self, position: int, data: Bytes) -> None: ...

    def read_at(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""

    def truncate(self, size: int) -> None: ...

    def fsync(self) -> None:
        """May run in a thread. A failure is final for this file: never retried and taken for success."""

    def pin(self) -> int | None:
        """A descriptor that stays valid until `unpin`, even if the file is deleted; None if there is none (memory)."""

    def unpin(self) -> None: ...

    def close(self) -> None: ...


class Disk(Protocol):
    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and appending. FileNotFoundError unless it exists or `create`."""

    def open_read(self, path: str) -> File: ...

    def read(self, path: str) -> bytes: ...

    def replace(self, path: str, data: bytes) -> None:
        """Write a whole small file atomically: temporary file, fsync, rename, fsync of the directory."""

    def exists(self, path: str) -> bool: ...

    def list(self, path: str) -> Sequence[str]:
        """Names in a directory, sorted. FileNotFoundError if there is none."""

    def size(self, path: str) -> int: ...

    def make_directory(self, path: str) -> None:
        """Like mkdir -p, with fsync of each parent that got a new entry."""

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None: ...

    def link(self, source: str, target: str) -> None: ...

    def fsync_directory(self, path: str) -> None: ...

    def lock(self, path: str) -> object:
        """An exclusive lock held until the returned object is closed; BlockingIOError if another has it."""


class FileSlice:
    """Bytes [position, position + length) of a file, to be sent without passing through Python."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: File, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def read(self) -> bytes:
        return self.file.read_at(self.position, self.length)
