"""The aborted transactions of a segment, and Kafka's `.txnindex` file.

    int16 version (0), int64 producer id, int64 first offset, int64 last offset, int64 last stable offset

An entry is in the segment that contains the abort marker, whose offset is the entry's last offset. Its last stable
offset is that of the log right after the marker was appended: a reader whose range ends at or before it need not look
at later entries. The file is created with the first entry.
"""

from bisect import bisect_left
from operator import attrgetter
from struct import Struct
from typing import NamedTuple

from ottla.storage.files import Disk
from ottla.storage.index import CorruptIndex

_ENTRY = Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """Entries are read on first use and then kept: aborts are rare."""

    __slots__ = ("_disk", "_entries", "_is_outdated", "_is_torn", "path")

    def __init__(self, disk: Disk, path: str, entries: list[AbortedTransaction] | None = None) -> None:
        """`entries`: None if they have to be read from the file."""
        self._disk = disk
        self._entries = entries
        self._is_torn = False
        """Whether the file may have more than the entries, behind them."""
        self._is_outdated = False
        """Whether the file may have other entries."""
        self.path = path

    @property
    def is_loaded(self) -> bool:
        return self._entries is not None

    def entries(self) -> list[AbortedTransaction]:
        """CorruptIndex if the file is not what was written."""
        if self._entries is None:
            try:
                self._entries = decode(self._disk.read(self.path))
            except FileNotFoundError:
                self._entries = []
        return self._entries

    def add(self, entry: AbortedTransaction) -> None:
        """Add an entry. After an OSError the entries are as they were, and the next change repairs the file."""
        entries = self.entries()
        self.repair()
        file = self._disk.open(self.path, create=True)
        try:
            self._is_torn = True
            file.append(_ENTRY.pack(_VERSION, *entry))
        finally:
            file.close()
        self._is_torn = False
        entries.append(entry)

    def truncate(self, offset: int) -> None:
        """Remove transactions whose marker is at `offset` or later. It needs no room on the disk."""
        self.forget_from(offset)
        self.repair()

    def forget_from(self, offset: int) -> None:
        """Remove transactions whose marker is at `offset` or later, from the file with the next `repair`."""
        entries = self.entries()
        keep = bisect_left(entries, offset, key=attrgetter("last_offset"))
        if keep < len(entries):
            self._entries, self._is_torn = entries[:keep], True

    def repair(self) -> None:
        """Bring the file in line with the entries, if an error of the disk has prevented that."""
        if self._is_outdated:
            self.replace(self.entries())
        elif self._is_torn:
            file = self._disk.open(self.path, create=True)
            try:
                file.truncate(_ENTRY.size * len(self.entries()))
            finally:
                file.close()
            self._is_torn = False

    def replace(self, entries: list[AbortedTransaction]) -> None:
        """Replace all entries. After an OSError they are replaced, and the next change writes the file.

        The file is replaced as a whole: a part of it would be taken for all of it.
        """
        self._entries, self._is_outdated = entries, True
        if entries or self._disk.exists(self.path):
            self._disk.replace(self.path, b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries))
        self._is_outdated = self._is_torn = False

    def collect(self, from_offset: int, up_to: int) -> tuple[list[AbortedTransaction], bool]:
        """The transactions that overlap [from_offset, up_to), and whether no later segment can have another one."""
        found = []
        entries = self.entries()
        for entry in entries[bisect_left(entries, from_offset, key=attrgetter("last_offset")) :]:
            if entry.first_offset < up_to:
                found.append(entry)
            if entry.last_stable_offset >= up_to:
                return found, True
        return found, False


def decode(data: bytes) -> list[AbortedTransaction]:
    if len(data) % _ENTRY.size:
        raise CorruptIndex(f"{len(data)} bytes are no whole number of entries")
    entries: list[AbortedTransaction] = []
    last = -1
    for version, *fields in _ENTRY.iter_unpack(data):
        entry = AbortedTransaction(*fields)
        if version != _VERSION or entry.last_offset <= last or entry.first_offset > entry.last_offset:
            raise CorruptIndex(f"{entry} of version {version} after offset {last}")
        last = entry.last_offset
        entries.append(entry)
    return entries
