"""Finding the bytes that answer a fetch, without reading them."""

from ottla.errors import ErrorCode, KafkaError
from ottla.storage.files import FileSlice
from ottla.storage.segment import Segment
from ottla.storage.segments import Segments

TRIMMED_FROM_BYTES = 64 * 1024
"""An answer of at least this size ends where the offset index says that a batch begins. For small batches that is up to
4 KiB (index.interval.bytes) before the limit, for large ones the end of the last whole batch."""


class LogRead:
    """Whole batches from the one that contains the offset asked for; the last may be cut by the byte limit."""

    __slots__ = ("_end", "_segment", "base_offset", "slice")

    def __init__(self, segment: Segment, base_offset: int, found: FileSlice, end: int) -> None:
        self._segment = segment
        self._end = end
        self.base_offset = base_offset
        self.slice = found

    @property
    def next_offset(self) -> int:
        """An offset at or after the end of the slice: the nearest that is known without reading the slice."""
        after = self._segment.offset_index.offset_after(self.slice.position + self.slice.length)
        return self._end if after is None else min(self._end, self._segment.base_offset + after)


def read(
    files: Segments, log_end_offset: int, offset: int, max_bytes: int, up_to: int, at_least_one: bool
) -> LogRead | None:
    """Batches of one segment from the one that contains `offset`, none at or after `up_to`; see `Log.read`."""
    index = files.index_of(offset)
    location = None
    while location is None and index < len(files.items):
        segment = files.items[index]
        location = segment.locate(offset)
        index += 1
    if location is None:
        return None
    stop = segment.readable_end(location.position) if segment.damage else segment.size
    end = files.end_of(segment, log_end_offset)
    if location.base_offset >= end:
        # The checksum does not cover offsets. With this one the client would ask for an offset that never comes.
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{segment}: offset {location.base_offset} is not before {end}")
    if location.base_offset >= up_to:
        return None
    if up_to < end:
        end = up_to
        beyond = segment.locate(up_to)
        stop = min(stop, beyond.position) if beyond is not None else stop
    limit = max(max_bytes, location.size) if at_least_one else max_bytes
    length = min(limit, stop - location.position)
    if length < location.size:
        return None
    if TRIMMED_FROM_BYTES <= length < stop - location.position:
        # The limit cuts a batch in two. Its first part would be sent for nothing: the client throws it away and asks
        # for the batch again. With batches of a megabyte, as busy producers make them, that was 6 % of all bytes.
        whole = segment.offset_index.entry_before(location.position + length) - location.position
        length = whole if whole >= location.size else length
    return LogRead(segment, location.base_offset, FileSlice(segment.file, location.position, length), end)
