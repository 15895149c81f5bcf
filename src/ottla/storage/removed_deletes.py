"""Up to where a log may lack tombstones and transaction markers: compaction has removed them.

Compaction removes them only when every replica has them. A replica that loses them again, or one that has copied the
records before them from another leader, would keep a deleted value for ever if it went on from where it is. So a leader
has every replica start anew whose log ends before this offset (`replication/in_sync.py`).

A log that is copied lacks what the leader's lacks. All that a follower sees of it are the offsets that are missing, so
it takes each of them for a removed tombstone.

The file `removed-deletes` in the partition's directory exists only if something was removed; Kafka ignores it. It is
text: a line with the version 0, and a line with the offset. It speaks only of records that are on the disk, so recovery
can tell offsets that were missing in what was copied from a loss (`recovery.py`).
"""

from ottla.records.batch import BatchHeader
from ottla.storage import names
from ottla.storage.files import Disk


class RemovedDeletes:
    __slots__ = ("_disk", "before", "is_dirty", "path")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.path = f"{directory}/{names.REMOVED_DELETES}"
        self.before = 0
        """Every tombstone and marker that is missing was before this offset."""
        self.is_dirty = False

    @classmethod
    def load(cls, disk: Disk, directory: str) -> "RemovedDeletes":
        """ValueError if the content of the file is not valid."""
        found = cls(disk, directory)
        version, offset = disk.read(found.path).decode("ascii").splitlines()
        if int(version) != 0 or int(offset) < 0:
            raise ValueError(f"version {version[:20]}, offset {offset[:20]}")
        found.before = int(offset)
        return found

    def note(self, before: int) -> None:
        """Take note that tombstones or markers before this offset may be missing."""
        if before > self.before:
            self.before = before
            self.is_dirty = True

    def note_hole(self, header: BatchHeader) -> None:
        """Take note that offsets are missing in a copied batch, or before it."""
        self.note(header.base_offset if header.record_count > header.last_offset_delta else header.next_offset)

    def take_over(self, before: int) -> None:
        """Take over what is known of the log that this one is a copy of. Not every hole is a removed tombstone."""
        if before != self.before:
            self.before = before
            self.is_dirty = True

    def truncate(self, end_offset: int) -> None:
        """The log ends at `end_offset` now. What follows is complete."""
        if end_offset < self.before:
            self.before = end_offset
            self.is_dirty = True

    def take_unsaved(self) -> bytes | None:
        """The content of the file if it has to be written, which is up to the caller from here on; otherwise None."""
        if not self.is_dirty:
            return None
        self.is_dirty = False
        return _encode(self.before)

    def save(self, flushed_to: int) -> None:
        """Write the file durably, if it has to be written, as far as records are on the disk: before `flushed_to`."""
        if not self.is_dirty:
            return
        self.is_dirty = False
        before = self.before
        if before > flushed_to:
            self.is_dirty = True
        try:
            self._disk.replace(self.path, _encode(min(before, flushed_to)))
        except OSError:
            self.is_dirty = True
            raise


def _encode(before: int) -> bytes:
    return f"0\n{before}\n".encode("ascii")
