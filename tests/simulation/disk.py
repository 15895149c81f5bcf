"""A disk in memory that forgets what was not synced, fails on demand and stops the process at any operation.

Operations that change the disk are counted, so a test can run once, look at `operations` and run again for each of them
with `crash_at`. After a crash every operation raises `Crashed`, so that no clean-up code of the dead process reaches
the disk, until `crash()` says how the machine came back. Files that were open before the crash stay unusable.

The disk treats every unpinned file as if its descriptor had been closed to save descriptors: it looks the file up by
its path again, as `RealFile` would. So the use of a file after its rename without a new `path`, or after its deletion
without a pin, fails here always and not just sometimes.
"""

import errno
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from random import Random

from ottla.storage.files import Bytes, Space
from tests.simulation.platter import Directory, Entry, Inode, Namespace, Node, Truncation, Write

TRACE_LENGTH = 100_000
VOLUME_BYTES = 1 << 40
CHANGES = frozenset(
    (
        "create",
        "append",
        "write_at",
        "truncate",
        "fsync",
        "mkdir",
        "rmdir",
        "rename",
        "unlink",
        "fsync_directory",
    )
)


SHORTAGES = {
    "create": errno.ENOSPC,
    "append": errno.ENOSPC,
    "write_at": errno.ENOSPC,
    "truncate": errno.ENOSPC,
    "mkdir": errno.ENOSPC,
    "rename": errno.ENOSPC,
    "unlink": errno.ENOSPC,
    "open": errno.EMFILE,
    "reopen": errno.EMFILE,
    "read": errno.EMFILE,
    "list": errno.EMFILE,
    "fsync_directory": errno.EMFILE,
}
"""What a file system that copies on write, or a process with too many connections, answers to each operation. A failed
fsync is no shortage, whatever its error."""


class Crashed(BaseException):
    """The simulated process is dead. Not an Exception, so that no handler in the code under test catches it."""


@dataclass(slots=True)
class Fault:
    operation: str
    path: str
    number: int
    times: int | None


