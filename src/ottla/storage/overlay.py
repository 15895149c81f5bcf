"""A disk over another one that is never changed: everything that is written stays in memory and ends with the process.

A broker on it recovers, opens, renames and appends as on any disk, and the files below keep every byte. A changed file
consists of the first `kept` bytes of the file below and a tail in memory.
"""

import errno
import posixpath
from collections.abc import Sequence

from ottla.storage.files import Bytes, Disk, File, FileLock, Space

MEMORY_BYTES_MAX = 256 * 1024 * 1024


class _Budget:
    """The memory that all tails together take. Like a disk, it can be full."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def take(self, count: int) -> None:
        if self.used + count > self.limit:
            raise OSError(errno.ENOSPC, "the changes that a read-only broker keeps in memory have reached their limit")
        self.used += count


class _Content:
    """The content of a file."""

    __slots__ = ("_budget", "kept", "lower", "tail")

    def __init__(self, budget: _Budget, lower: File | None) -> None:
        self._budget = budget
        self.lower = lower
        self.kept = lower.size if lower is not None else 0
        self.tail = bytearray()

    @property
    def size(self) -> int:
        return self.kept + len(self.tail)

    @property
    def is_changed(self) -> bool:
        return self.lower is None or bool(self.tail) or self.kept < self.lower.size

    def read(self, position: int, length: int) -> bytes:
        end = min(position + length, self.size)
        below = b""
        if position < self.kept and self.lower is not None:
            below = self.lower.read_at(position, min(end, self.kept) - position)
        if end <= self.kept:
            return below
        return below + bytes(self.tail[max(position - self.kept, 0) : end - self.kept])

    def append(self, data: Bytes) -> None:
        self._budget.take(len(data))
        self.tail += data

    def truncate(self, size: int) -> None:
        if size > self.size:
            self.append(bytes(size - self.size))
            return
        cut = max(size - self.kept, 0)
        self._budget.used -= len(self.tail) - cut
        del self.tail[cut:]
        self.kept = min(self.kept, size)

    def write(self, position: int, data: Bytes) -> None:
        if self.read(position, len(data)) == bytes(data):
            return  # `write_again` after a failed fsync: the same bytes are in the file below
        after = self.read(position + len(data), self.size)
        self.truncate(position)
        self.append(data)
        self.append(after)


class OverlayFile:
    """An open file. All files that were opened by one name have the same content."""

    __slots__ = ("_content", "_pins", "path")

    def __init__(self, path: str, content: _Content) -> None:
        self.path = path
        self._content = content
        self._pins = 0

    @property
    def size(self) -> int:
        return self._content.size

    def append(self, data: Bytes) -> None:
        self._content.append(data)

    def write_at(self, position: int, data: Bytes) -> None:
        self._content.write(position, data)

    def read_at(self, position: int, length: int) -> bytes:
        return self._content.read(position, length)

    def truncate(self, size: int) -> None:
        self._content.truncate(size)

    def fsync(self) -> None:
        """Does nothing: no change outlives the process."""

    def pin(self) -> int | None:
        if self._content.is_changed or self._content.lower is None:
            return None
        descriptor = self._content.lower.pin()
        self._pins += descriptor is not None
        return descriptor

    def unpin(self) -> None:
        if self._pins and self._content.lower is not None:
            self._pins -= 1
            self._content.lower.unpin()

    def close(self) -> None:
        """Does nothing: the file below stays open for the next use, and the pool closes its descriptor."""


class _Directory:
    """Names that were created, looked up or removed on this disk. All others are those of the disk below."""

    __slots__ = ("children", "gone", "lower")

    def __init__(self, lower: str | None) -> None:
        self.lower = lower
        self.children: dict[str, _Directory | _Content] = {}
        self.gone: set[str] = set()


class _FreeLock:
    def close(self) -> None:
        """Does nothing: there is no lock."""


class OverlayDisk:
    def __init__(self, below: Disk, memory_bytes_max: int = MEMORY_BYTES_MAX) -> None:
        self._below = below
        self._budget = _Budget(memory_bytes_max)
        self._root = _Directory("/")

    # Finding

    def _find_child(self, directory: _Directory, name: str) -> "_Directory | _Content | None":
        known = directory.children.get(name)
        if known is not None or name in directory.gone or directory.lower is None:
            return known
        path = posixpath.join(directory.lower, name)
        found: _Directory | _Content
        try:
            self._below.list(path)
            found = _Directory(path)
        except NotADirectoryError:
            found = _Content(self._budget, self._below.open_read(path))
        except FileNotFoundError:
            return None
        directory.children[name] = found
        return found

    def _find(self, path: str) -> "_Directory | _Content | None":
        node: _Directory | _Content | None = self._root
        for name in _list_names(path):
            if not isinstance(node, _Directory):
                return None
            node = self._find_child(node, name)
        return node

    def _find_directory(self, path: str) -> _Directory:
        found = self._find(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if not isinstance(found, _Directory):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
        return found

    def _content(self, path: str) -> _Content:
        found = self._find(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if not isinstance(found, _Content):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        return found

    def _put(self, path: str, node: "_Directory | _Content") -> None:
        parent, name = posixpath.split(path)
        directory = self._find_directory(parent)
        directory.children[name] = node
        directory.gone.discard(name)

    def _take(self, path: str) -> "_Directory | _Content":
        found = self._find(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        parent, name = posixpath.split(path)
        directory = self._find_directory(parent)
        directory.children.pop(name, None)
        directory.gone.add(name)
        return found

    # Disk

    def open(self, path: str, *, create: bool = False) -> OverlayFile:
        if create and self._find(path) is None:
            self._put(path, _Content(self._budget, None))
        return OverlayFile(path, self._content(path))

    def open_read(self, path: str) -> OverlayFile:
        return OverlayFile(path, self._content(path))

    def read(self, path: str) -> bytes:
        content = self._content(path)
        return content.read(0, content.size)

    def replace(self, path: str, data: bytes) -> None:
        if self._find(path) is not None:
            self.unlink(path)
        content = _Content(self._budget, None)
        content.append(data)
        self._put(path, content)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def list(self, path: str) -> Sequence[str]:
        directory = self._find_directory(path)
        below = self._below.list(directory.lower) if directory.lower is not None else ()
        return sorted({*directory.children, *(name for name in below if name not in directory.gone)})

    def size(self, path: str) -> int:
        return self._content(path).size

    def space(self, path: str) -> Space:
        return Space(self._budget.limit, self._budget.limit - self._budget.used)

    def place(self, path: str) -> str:
        return ""

    def make_directory(self, path: str, *, durable: bool = True) -> bool:
        found = self._find(path)
        if isinstance(found, _Directory):
            return False
        if found is not None:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        self.make_directory(posixpath.dirname(path), durable=durable)
        self._put(path, _Directory(None))
        return True

    def rename(self, source: str, target: str) -> None:
        node = self._find(source)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", source)
        if source == target:
            return
        if target.startswith(f"{source}/"):
            raise OSError(errno.EINVAL, "Cannot move a directory into itself", source)
        if isinstance(node, _Content) and self._find(target) is not None:
            self.unlink(target)
        self._put(target, node)  # first: if this fails, the file keeps its old name
        self._take(source)

    def unlink(self, path: str) -> None:
        content = self._content(path)
        self._take(path)
        self._budget.used -= len(content.tail)

    def remove_directory(self, path: str) -> None:
        if self.list(path):
            raise OSError(errno.ENOTEMPTY, "Directory not empty", path)
        self._take(path)

    def fsync_directory(self, path: str) -> None:
        self._find_directory(path)

    def lock(self, path: str) -> FileLock:
        """Take the lock of a broker that writes, if its file exists and may be opened. That changes nothing on disk."""
        if not self._below.exists(path):
            return _FreeLock()
        try:
            return self._below.lock(path)
        except BlockingIOError:
            raise
        except OSError:
            return _FreeLock()  # a volume that nobody can write to needs no lock


def _list_names(path: str) -> list[str]:
    return [name for name in posixpath.abspath(path).split("/") if name]
