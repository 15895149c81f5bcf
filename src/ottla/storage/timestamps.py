"""Finding records by time: the first at or after a timestamp, the one with the largest; and when one was written."""

from bisect import bisect_right
from itertools import islice
from typing import NamedTuple, Protocol

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import HEADER_SIZE, BatchHeader, CorruptBatch, decode, read_header
from ottla.storage.scan import read_batch, scan
from ottla.storage.segment import Segment

MARKERS_SKIPPED_MAX = 16
"""Batches of transaction markers that a search for a record steps over."""


class TimestampOffset(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


class TimedLog(Protocol):
    log_start_offset: int

    @property
    def segments(self) -> list[Segment]: ...


def find_first_at_or_after(log: TimedLog, timestamp: int, up_to: int) -> TimestampOffset | None:
    """The first record before `up_to` whose timestamp is not smaller."""
    for segment in log.segments:
        if segment.base_offset >= up_to:
            break
        if segment.max_timestamp >= timestamp:
            found = _find_first_in(segment, timestamp, log.log_start_offset, up_to)
            if found is not None:
                return found
    return None


def find_largest(log: TimedLog) -> TimestampOffset | None:
    """The first record that has the largest timestamp of all in the files; None if no record has one.

    As in Kafka, it may be a record before the log start, as long as its segment is there: the index of each segment
    has its largest timestamp, and the largest of what is left would take a scan of the segment.
    """
    segments = [segment for segment in log.segments if segment.max_timestamp >= 0]
    for segment in sorted(segments, key=lambda segment: -segment.max_timestamp):
        timestamp, offset = segment.max_timestamp_entry
        location = segment.locate(offset)
        if location is None:
            continue
        try:
            _, header = next(scan(segment.file, location.position, segment.size))
            found = _find_first_record(segment, location.position, header, timestamp, segment.base_offset)
        except CorruptBatch as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{segment}: {error}") from None
        if found is not None:
            return found
    return None


def find_time_at(log: TimedLog, offset: int, up_to: int) -> int | None:
    """When the first record in [offset, up_to) was written: the first timestamp of its batch, which is not decoded.

    None if there is no record, or it has no timestamp. Transaction markers are no records. OSError or KafkaError if the
    batch cannot be read.
    """
    offset, skipped = max(offset, log.log_start_offset), 0
    first = max(bisect_right(log.segments, offset, key=lambda segment: segment.base_offset) - 1, 0)
    for segment in islice(log.segments, first, None):
        while offset < up_to and (location := segment.locate(offset)) is not None:
            try:
                header = read_header(segment.file.read_at(location.position, HEADER_SIZE), 0)
            except CorruptBatch as error:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{segment}: {error}") from None
            if header.base_offset >= up_to or skipped > MARKERS_SKIPPED_MAX:
                return None
            if not header.is_control:
                timestamp = header.max_timestamp if header.log_append_time else header.base_timestamp
                return timestamp if timestamp >= 0 else None
            offset = max(header.next_offset, offset + 1)
            skipped += 1
    return None


def _find_first_in(segment: Segment, timestamp: int, from_offset: int, up_to: int) -> TimestampOffset | None:
    start = segment.time_index.offset_before(timestamp) + segment.base_offset
    location = segment.locate(max(start, from_offset))
    if location is None:
        return None
    try:
        for position, header in scan(segment.file, location.position, segment.size):
            if header.base_offset >= up_to:
                return None
            if header.max_timestamp >= timestamp:
                found = _find_first_record(segment, position, header, timestamp, from_offset)
                if found is not None:
                    return found if found.offset < up_to else None
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{segment}: {error}") from None
    return None


def _find_first_record(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, from_offset: int
) -> TimestampOffset | None:
    for record in decode(read_batch(segment.file, position, header)):
        if record.timestamp >= timestamp and record.offset >= from_offset:
            return TimestampOffset(record.offset, record.timestamp, header.leader_epoch)
    return None
