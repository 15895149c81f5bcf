"""When a log seals its active segment and begins a new one."""

import zlib

from ottla.storage.index import RELATIVE_OFFSET_MAX
from ottla.storage.segment import Segment
from ottla.storage.settings import LogSettings


class RollRule:
    """A segment is sealed when it, or one of its indexes, is full or too old."""

    __slots__ = ("_age_ms_max", "_index_bytes_max", "_size_max")

    def __init__(self, settings: LogSettings, directory: str) -> None:
        self._size_max = settings.segment_bytes
        self._index_bytes_max = settings.segment_index_bytes
        # Segments of many partitions that began together should not all roll together.
        jitter = min(settings.segment_jitter_ms, settings.segment_ms)
        self._age_ms_max = settings.segment_ms - (zlib.crc32(directory.encode()) % jitter if jitter > 0 else 0)

    def is_due(self, segment: Segment, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether a batch that would make the segment `size` bytes long belongs into a new one.

        Age is the distance between timestamps of records, so that a log that is copied or replayed rolls where the
        original did; a segment without timestamps counts from its creation. OSError if the segment cannot be read.
        """
        if size > self._size_max or segment.index_bytes > self._index_bytes_max:
            return True
        if last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            return True
        first_timestamp = segment.first_timestamp
        if first_timestamp >= 0:
            return max_timestamp - first_timestamp > self._age_ms_max
        return now_ms - segment.created_ms > self._age_ms_max
