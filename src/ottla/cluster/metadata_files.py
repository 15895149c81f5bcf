"""The files of the embedded metadata log, and their recovery.

    <20-digit version>.log          entries from that version on
    <20-digit version>.checkpoint   a snapshot of the image at that version

Both hold record batches of one record each. In a log, the base offset of a batch is the version of the entry, the key
of the record is the entry's id and its value the encoded changes. In a snapshot every batch has the version of the
snapshot as its base offset, the key is `<number>/<count>` of the part, from 0, and the value holds some of the changes.

An entry counts only once it is fsynced, and one append runs at a time: only the last entry of the last file can be
torn. Anything else that cannot be read is damage to acknowledged entries, and the broker refuses to start.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ottla.cluster.changes import Change
from ottla.cluster.encoding import ENTRY_BYTES_MAX, MalformedEntry, decode, encode_change
from ottla.cluster.metadata_log import Entry
from ottla.records.batch import CorruptBatch, check
from ottla.records.batch import decode as decode_batch
from ottla.records.batch import encode as encode_batch
from ottla.storage.files import Disk
from ottla.storage.flush import write_again
from ottla.storage.names import LOG, TEMPORARY, offsets_with, path

CHECKPOINT = ".checkpoint"

logger = logging.getLogger(__name__)


class DamagedMetadata(Exception):
    """The metadata log has lost acknowledged entries. The message is one line for the person who starts the broker."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The files of a directory, by the versions in their names, ascending."""

    segments: list[int]
    snapshots: list[int]

    @classmethod
    def of(cls, disk: Disk, directory: str) -> "Contents":
        names = disk.list(directory)
        return cls(offsets_with(names, LOG), offsets_with(names, CHECKPOINT))


@dataclass(frozen=True, slots=True)
class Recovered:
    """The state of a recovered log: its newest version, its active segment, and the bytes since the last snapshot."""

    head: int
    active: int | None
    bytes_since_snapshot: int


def recover(disk: Disk, directory: str, *, clean: bool = False) -> Recovered:
    """Find the head, cut off a torn entry, and make everything up to the head durable.

    After a clean shutdown no entry can be torn: one that cannot be read was damaged since.
    """
    for name in disk.list(directory):
        if name.endswith(TEMPORARY):
            disk.unlink(f"{directory}/{name}")
    contents = Contents.of(disk, directory)
    snapshot = read_newest_snapshot(disk, directory, contents.snapshots)
    head = base = 0 if snapshot is None else snapshot.version
    size = last = 0
    for first in _list_segments(contents.segments, base + 1):
        if first > head + 1:
            raise DamagedMetadata(f"{directory}: metadata entries {head + 1} to {first - 1} are missing")
        data = disk.read(path(directory, first, LOG))
        last, sound = _scan(data, first)
        if sound < len(data):
            name = path(directory, first, LOG)
            if clean or first != contents.segments[-1] or not _is_torn(data, sound, last + 1):
                raise DamagedMetadata(f"{name}: metadata entry {last + 1} at byte {sound} is damaged")
            _cut(disk, name, sound)
        head = max(head, last)
        size += sound
    if not contents.segments:
        return Recovered(head, None, size)
    active = contents.segments[-1]
    # The process that wrote the last entry may have been killed before its fsync, or the fsync may have failed.
    file = disk.open(path(directory, active, LOG))
    write_again(file, 0)
    file.fsync()
    file.close()
    disk.fsync_directory(directory)
    return Recovered(head, active if last == head else None, size)


def read_entries(disk: Disk, directory: str, after: int, head: int) -> list[Entry]:
    """The entries after a version up to the head. A snapshot comes first if the log does not reach back so far."""
    contents = Contents.of(disk, directory)
    entries: list[Entry] = []
    if after == 0 or not contents.segments or contents.segments[0] > after + 1:
        snapshot = read_newest_snapshot(disk, directory, contents.snapshots)
        if snapshot is not None and snapshot.version > after:
            entries.append(snapshot)
            after = snapshot.version
    for first in _list_segments(contents.segments, after + 1):
        for entry in _read_entries(disk.read(path(directory, first, LOG)), first, head):
            if entry.version > after:
                entries.append(entry)
    return entries


def encode_entry(version: int, entry_id: bytes, value: bytes, now_ms: int) -> bytearray:
    return encode_batch([(entry_id, value, (), now_ms)], base_offset=version)


