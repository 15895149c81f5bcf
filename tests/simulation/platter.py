"""What a power cut leaves: files and directories that know what is in the page cache and what is on the platter.

Each write since a file's last fsync may survive, vanish or be torn, independently of the others, and the file's size
may be that after any of them. Each change of a directory since its last fsync may survive or vanish. A rename is one
change: the old and the new name change together, as they do in the journal of the file systems that we run on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

SECTOR = 512


@dataclass(slots=True, eq=False)
class Write:
    position: int
    data: bytes

    def apply(self, image: bytearray) -> None:
        put(image, self.position, self.data)

    def size_after(self, size: int) -> int:
        return max(size, self.position + len(self.data))


@dataclass(slots=True, eq=False)
class Truncation:
    size: int

    def apply(self, image: bytearray) -> None:
        resize(image, self.size)

    def size_after(self, size: int) -> int:
        return self.size


def put(image: bytearray, position: int, data: bytes) -> None:
    if len(image) < position:
        resize(image, position)
    image[position : position + len(data)] = data


def resize(image: bytearray, size: int) -> None:
    if size < len(image):
        del image[size:]
    else:
        image.extend(bytes(size - len(image)))


@dataclass(slots=True, eq=False)
class Inode:
    """A file's content: `cached` is what programs see, `durable` with any part of `pending` what a power cut leaves."""

    cached: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Write | Truncation] = field(default_factory=list)

    def change(self, change: Write | Truncation) -> None:
        change.apply(self.cached)
        self.pending.append(change)

    def sync(self) -> None:
        for change in self.pending:
            change.apply(self.durable)
        self.pending.clear()

    def lose_silently(self, random: Random) -> None:
        """Simulate a failed fsync: the system drops what it could not write, and the next fsync finds nothing to do."""
        self.durable = self._survivor(random)
        self.pending.clear()

    def cut_power(self, random: Random) -> None:
        self.durable = self._survivor(random)
        self.cached = bytearray(self.durable)
        self.pending.clear()

    def _survivor(self, random: Random) -> bytearray:
        image = bytearray(self.durable)
        size = len(image)
        if not self.pending:
            return image
        mood = random.choice(("nothing", "everything", "anything", "anything"))
        if mood == "nothing":
            return image
        sizes = [size]
        for change in self.pending:
            sizes.append(size := change.size_after(size))
            pieces: Sequence[Write | Truncation] = [change] if mood == "everything" else _survivors(change, random)
            for piece in pieces:
                piece.apply(image)
        resize(image, sizes[-1] if mood == "everything" or random.random() < 0.5 else random.choice(sizes))
        return image


def _survivors(change: Write | Truncation, random: Random) -> Sequence[Write | Truncation]:
    """Which parts of one change reach the platter."""
    if isinstance(change, Truncation):
        return [change] if random.random() < 0.5 else []
    return _pieces(change, random)


def _pieces(write: Write, random: Random) -> list[Write]:
    match random.choice(("all", "none", "bytes", "sectors", "some sectors")):
        case "all":
            return [write]
        case "none":
            return []
        case "bytes":
            return [Write(write.position, write.data[: random.randint(0, len(write.data))])]
        case "sectors":
            sectors = _sectors(write)
            return sectors[: random.randint(0, len(sectors))]
        case _:
            return [sector for sector in _sectors(write) if random.random() < 0.5]


def _sectors(write: Write) -> list[Write]:
    """Split the write at the borders of the disk's sectors."""
    end = write.position + len(write.data)
    borders = [write.position, *range((write.position // SECTOR + 1) * SECTOR, end, SECTOR), end]
    return [
        Write(start, write.data[start - write.position : stop - write.position]) for start, stop in pairwise(borders)
    ]


@dataclass(slots=True, eq=False)
class Directory:
    cached: "dict[str, Node]" = field(default_factory=dict)
    durable: "dict[str, Node]" = field(default_factory=dict)


Node = Inode | Directory


@dataclass(slots=True, eq=False)
class Entry:
    """A change of one name in a directory: it leads to `node`, or is removed if there is none."""

    directory: Directory
    name: str
    node: Node | None

    def apply(self, *, durable: bool) -> None:
        entries = self.directory.durable if durable else self.directory.cached
        if self.node is None:
            entries.pop(self.name, None)
        else:
            entries[self.name] = self.node


class Namespace:
    """All names of a disk, and the changes of directories that are not synced yet."""

    def __init__(self) -> None:
        self.root = Directory()
        self._pending: list[tuple[Entry, ...]] = []

    def change(self, *entries: Entry) -> None:
        """Apply one change of one or two names. It is visible at once, and durable after an fsync of a directory it
        touches."""
        for entry in entries:
            entry.apply(durable=False)
        self._pending.append(entries)

    def sync(self, directory: Directory) -> None:
        waiting = []
        for entries in self._pending:
            if any(entry.directory is directory for entry in entries):
                for entry in entries:
                    entry.apply(durable=True)
            else:
                waiting.append(entries)
        self._pending = waiting

    def cut_power(self, random: Random) -> None:
        mood = random.choice(("nothing", "everything", "anything", "anything"))
        for entries in self._pending:
            if mood == "everything" or (mood == "anything" and random.random() < 0.5):
                for entry in entries:
                    entry.apply(durable=True)
        self._pending.clear()
        self._settle(self.root, random, set())

    def _settle(self, directory: Directory, random: Random, settled: set[int]) -> None:
        directory.cached = dict(directory.durable)
        for name in sorted(directory.cached):
            node = directory.cached[name]
            if isinstance(node, Directory):
                self._settle(node, random, settled)
            elif id(node) not in settled:  # if the first of two renames was lost, the file has two names
                node.cut_power(random)
                settled.add(id(node))
