"""What a crash may leave in a partition's directory besides whole segments, and what opening the log does with it.

    .deleted   a dropped segment: is deleted
    .cleaned   compaction had not finished: is deleted, the segments that it read are still there
    .swap      compaction had finished: replaces the segments that it was made from
    .tmp       a small file whose replacement was interrupted: is deleted
    index files without a segment: are deleted

Every step may be interrupted and is repeated by the next start.
"""

from collections.abc import Sequence

from ottla.records.batch import CorruptBatch
from ottla.storage import names
from ottla.storage.files import Disk
from ottla.storage.scan import scan

_LAST = (names.METADATA, names.MOVING)


def settle_leftovers(disk: Disk, directory: str) -> list[str]:
    """Leave only segments, snapshots and checkpoints. Returns the names that are in the directory then."""
    found = before = disk.list(directory)
    first_cleaned = min((_parse_offset(name) for name in found if name.endswith(names.CLEANED)), default=None)
    begun = [name for name in found if name.endswith(names.SWAP) and _parse_offset(name) >= (first_cleaned or 0)]
    if first_cleaned is not None and begun:
        # Only a .cleaned file shows that these .swap files are incomplete, so they have to be deleted before it.
        for name in begun:
            disk.unlink(f"{directory}/{name}")
        disk.fsync_directory(directory)
    for name in found:
        if name.endswith((names.DELETED, names.CLEANED, names.TEMPORARY)):
            disk.unlink(f"{directory}/{name}")
    if any(name.endswith((names.DELETED, names.CLEANED, names.TEMPORARY, names.SWAP)) for name in found):
        found = disk.list(directory)
        for base_offset in names.offsets_with(found, names.LOG + names.SWAP):
            _finish_swap(disk, directory, base_offset)
        for name in disk.list(directory):
            if name.endswith(names.SWAP):
                _promote(disk, f"{directory}/{name}")
        found = disk.list(directory)
    bases = set(names.offsets_with(found, names.LOG))
    for suffix in names.SEGMENT_SUFFIXES[1:]:
        for offset in names.offsets_with(found, suffix):
            if offset not in bases:
                disk.unlink(names.path(directory, offset, suffix))
    if found != before:
        disk.fsync_directory(directory)
    return list(found)


def find_stray_snapshots(snapshots: Sequence[int], bases: Sequence[int], end_offset: int) -> list[int]:
    """Find snapshots that are not needed: each segment keeps the one at its start, the log its newest."""
    kept = set(bases)
    newest = max((offset for offset in snapshots if offset <= end_offset), default=-1)
    return [offset for offset in snapshots if offset > end_offset or (offset not in kept and offset != newest)]


def _finish_swap(disk: Disk, directory: str, base_offset: int) -> None:
    """Delete the segments that the compacted one replaces, then give it its final name."""
    swap = names.path(directory, base_offset, names.LOG + names.SWAP)
    file = disk.open_read(swap)
    next_offset = base_offset
    try:
        for _, header in scan(file, 0, disk.size(swap)):
            next_offset = header.next_offset
    except CorruptBatch:
        # Compaction makes its output durable before the rename, so this is damage. Recovery reports it.
        pass
    finally:
        file.close()
    for replaced in names.offsets_with(disk.list(directory), names.LOG):
        if base_offset <= replaced < max(next_offset, base_offset + 1):
            for suffix in names.SEGMENT_SUFFIXES:
                target = names.path(directory, replaced, suffix)
                if disk.exists(target):
                    disk.unlink(target)
    disk.fsync_directory(directory)  # otherwise a power cut could bring them back beside the compacted one
    _promote(disk, swap)


def _promote(disk: Disk, swap: str) -> None:
    disk.rename(swap, swap.removesuffix(names.SWAP))


def _parse_offset(name: str) -> int:
    digits = name.split(".", 1)[0]
    return int(digits) if digits.isascii() and digits.isdigit() else 0


def remove_tree(disk: Disk, directory: str) -> None:
    """Remove a partition's directory, which an OSError can interrupt.

    The topic id goes last, so that what is left is still this topic's, and behind it only the mark of an incomplete
    copy: the next start must not take the rest of one for the partition.
    """
    try:
        found = disk.list(directory)
    except FileNotFoundError:
        return
    for name in sorted(found, key=lambda name: _LAST.index(name) if name in _LAST else -1):
        disk.unlink(f"{directory}/{name}")
    disk.remove_directory(directory)
