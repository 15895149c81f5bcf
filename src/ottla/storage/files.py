"""The one file layer: everything that touches the disk goes through a `Disk`.

`Disk` and `File` are the interface. `RealDisk` is the operating system; the simulator has a disk that loses or tears
unsynced writes; tests wrap either to count, fail or crash at any operation.

A broker has tens of thousands of files and a few hundred descriptors. A `RealFile` therefore borrows its descriptor
from a pool, which closes descriptors that were not used lately and are not pinned; the next use opens the path again.
So code that renames an open file has to set its `path`.

Threads: one thread appends to a file, reads and pins it; others may fsync and read it at the same time. Each file has
a lock, which is held for the few instructions that choose its descriptor and for the write of an append, never for an
fsync or a read. The pool never waits for a file's lock: a file whose lock is taken keeps its descriptor.
"""

import errno
import fcntl
import os
import resource
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple, Protocol

from ottla.storage.disk_errors import FailedSync

Bytes = bytes | bytearray | memoryview


class File(Protocol):
    """One file. Appends go to its end; reads and writes name their position."""

    path: str
    """Code that renames the file while it is open sets this to the new path."""

    @property
    def size(self) -> int: ...

    def append(self, data: Bytes) -> None:
        """Write all of `data` at the end. If it fails the caller truncates to the size it knew."""

    def write_at(self, position: int, data: Bytes) -> None: ...

    def read_at(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""

    def truncate(self, size: int) -> None: ...

    def fsync(self) -> None:
        """May run in a thread. After a failure every later fsync of this file fails, too."""

    def pin(self) -> int | None:
        """A descriptor that stays valid until `unpin`, even if the file is deleted; None if there is none (memory)."""

    def unpin(self) -> None: ...

    def close(self) -> None:
        """End the use of the file. A pinned descriptor stays valid until the last `unpin`."""


class Space(NamedTuple):
    """Size of the volume that a directory is on, and how many bytes of it this process can still write."""

    total: int
    usable: int


class FileLock(Protocol):
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

    def space(self, path: str) -> Space: ...

    def place(self, path: str) -> str:
        """What tells this directory from a copy of it, and this run of the machine from others; empty if unknown.

        As long as it stays the same, everything that was written there can be read, synced or not.
        """

    def make_directory(self, path: str, *, durable: bool = True) -> bool:
        """Like mkdir -p, with fsync of each parent that gets a new entry. Without `durable`, not of the last one.

        Returns False if the directory was there.
        """

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""

    def fsync_directory(self, path: str) -> None: ...

    def lock(self, path: str) -> "FileLock":
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


_DESCRIPTORS_MIN = 64
_DESCRIPTORS_MAX = 1024
_FILE_MODE = 0o644
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_TEMPORARY = ".tmp"
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


def _sync(descriptor: int) -> None:
    """Write data to the disk, with the metadata that is needed to read it back.

    fdatasync is enough for an append: it includes the size of the file and leaves out only its times. On systems
    without fdatasync (macOS) only F_FULLFSYNC makes the disk itself write.
    """
    if _FULL_SYNC is not None:
        fcntl.fcntl(descriptor, _FULL_SYNC)
    else:
        os.fdatasync(descriptor)


def _write(descriptor: int, position: int, data: Bytes) -> None:
    """All of `data`, in as many writes as the system needs."""
    with memoryview(data) as rest:
        done = 0
        while done < len(rest):
            written = os.pwrite(descriptor, rest[done:], position + done)
            if written == 0:
                raise OSError(errno.EIO, "nothing was written")
            done += written


class RealFile:
    """A file of the operating system. Its size is kept in memory, because no other process writes to it."""

    __slots__ = ("_closed", "_descriptor", "_failure", "_flags", "_lock", "_pins", "_pool", "_used", "path", "size")

    def __init__(self, pool: "_Descriptors", path: str, flags: int) -> None:
        self.path = path
        self._pool = pool
        self._lock = Lock()
        self._pins = 0
        self._used = False
        self._closed = False
        self._failure: OSError | None = None
        self._flags = flags
        with self._lock:  # the pool knows the file before it has its descriptor
            self._descriptor = pool.open(self, path, flags)
        self._flags &= ~os.O_CREAT
        self.size = os.fstat(self._descriptor).st_size

    def append(self, data: Bytes) -> None:
        with self._lock:
            descriptor = self._descriptor
            if descriptor < 0:
                descriptor = self._reopen()
            self._used = True
            length = len(data)
            written = os.pwrite(descriptor, data, self.size)
            if written != length:
                with memoryview(data) as view:
                    _write(descriptor, self.size + written, view[written:])
            self.size += length

    def write_at(self, position: int, data: Bytes) -> None:
        descriptor = self.pin()
        try:
            _write(descriptor, position, data)
            self.size = max(self.size, position + len(data))
        finally:
            self.unpin()

    def read_at(self, position: int, length: int) -> bytes:
        descriptor = self.pin()
        try:
            if position + length > self.size and self._flags & os.O_ACCMODE == os.O_RDONLY:
                self.size = os.fstat(descriptor).st_size
            # Do not ask for more than there is: os.pread allocates as much as it is asked for.
            length = max(min(length, self.size - position), 0)
            data = os.pread(descriptor, length, position)
            while len(data) < length:
                more = os.pread(descriptor, length - len(data), position + len(data))
                if not more:
                    break
                data += more
            return data
        finally:
            self.unpin()

    def truncate(self, size: int) -> None:
        descriptor = self.pin()
        try:
            os.ftruncate(descriptor, size)
            self.size = size
        finally:
            self.unpin()

    def fsync(self) -> None:
        if self._failure is not None:
            # The system reports a lost write only once: a second fsync would succeed without writing it.
            raise OSError(self._failure.errno, f"an earlier fsync of {self.path} failed")
        descriptor = self.pin()
        try:
            _sync(descriptor)
        except OSError as error:
            self._failure = error
            raise
        finally:
            self.unpin()

    def pin(self) -> int:
        with self._lock:
            descriptor = self._descriptor
            if descriptor < 0:
                descriptor = self._reopen()
            self._used = True
            self._pins += 1
            return descriptor

    def unpin(self) -> None:
        with self._lock:
            self._pins -= 1
            if self._closed and not self._pins:
                self._shut()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if not self._pins:
                self._shut()

    def give_up(self) -> bool:
        """Close the descriptor, unless the file is in use or was lately. Returns whether it did. For the pool only."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._used or self._pins:
                self._used = False
                return False
            os.close(self._descriptor)
            self._descriptor = -1
            return True
        finally:
            self._lock.release()

    def _reopen(self) -> int:
        if self._closed:
            raise OSError(errno.EBADF, f"{self.path} is closed")
        self._descriptor = self._pool.open(self, self.path, self._flags)
        return self._descriptor

    def _shut(self) -> None:
        if self._descriptor >= 0:
            self._pool.forget(self)
            os.close(self._descriptor)
            self._descriptor = -1


class _Descriptors:
    """The files that have a descriptor, and the choice of one to close when there are too many.

    This is the second-chance algorithm: the oldest descriptor is closed, but a file that was used since the last look
    at it stays for another round. So an append only sets a flag; a list ordered by use would cost it a lock.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = Lock()
        self._files: OrderedDict[RealFile, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def open(self, file: RealFile, path: str, flags: int) -> int:
        with self._lock:
            while len(self._files) >= self._limit and self._close_one():
                pass
            while True:
                try:
                    descriptor = os.open(path, flags, _FILE_MODE)
                    break
                except OSError as error:
                    if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._close_one():
                        raise
            self._files[file] = None
            return descriptor

    def forget(self, file: RealFile) -> None:
        with self._lock:
            del self._files[file]

    def _close_one(self) -> bool:
        for _ in range(2 * len(self._files)):
            file, _ = self._files.popitem(last=False)
            if file.give_up():
                return True
            self._files[file] = None
        return False


class RealLock:
    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, _FILE_MODE)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        """The descriptor. A child process that inherits it holds the lock too, until it ends."""
        return self._descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class RealDisk:
    """The operating system's files, with at most `descriptors` of them open that are not pinned."""

    def __init__(self, descriptors: int | None = None) -> None:
        if descriptors is None:
            # A quarter of what the process may have: most are for connections.
            allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            share = _DESCRIPTORS_MAX if allowed == resource.RLIM_INFINITY else allowed // 4
            descriptors = min(max(share, _DESCRIPTORS_MIN), _DESCRIPTORS_MAX)
        self._descriptors = _Descriptors(descriptors)

    @property
    def open_files(self) -> int:
        """How many files have a descriptor now."""
        return len(self._descriptors)

    def open(self, path: str, *, create: bool = False) -> RealFile:
        return RealFile(self._descriptors, path, os.O_RDWR | (os.O_CREAT if create else 0))

    def open_read(self, path: str) -> RealFile:
        return RealFile(self._descriptors, path, os.O_RDONLY)

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def replace(self, path: str, data: bytes) -> None:
        temporary = path + _TEMPORARY
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE_MODE)
        try:
            _write(descriptor, 0, data)
            _sync(descriptor)
        finally:
            os.close(descriptor)
        try:
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise
        self.fsync_directory(os.path.dirname(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list(self, path: str) -> Sequence[str]:
        return sorted(os.listdir(path))

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def space(self, path: str) -> Space:
        volume = os.statvfs(path)
        return Space(volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize)

    def place(self, path: str) -> str:
        try:
            status = os.stat(path)
            with open(_BOOT_ID, encoding="ascii") as file:
                return f"{file.read().strip()}/{status.st_dev:x}/{status.st_ino:x}"
        except OSError:
            return ""

    def make_directory(self, path: str, *, durable: bool = True) -> bool:
        parent = os.path.dirname(os.path.abspath(path))
        try:
            os.mkdir(path)
        except OSError as error:
            if os.path.isdir(path):
                return False
            if not isinstance(error, FileNotFoundError) or os.path.isdir(parent):
                raise
            self.make_directory(parent)
            return self.make_directory(path, durable=durable)
        if durable:
            self.fsync_directory(parent)
        return True

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def fsync_directory(self, path: str) -> None:
        descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise FailedSync(error.errno, error.strerror, path) from error
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> RealLock:
        return RealLock(path)
