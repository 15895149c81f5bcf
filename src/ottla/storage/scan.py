"""Going from batch to batch in a segment file: by headers only, or with every checksum."""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from ottla.records.batch import (
    CONTROL,
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    ControlMarker,
    CorruptBatch,
    check,
    control_type,
    is_intact,
    read_header,
)
from ottla.storage.files import File

_HEADERS_CHUNK = 32 * 1024
_CHECKED_CHUNK = 1024 * 1024
_MAGIC_AT = 16

_STEP = Struct(">qiibIhi")
"""The first fields of a batch header, up to the last offset delta: enough to step over it."""

_STEP_CHUNK = 8 * 1024
_PREFIX_SIZE = 12


class BatchLocation(NamedTuple):
    """Where a batch is in a segment's file."""

    base_offset: int
    position: int
    size: int


class Damage(NamedTuple):
    """Bytes of flushed batches that recovery found to be changed. They stay in the file and are never served."""

    first_offset: int
    next_offset: int
    position: int
    end: int


def scan(file: File, start: int, end: int, *, checked: bool = False) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each batch in [start, end). CorruptBatch at the first that is not whole and sound.

    With `checked` every byte is read and the checksum compared, otherwise only what is needed to step from header to
    header.
    """
    chunk_size = _CHECKED_CHUNK if checked else _HEADERS_CHUNK
    chunk = b""
    chunk_start = position = start
    while position < end:
        inside = position - chunk_start
        if inside + HEADER_SIZE > len(chunk):
            chunk, chunk_start, inside = file.read_at(position, min(chunk_size, end - position)), position, 0
        header = read_header(chunk, inside)
        if position + header.size > end:
            raise CorruptBatch(f"batch at {position} needs {header.size} bytes, {end - position} are there")
        if checked:
            if inside + header.size > len(chunk):
                length = max(header.size, min(chunk_size, end - position))
                chunk, chunk_start, inside = file.read_at(position, length), position, 0
            if not is_intact(header, memoryview(chunk)[inside : inside + header.size]):
                raise CorruptBatch(f"batch at {position} with base offset {header.base_offset} fails its checksum")
        yield position, header
        position += header.size


def scan_around(file: File, start: int, end: int, damages: Sequence[Damage]) -> Iterator[tuple[int, BatchHeader]]:
    """Like `scan`, but without the damaged ranges, which are in order. A batch or a damaged range begins at `start`."""
    for damage in damages:
        if start <= damage.position < end:
            yield from scan(file, start, damage.position)
            start = damage.end
    yield from scan(file, start, end)


def find_first_header(file: File, end: int, damages: Sequence[Damage]) -> BatchHeader | None:
    """The header of the first batch before `end` that is not damaged; None if there is none that can be found."""
    try:
        return next((header for _, header in scan_around(file, 0, end, damages)), None)
    except CorruptBatch:
        return None


def check_batches(view: memoryview, expected: int) -> list[tuple[BatchHeader, ControlMarker | None]]:
    """Return the whole batches in a buffer, with the content of control batches. A cut batch at the end is left out.

    CorruptBatch unless all are sound and in order from offset `expected` on.
    """
    found: list[tuple[BatchHeader, ControlMarker | None]] = []
    position, end = 0, len(view)
    while end - position >= HEADER_SIZE:
        header = read_header(view, position)
        next_position = position + header.length + _PREFIX_SIZE
        if next_position > end:
            break
        if not is_intact(header, view[position:next_position]):
            raise CorruptBatch(f"batch at {position} with base offset {header.base_offset} fails its checksum")
        if header.base_offset < expected or header.last_offset_delta < 0:
            raise CorruptBatch(f"offset {header.base_offset} where {expected} is next")
        expected = header.base_offset + header.last_offset_delta + 1
        is_marker = header.attributes & CONTROL and header.producer_id >= 0 and header.record_count
        found.append((header, control_type(view, position) if is_marker else None))
        position = next_position
    return found


def read_batch(file: File, position: int, header: BatchHeader) -> bytes:
    return file.read_at(position, header.size)


def find_sound_batch(file: File, start: int, end: int, first_offset: int) -> int | None:
    """Find where the next batch with a right checksum and an offset of at least `first_offset` begins.

    A length may be damaged, so the next batch can begin anywhere: every byte that could be a magic byte is tried.
    """
    position = start
    while position + HEADER_SIZE <= end:
        chunk = file.read_at(position, min(_CHECKED_CHUNK, end - position))
        magic_at = chunk.find(MAGIC, _MAGIC_AT)
        while magic_at >= 0 and magic_at - _MAGIC_AT + HEADER_SIZE <= len(chunk):
            candidate = magic_at - _MAGIC_AT
            if _is_sound(file, position + candidate, end, chunk, candidate, first_offset):
                return position + candidate
            magic_at = chunk.find(MAGIC, magic_at + 1)
        position += max(len(chunk) - HEADER_SIZE + 1, 1)
    return None


def _is_sound(file: File, position: int, end: int, chunk: bytes, inside: int, first_offset: int) -> bool:
    try:
        header = read_header(chunk, inside)
        if header.base_offset < first_offset or header.last_offset_delta < 0 or position + header.size > end:
            return False
        check(read_batch(file, position, header))
    except CorruptBatch:
        return False
    return True


def find_batch(file: File, start: int, end: int, offset: int, damages: Sequence[Damage] = ()) -> BatchLocation | None:
    """Find the first batch from `start` on that ends at or after `offset`; None if there is none.

    A batch must begin at `start`, and unless `start` is 0, that batch must not be behind the offset already.
    CorruptBatch if that is not so, if a header on the way is not sound, or if the offset lies in a damaged range.
    """
    if start >= end and start:
        raise CorruptBatch(f"byte {start} is past the end {end}")
    chunk, chunk_start, position, expected = b"", start, start, 0
    while position < end:
        for damage in damages:
            if damage.position == position:
                if offset < damage.next_offset:
                    raise CorruptBatch(f"damaged at byte {position}")
                position = damage.end
        inside = position - chunk_start
        if inside + _STEP.size > len(chunk):
            chunk, chunk_start, inside = file.read_at(position, min(_STEP_CHUNK, end - position)), position, 0
            if len(chunk) < _STEP.size:
                break
        base_offset, length, _, magic, _, _, delta = _STEP.unpack_from(chunk, inside)
        size = length + _PREFIX_SIZE
        if magic != MAGIC or size < HEADER_SIZE or base_offset < expected or delta < 0 or position + size > end:
            raise CorruptBatch(f"no batch header at byte {position}")
        if base_offset + delta >= offset:
            if base_offset > offset and position == start > 0:
                raise CorruptBatch(f"offset {offset} is before byte {position}")
            return BatchLocation(base_offset, position, size)
        expected = base_offset + delta + 1
        position += size
    return None