def write_snapshot(disk: Disk, directory: str, version: int, changes: Sequence[Change], now_ms: int) -> None:
    """Write a snapshot atomically."""
    parts = list(split(changes))
    data = bytearray()
    for number, part in enumerate(parts):
        data += encode_entry(version, b"%d/%d" % (number, len(parts)), part, now_ms)
    disk.replace(path(directory, version, CHECKPOINT), bytes(data))


def read_newest_snapshot(disk: Disk, directory: str, versions: Sequence[int]) -> Entry | None:
    """The newest snapshot that can be read. An older one will do, because the log reaches back to it."""
    for version in reversed(versions):
        name = path(directory, version, CHECKPOINT)
        try:
            return Entry(version, b"", _read_snapshot(disk.read(name), version), snapshot=True)
        except (CorruptBatch, MalformedEntry) as error:
            logger.warning("%s cannot be used: %s", name, error)
    return None


def remove_covered(disk: Disk, directory: str) -> None:
    """Remove files that the two newest snapshots cover: older snapshots, and segments that end before both."""
    contents = Contents.of(disk, directory)
    if len(contents.snapshots) < 2:
        return
    for version in contents.snapshots[:-2]:
        disk.unlink(path(directory, version, CHECKPOINT))
    oldest = contents.snapshots[-2]
    for first, following in zip(contents.segments, contents.segments[1:], strict=False):
        if following <= oldest + 1:
            disk.unlink(path(directory, first, LOG))


def _list_segments(segments: Sequence[int], version: int) -> Sequence[int]:
    """The segments that may hold entries from `version` on."""
    start = sum(first <= version for first in segments)
    return segments[max(start - 1, 0) :]


def _scan(data: bytes, first: int) -> tuple[int, int]:
    """The version of the last entry that can be read in sequence, and the position after it."""
    version, position = first - 1, 0
    while position < len(data):
        try:
            header = check(data, position)
        except CorruptBatch:
            break
        if header.base_offset != version + 1:
            break
        version += 1
        position += header.size
    return version, position


def _is_torn(data: bytes, position: int, version: int) -> bool:
    """Whether the bytes from `position` on are one interrupted write: no readable entry comes after them."""
    after = (version + 1).to_bytes(8, "big")
    found = data.find(after, position)
    while found >= 0:
        try:
            check(data, found)
        except CorruptBatch:
            found = data.find(after, found + 1)
        else:
            return False
    return True


def _cut(disk: Disk, name: str, size: int) -> None:
    logger.warning("%s: truncated to %d bytes, because the last entry is incomplete", name, size)
    file = disk.open(name)
    file.truncate(size)
    file.fsync()
    file.close()


def _read_entries(data: bytes, first: int, head: int) -> Iterator[Entry]:
    version, position = first, 0
    while position < len(data) and version <= head:
        try:
            header = check(data, position)
            (record,) = decode_batch(data, position)
            yield Entry(version, record.key or b"", decode(record.value or b""))
        except (CorruptBatch, MalformedEntry, ValueError) as error:
            raise DamagedMetadata(f"metadata entry {version} cannot be read: {error}") from None
        position += header.size
        version += 1


def split(changes: Sequence[Change]) -> Iterator[bytes]:
    """Encode the changes in arrays that are no larger than an entry. There is at least one array."""
    part: list[bytes] = []
    size = 0
    for change in changes:
        encoded = encode_change(change)
        if part and size + len(encoded) > ENTRY_BYTES_MAX // 2:
            yield b"[" + b",".join(part) + b"]"
            part, size = [], 0
        part.append(encoded)
        size += len(encoded) + 1
    yield b"[" + b",".join(part) + b"]"


def _read_snapshot(data: bytes, version: int) -> tuple[Change, ...]:
    changes: list[Change] = []
    position, number, count = 0, 0, b""
    while position < len(data):
        header = check(data, position)
        (record,) = decode_batch(data, position)
        place, _, count = (record.key or b"").partition(b"/")
        if header.base_offset != version or place != b"%d" % number:
            raise CorruptBatch(f"part {number} of the snapshot is missing")
        changes.extend(decode(record.value or b""))
        position += header.size
        number += 1
    if count != b"%d" % number:
        raise CorruptBatch(f"the snapshot has {number} parts")
    return tuple(changes)
