"""File names inside a partition's directory, as Kafka has them.

A segment's files carry its base offset in 20 digits, so sorting names sorts segments; a producer snapshot carries the
offset that it describes the state before. A second suffix marks a file that is on its way in or out.
"""

from collections.abc import Sequence

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"

DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
TEMPORARY = ".tmp"

EPOCHS = "leader-epoch-checkpoint"
METADATA = "partition.metadata"
DAMAGE = "damaged-ranges"
REMOVED_DELETES = "removed-deletes"
MOVING = "moving"
"""A file that marks an incomplete copy of a replica from another data directory. A start removes such a copy."""
MOVED = "moved"
"""What MOVING is renamed to when the copy is complete. The log may have gaps from a compaction in its old place."""

SEGMENT_SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)

_DIGITS = 20


def path(directory: str, offset: int, suffix: str) -> str:
    return f"{directory}/{offset:020d}{suffix}"


def offset_of(name: str, suffix: str) -> int | None:
    """The offset in a file name with exactly this suffix; None if it is another kind of file."""
    digits = name[:_DIGITS]
    if name[_DIGITS:] == suffix and len(digits) == _DIGITS and digits.isascii() and digits.isdigit():
        return int(digits)
    return None


def offsets_with(names: Sequence[str], suffix: str) -> list[int]:
    """The offsets of all files with this suffix, ascending."""
    found = (offset_of(name, suffix) for name in names)
    return sorted(offset for offset in found if offset is not None)
