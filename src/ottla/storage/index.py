"""The two sparse indexes of a segment, as arrays in memory and as Kafka's files.

    .index       int32 relative offset, int32 position       of a batch's last record; where that batch begins
    .timeindex   int64 timestamp, int32 relative offset      the largest timestamp so far; last offset of its batch

Offsets are relative to the segment's base offset so that four bytes do. Both columns of both files only grow. An index
entry is made about every `index.interval.bytes`; what lies between two entries is found by stepping over headers. The
last entry of a sealed segment's time index is the largest timestamp in it.

There is no checksum: an index can be rebuilt, and the code that uses an entry checks that a batch begins there.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from operator import lt
from struct import Struct
from typing import Protocol

OFFSET_ENTRY_SIZE = 8
RELATIVE_OFFSET_MAX = 2**31 - 1

_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
TIME_ENTRY_SIZE = _TIME_ENTRY.size


class CorruptIndex(Exception):
    """An index file that is damaged. It is rebuilt from the segment."""


def _swap_bytes(entries: "array[int]") -> None:
    """Convert entries from the machine's byte order to that of the file, or back."""
    if sys.byteorder == "little":
        entries.byteswap()


def _grows(column: "array[int]") -> bool:
    return all(map(lt, column, column[1:]))


class OffsetIndex:
    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("i")
        self.positions = array("i")

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, relative_offset: int, position: int) -> None:
        self.offsets.append(relative_offset)
        self.positions.append(position)

    def position_before(self, relative_offset: int) -> int:
        """A position at or before the batch that contains the offset."""
        entry = bisect_right(self.offsets, relative_offset) - 1
        return self.positions[entry] if entry >= 0 else 0

    def entry_before(self, position: int) -> int:
        """A position at or before this one where a batch begins."""
        entry = bisect_right(self.positions, position) - 1
        return self.positions[entry] if entry >= 0 else 0

    def offset_after(self, position: int) -> int | None:
        """An offset at or after the last one before `position`; None if the index ends before `position`."""
        entry = bisect_left(self.positions, position)
        return self.offsets[entry] if entry < len(self.offsets) else None

    def truncate(self, relative_offset: int) -> None:
        """Forget the batches that contain this offset or a later one."""
        keep = bisect_left(self.offsets, relative_offset)
        del self.offsets[keep:]
        del self.positions[keep:]

    def encode(self) -> bytes:
        entries = array("i", bytes(OFFSET_ENTRY_SIZE * len(self.offsets)))
        entries[0::2] = self.offsets
        entries[1::2] = self.positions
        _swap_bytes(entries)
        return entries.tobytes()

    @classmethod
    def decode(cls, data: bytes) -> "OffsetIndex":
        if len(data) % OFFSET_ENTRY_SIZE:
            raise CorruptIndex(f"{len(data)} bytes are no whole number of entries")
        entries = array("i", data)
        _swap_bytes(entries)
        index = cls()
        index.offsets = entries[0::2]
        index.positions = entries[1::2]
        return index


class TimeIndex:
    __slots__ = ("offsets", "timestamps")

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.offsets = array("i")

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry if the timestamp is larger than all before."""
        if timestamp > (self.timestamps[-1] if self.timestamps else -1):
            self.timestamps.append(timestamp)
            self.offsets.append(relative_offset)

    def offset_before(self, timestamp: int) -> int:
        """A relative offset before which every record is older than `timestamp`."""
        entry = bisect_left(self.timestamps, timestamp) - 1
        return self.offsets[entry] if entry >= 0 else 0

    def truncate(self, relative_offset: int) -> None:
        keep = bisect_left(self.offsets, relative_offset)
        del self.timestamps[keep:]
        del self.offsets[keep:]

    def encode(self) -> bytes:
        return b"".join(map(_TIME_ENTRY.pack, self.timestamps, self.offsets))

    @classmethod
    def decode(cls, data: bytes) -> "TimeIndex":
        if len(data) % TIME_ENTRY_SIZE:
            raise CorruptIndex(f"{len(data)} bytes are no whole number of entries")
        index = cls()
        for timestamp, relative_offset in _TIME_ENTRY.iter_unpack(data):
            index.timestamps.append(timestamp)
            index.offsets.append(relative_offset)
        if not (_grows(index.timestamps) and _grows(index.offsets)):
            raise CorruptIndex("the time index goes backwards")
        return index


def last_offset_entry(data: bytes) -> tuple[int, int]:
    """Relative offset and position in the last eight bytes of an offset index."""
    relative_offset, position = _OFFSET_ENTRY.unpack(data)
    return relative_offset, position


def last_time_entry(data: bytes) -> tuple[int, int]:
    """Timestamp and relative offset in the last twelve bytes of a time index."""
    timestamp, relative_offset = _TIME_ENTRY.unpack(data)
    return timestamp, relative_offset


class IndexHolder(Protocol):
    def unload_indexes(self) -> None: ...


class IndexCache:
    """Which sealed segments have their indexes in memory. Above the limit the least recently used are unloaded.

    One cache serves all logs of a broker.
    """

    __slots__ = ("_bytes_max", "_holders", "bytes")

    def __init__(self, bytes_max: int = 64 * 1024 * 1024) -> None:
        self._bytes_max = bytes_max
        self._holders: OrderedDict[IndexHolder, int] = OrderedDict()
        self.bytes = 0

    def admit(self, holder: IndexHolder, size: int) -> None:
        self._holders[holder] = self._holders.pop(holder, 0) + size
        self.bytes += size
        while self.bytes > self._bytes_max and len(self._holders) > 1:
            oldest, oldest_size = self._holders.popitem(last=False)
            self.bytes -= oldest_size
            oldest.unload_indexes()

    def touch(self, holder: IndexHolder) -> None:
        if holder in self._holders:
            self._holders.move_to_end(holder)

    def forget(self, holder: IndexHolder) -> None:
        self.bytes -= self._holders.pop(holder, 0)
