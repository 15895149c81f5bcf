"""Reading the batches of a segment, with their checksums.

A damaged log is not compacted: writing a damaged batch again would give it a right checksum.
"""

from collections.abc import Iterator

from ottla.records.batch import DECODED_BYTES_MAX, HEADER_SIZE, BatchHeader, CorruptBatch, is_intact, read_header
from ottla.records.compression import decompress
from ottla.storage import names
from ottla.storage.cleaner.order import Source, Uncleanable
from ottla.storage.files import Disk

_READ_BYTES_MIN = 4096


def read_batches(
    disk: Disk, directory: str, source: Source, read_bytes: int
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield each batch with its header. The buffer grows for a batch that is larger than `read_bytes`."""
    read_bytes = max(read_bytes, _READ_BYTES_MIN)
    file = disk.open_read(names.path(directory, source.base_offset, names.LOG))
    end = source.size
    try:
        chunk, inside, position = memoryview(b""), 0, 0
        next_offset = source.base_offset
        while position < end:
            if inside + HEADER_SIZE > len(chunk):
                chunk, inside = memoryview(file.read_at(position, min(read_bytes, end - position))), 0
            header = read_header(chunk, inside)
            size = header.size
            if size > min(end - position, DECODED_BYTES_MAX) or header.base_offset < next_offset:
                raise CorruptBatch(f"no batch of {size} bytes with offset {header.base_offset} can be here")
            if inside + size > len(chunk):
                chunk, inside = memoryview(file.read_at(position, max(size, min(read_bytes, end - position)))), 0
            batch = chunk[inside : inside + size]
            if not is_intact(header, batch):
                raise CorruptBatch(f"the batch with offset {header.base_offset} fails its checksum")
            yield header, batch
            inside += size
            position += size
            next_offset = header.next_offset
    except CorruptBatch as error:
        raise Uncleanable(f"{file.path} is damaged at byte {position}: {error}") from None
    finally:
        file.close()


def unpack_records(header: BatchHeader, batch: memoryview) -> bytes | bytearray | memoryview:
    """Return the records of a batch, decompressed."""
    body = batch[HEADER_SIZE:]
    if not header.codec:
        return body
    try:
        return decompress(header.codec, body, DECODED_BYTES_MAX)
    except CorruptBatch as error:
        raise Uncleanable(f"the batch at offset {header.base_offset} does not unpack: {error}") from None