def _failure(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


class SimulatedFile:
    def __init__(self, disk: "SimulatedDisk", path: str, inode: Inode, *, writable: bool) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self._writable = writable
        self._lifetime = disk.lifetime
        self._pins = 0
        self._closed = False
        self._failure: int | None = None

    @property
    def size(self) -> int:
        return len(self._inode.cached)

    def append(self, data: Bytes) -> None:
        self._write("append", self.size, bytes(data))

    def write_at(self, position: int, data: Bytes) -> None:
        self._write("write_at", position, bytes(data))

    def read_at(self, position: int, length: int) -> bytes:
        self._use()
        self._disk.step("read_at", self.path)
        return bytes(self._inode.cached[position : position + max(length, 0)])

    def truncate(self, size: int) -> None:
        self._use(writing=True)
        self._disk.step("truncate", self.path)
        self._inode.change(Truncation(size))

    def fsync(self) -> None:
        if self._failure is not None:
            raise _failure(self._failure, self.path)
        self._use()
        try:
            self._disk.step("fsync", self.path)
        except OSError as error:
            self._failure = error.errno
            self._inode.lose_silently(self._disk.random)
            raise
        self._inode.sync()

    def pin(self) -> None:
        self._use()
        self._pins += 1

    def unpin(self) -> None:
        self._pins -= 1

    def close(self) -> None:
        self._closed = True

    def _write(self, operation: str, position: int, data: bytes) -> None:
        self._use(writing=True)
        try:
            self._disk.step(operation, self.path)
        except (OSError, Crashed):
            # A write that fails, or during which the process ends, may have written a part of its bytes.
            if self._disk.lifetime == self._lifetime and self._disk.strikes_now:
                data = data[: self._disk.random.randint(0, len(data))]
                self._inode.change(Write(position, data))
            raise
        self._inode.change(Write(position, data))

    def _use(self, *, writing: bool = False) -> None:
        if self._lifetime != self._disk.lifetime:
            raise Crashed(f"the process that had {self.path} open is gone")
        if self._pins:
            return
        if self._closed or (writing and not self._writable):
            raise _failure(errno.EBADF, self.path)
        if self._disk.node(self.path) is not self._inode:
            raise _failure(errno.ENOENT, self.path)
        self._disk.step("reopen", self.path)


class SimulatedLock:
    def __init__(self, held: dict[str, "SimulatedLock"], path: str) -> None:
        self._held = held
        self._path = path

    def close(self) -> None:
        if self._held.get(self._path) is self:
            del self._held[self._path]


class SimulatedDisk:
    """A deterministic disk: the same operations with an equally seeded `random` leave the same content after every
    crash."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.operations = 0
        """How many operations have changed the disk so far, including those that failed."""
        self.trace: deque[tuple[str, str]] = deque(maxlen=TRACE_LENGTH)
        self.lifetime = 0
        self._power_cuts = 0
        self.strikes_now = False
        """Whether a fault or the crash was set for the operation that is running."""
        self._names = Namespace()
        self._locks: dict[str, SimulatedLock] = {}
        self._faults: list[Fault] = []
        self._failures_at: dict[int, BaseException] = {}
        self.attempts = 0
        """How many operations there were that can run short of room or descriptors."""
        self._short_from: int | None = None
        self._short_times: int | None = None
        self._dead = False

    # What tests do to the disk

    def crash_at(self, operation: int) -> None:
        """End the process in the operation that would make `operations` this number."""
        self._failures_at[operation] = Crashed(f"at operation {operation}")

    def fail_at(self, operation: int, failure: Exception) -> None:
        self._failures_at[operation] = failure

    def fail(self, operation: str, number: int, path: str = "*", *, times: int | None = 1) -> None:
        """Let an operation on matching paths fail with this errno, so many times or (None) until `heal`."""
        self._faults.append(Fault(operation, path, number, times))

    def run_short(self, after: int, *, times: int | None = 1) -> None:
        """Let so many operations, or (None) all until `heal`, find neither room nor descriptors, after so many more."""
        self._short_from, self._short_times = self.attempts + after + 1, times

    def heal(self) -> None:
        self._short_from = None
        self._faults.clear()
        self._failures_at.clear()

    def crash(self, lose_unsynced: bool) -> None:
        """End the process: by a power cut if `lose_unsynced`, else by kill -9. Locks are released."""
        self.lifetime += 1
        self._dead = False
        self._locks = {}
        self._failures_at.clear()
        if lose_unsynced:
            self._power_cuts += 1
            self._names.cut_power(self.random)

    # What the broker does with it

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        self.step("open", path)
        node = self.node(path)
        if node is None and create:
            node = self._create(path)
        return SimulatedFile(self, path, self._inode(node, path), writable=True)

    def open_read(self, path: str) -> SimulatedFile:
        self.step("open", path)
        return SimulatedFile(self, path, self._inode(self.node(path), path), writable=False)

    def read(self, path: str) -> bytes:
        self.step("read", path)
        return bytes(self._inode(self.node(path), path).cached)

    def replace(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        if file.size:
            file.truncate(0)
        file.append(data)
        file.fsync()
        self.rename(temporary, path)
        self.fsync_directory(os.path.dirname(path))

    def exists(self, path: str) -> bool:
        self.step("exists", path)
        return self.node(path) is not None

    def list(self, path: str) -> Sequence[str]:
        self.step("list", path)
        return sorted(self._directory(path).cached)

    def size(self, path: str) -> int:
        self.step("size", path)
        return len(self._inode(self.node(path), path).cached)

    def space(self, path: str) -> Space:
        self.step("space", path)
        self._directory(path)
        return Space(VOLUME_BYTES, VOLUME_BYTES // 2)

    def place(self, path: str) -> str:
        return f"{self._power_cuts}{path}"

    def make_directory(self, path: str, *, durable: bool = True) -> bool:
        node = self.node(path)
        if isinstance(node, Directory):
            return False
        if node is not None:
            raise _failure(errno.EEXIST, path)
        parent = os.path.dirname(path)
        self.make_directory(parent)
        self.step("mkdir", path)
        self._names.change(self._entry(path, Directory()))
        if durable:
            self.fsync_directory(parent)
        return True

    def rename(self, source: str, target: str) -> None:
        self.step("rename", source)
        node = self._existing(source)
        there = self.node(target)
        if isinstance(there, Directory) and (there.cached or isinstance(node, Inode)):
            raise _failure(errno.ENOTEMPTY if isinstance(node, Directory) else errno.EISDIR, target)
        if isinstance(there, Inode) and isinstance(node, Directory):
            raise _failure(errno.ENOTDIR, target)
        self._names.change(self._entry(source, None), self._entry(target, node))

    def unlink(self, path: str) -> None:
        self.step("unlink", path)
        self._inode(self.node(path), path)
        self._names.change(self._entry(path, None))

    def remove_directory(self, path: str) -> None:
        self.step("rmdir", path)
        if self._directory(path).cached:
            raise _failure(errno.ENOTEMPTY, path)
        self._names.change(self._entry(path, None))

    def fsync_directory(self, path: str) -> None:
        self.step("fsync_directory", path)
        self._names.sync(self._directory(path))

    def lock(self, path: str) -> SimulatedLock:
        self.open(path, create=True)
        if path in self._locks:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), path)
        self._locks[path] = SimulatedLock(self._locks, path)
        return self._locks[path]

    # Faults and names

    def step(self, operation: str, path: str) -> None:
        """Count an operation that is about to happen, and fail or crash if it was chosen for that."""
        self.strikes_now = False
        if self._dead:
            raise Crashed(f"{operation} of {path} after the crash")
        if operation in CHANGES:
            self.operations += 1
            self.trace.append((operation, path))
            if (failure := self._failures_at.pop(self.operations, None)) is not None:
                self.strikes_now = True
                self._dead = isinstance(failure, Crashed)
                raise failure
        if operation in SHORTAGES:
            self.attempts += 1
            if self._short_from is not None and self.attempts >= self._short_from and self._short_times != 0:
                self.strikes_now = True
                self._short_times = None if self._short_times is None else self._short_times - 1
                raise _failure(SHORTAGES[operation], path)
        for fault in self._faults:
            if fault.operation == operation and fault.times != 0 and fnmatchcase(path, fault.path):
                self.strikes_now = True
                fault.times = None if fault.times is None else fault.times - 1
                raise _failure(fault.number, path)

    def node(self, path: str) -> Node | None:
        node: Node | None = self._names.root
        for name in _names(path):
            if not isinstance(node, Directory):
                return None
            node = node.cached.get(name)
        return node

    def _create(self, path: str) -> Inode:
        self.step("create", path)
        inode = Inode()
        self._names.change(self._entry(path, inode))
        return inode

    def _existing(self, path: str) -> Node:
        node = self.node(path)
        if node is None:
            raise _failure(errno.ENOENT, path)
        return node

    def _inode(self, node: Node | None, path: str) -> Inode:
        if isinstance(node, Inode):
            return node
        raise _failure(errno.ENOENT if node is None else errno.EISDIR, path)

    def _directory(self, path: str) -> Directory:
        node = self._existing(path)
        if isinstance(node, Inode):
            raise _failure(errno.ENOTDIR, path)
        return node

    def _entry(self, path: str, node: Node | None) -> Entry:
        return Entry(self._directory(os.path.dirname(path)), _names(path)[-1], node)


def _names(path: str) -> Sequence[str]:
    return [name for name in path.split("/") if name not in ("", ".")]
