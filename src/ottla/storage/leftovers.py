"""What a crash may leave in a partition's directory besides whole segments, and how opening the log ends it.

    .deleted   on its way out: deleted
    .cleaned   compaction had not finished: deleted, the segments it read are still there
    .swap      compaction had finished: takes the place of the segments it was made from
    .tmp       a small file that was not replaced in the end: deleted
    index files without a segment: deleted

Every step may be interrupted and done again.
"""

from collections.abc import Sequence

from ottla.records.batch import CorruptBatch
from ottla.storage import names
from ottla.storage.files import Disk
from ottla.storage.scan import scan


def settle_leftovers(disk: Disk, directory: str) -> list[str]:
    """Leave only segments, snapshots and checkpoints. The names in the directory."""
    found = before = disk.list(directory)
    first_cleaned = min((_offset(name) for name in found if name.endswith(names.CLEANED)), default=None)
    begun = [name for name in found if name.endswith(names.SWAP) and _offset(name) >= (first_cleaned or 0)]
    if first_cleaned is not None and begun:
        # Only .cleaned tells that these were not ready yet, so it must not be gone before them.
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
    """Snapshots that nobody will ask for: each segment keeps the one it begins with, the log its newest."""
    kept = set(bases)
    newest = max((offset for offset in snapshots if offset <= end_offset), default=-1)
    return [offset for offset in snapshots if offset > end_offset or (offset not in kept and offset != newest)]


def _finish_swap(disk: Disk, directory: str, base_offset: int) -> None:
    """Remove the segments that the compacted one replaces, then let it take its name."""
    swap = names.path(directory, base_offset, names.LOG + names.SWAP)
    file = disk.open_read(swap)
    next_offset = base_offset
    try:
        for _, header in scan(file, 0, disk.size(swap)):
            next_offset = header.next_offset
    except CorruptBatch:
        # Compaction makes its output durable before it renames it, so this is damage; recovery will say so.
        pass
    finally:
        file.close()
    for replaced in names.offsets_with(disk.list(directory), names.LOG):
        if base_offset <= replaced < max(next_offset, base_offset + 1):
            for suffix in names.SEGMENT_SUFFIXES:
                target = names.path(directory, replaced, suffix)
                if disk.exists(target):
                    disk.unlink(target)
    disk.fsync_directory(directory)  # or they could come back beside the one that has their records
    _promote(disk, swap)


def _promote(disk: Disk, swap: str) -> None:
    disk.rename(swap, swap.removesuffix(names.SWAP))


def _offset(name: str) -> int:
    digits = name.split(".", 1)[0]
    return int(digits) if digits.isascii() and digits.isdigit() else 0


def remove_tree(disk: Disk, directory: str) -> None:
    """Remove a partition's directory. The topic id goes last: what is left of it is never another topic's."""
    try:
        found = disk.list(directory)
    except FileNotFoundError:
        return
    for name in sorted(found, key=lambda name: name == names.METADATA):
        disk.unlink(f"{directory}/{name}")
    disk.remove_directory(directory)
