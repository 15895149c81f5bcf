"""Which bytes of a log are known to be damaged: remembered across restarts, so that they are never served.

Recovery reads only the end of a log, so it would not find old damage again. The file `damaged-ranges` in the
partition's directory exists only if there is damage; Kafka ignores it. It is text, in the form of Kafka's checkpoints:
a line with the version 0, a line with the number of entries, then per line the base offset of the segment, the first
damaged offset, the first one after it, and the bytes where the damage begins and ends.
"""

import logging
from collections.abc import Sequence

from ottla.records.batch import CorruptBatch, check
from ottla.storage import names
from ottla.storage.files import Disk
from ottla.storage.scan import Damage
from ottla.storage.segment import Segment

logger = logging.getLogger(__name__)

_FIELDS = 5


def save(disk: Disk, directory: str, segments: Sequence[Segment]) -> None:
    """Write the damaged ranges durably. Does nothing if there is no damage and there is no file."""
    entries = [(segment.base_offset, *damage) for segment in segments for damage in segment.damage]
    path = f"{directory}/{names.DAMAGE}"
    if entries:
        lines = ["0", str(len(entries)), *(" ".join(map(str, entry)) for entry in entries)]
        disk.replace(path, "".join(f"{line}\n" for line in lines).encode("ascii"))
    elif disk.exists(path):
        disk.unlink(path)
        disk.fsync_directory(directory)


def load(disk: Disk, directory: str, segments: Sequence[Segment]) -> None:
    """Set `damage` of the segments from the file. ValueError if the file is damaged itself.

    Ranges that are sound now were repaired or replaced in the meantime, and are left out.
    """
    by_base = {segment.base_offset: segment for segment in segments}
    for base, *numbers in _list_entries(disk.read(f"{directory}/{names.DAMAGE}")):
        segment, damage = by_base.get(base), Damage(*numbers)
        if segment is not None and damage.end <= segment.size and not _is_sound(segment, damage):
            logger.warning("%s is damaged in bytes %d to %d, as was found before", segment, damage.position, damage.end)
            segment.damage = (*segment.damage, damage)


def _list_entries(data: bytes) -> list[list[int]]:
    version, count, *lines = data.decode("ascii").splitlines()
    entries = [[int(number) for number in line.split(" ")] for line in lines]
    if version != "0" or count != str(len(entries)) or any(len(entry) != _FIELDS for entry in entries):
        raise ValueError(f"version {version[:20]!r}, {len(entries)} of {count[:20]!r} entries")
    if any(min(entry) < 0 or entry[1] >= entry[2] or entry[3] >= entry[4] for entry in entries):
        raise ValueError("an entry goes backwards")
    return entries


def _is_sound(segment: Segment, damage: Damage) -> bool:
    try:
        header = check(segment.file.read_at(damage.position, damage.end - damage.position))
    except CorruptBatch:
        return False
    return header.base_offset == damage.first_offset and header.size == damage.end - damage.position
