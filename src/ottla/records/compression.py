"""The codecs of record batches: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.

Decompression never yields, nor takes memory for, more than the caller's bound, whatever the input claims. gzip is
unpacked as a stream. For the others the block headers limit the size of the output, which is a fixed buffer:

- snappy is either one raw block, or Java's framing: 8 bytes of magic, two int32 versions, then chunks of an int32
  length and a raw block. A raw block starts with its unpacked length, which cannot be more than 22 times its own.
- lz4 is the frame format: blocks of at most 64 KiB to 4 MiB, of which no byte unpacks to more than 255.
- zstd is one or more frames of blocks that unpack to at most 128 KiB.

cramjam is imported on first use: a broker that never looks into a batch does not need it in memory.
"""

import zlib
from collections.abc import Callable
from struct import Struct
from struct import error as StructError

Bytes = bytes | bytearray | memoryview

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

_GZIP_WINDOW = 31
_GZIP_LEVEL = -1
_GZIP_PIECE_MIN = 256 * 1024

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEAD = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_CHUNK = 32 * 1024
_SNAPPY_RATIO_MAX = 22

_LZ4_MAGIC = 0x184D2204
_LZ4_RATIO_MAX = 255
_LZ4_LEVEL = 1

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK_MAX = 128 * 1024
_ZSTD_LEVEL = 3
_ZSTD_IDENTITY_SIZES = (0, 1, 2, 4)

_SKIPPABLE_MAGIC = 0x184D2A50
_SKIPPABLE_MASK = 0xFFFFFFF0

_INT32 = Struct(">i")
_UINT32_LITTLE = Struct("<I")

_USUAL_RATIO = 16
_USUAL_OUTPUT_MIN = 128 * 1024


class CorruptBatch(Exception):
    """These bytes are not a valid record batch."""


class TooLarge(CorruptBatch):
    """These bytes decompress, or may decompress, to more than the limit."""


def compress(codec: int, data: Bytes, level: int | None = None) -> Bytes:
    """Compress as Kafka's Java client does. snappy has no levels."""
    if codec == NONE:
        return data
    if codec == GZIP:
        return zlib.compress(data, _GZIP_LEVEL if level is None else level, _GZIP_WINDOW)
    import cramjam

    if codec == SNAPPY:
        return _compress_xerial(data)
    if codec == LZ4:
        # Kafka's Java client refuses frames whose blocks depend on each other.
        compressor = cramjam.lz4.Compressor(level=_LZ4_LEVEL if level is None else level, block_linked=False)
        compressor.compress(bytes(data))
        return memoryview(compressor.finish())
    if codec == ZSTD:
        return memoryview(cramjam.zstd.compress(data, _ZSTD_LEVEL if level is None else level))
    raise ValueError(f"there is no codec {codec}")


def _compress_xerial(data: Bytes) -> bytearray:
    import cramjam

    framed = bytearray(_XERIAL_HEAD)
    with memoryview(data) as view:
        for start in range(0, len(view), _XERIAL_CHUNK):
            block = memoryview(cramjam.snappy.compress_raw(view[start : start + _XERIAL_CHUNK]))
            framed += _INT32.pack(len(block))
            framed += block
    return framed


def decompress(codec: int, data: Bytes, max_bytes: int) -> bytes | bytearray:
    """Decompress. CorruptBatch if that fails, TooLarge if the result would be larger than `max_bytes`."""
    if codec == NONE:
        if len(data) > max_bytes:
            raise _make_too_large_error(max_bytes)
        return bytes(data)
    if codec == GZIP:
        return _gunzip(data, max_bytes)
    import cramjam

    try:
        if codec == SNAPPY:
            return _unsnappy(data, max_bytes)
        if codec == LZ4:
            return _unpack(cramjam.lz4.decompress_into, data, _find_lz4_output_max(data), max_bytes)
        if codec == ZSTD:
            return _unpack(cramjam.zstd.decompress_into, data, _find_zstd_output_max(data, max_bytes), max_bytes)
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"{NAMES[codec]} data cannot be decompressed within {max_bytes} bytes: {error}") from None
    except (IndexError, StructError):
        raise CorruptBatch(f"{NAMES[codec]} data is cut off") from None
    raise CorruptBatch(f"there is no codec {codec}")


def _make_too_large_error(max_bytes: int) -> TooLarge:
    return TooLarge(f"the batch decompresses to more than {max_bytes} bytes")


def _gunzip(data: Bytes, max_bytes: int) -> bytes | bytearray:
    """Decompress all members of a gzip stream, one after the other, as Java does."""
    unpacked = bytearray()
    rest: Bytes = data
    piece = max(max_bytes >> 4, _GZIP_PIECE_MIN)
    while True:
        stream = zlib.decompressobj(_GZIP_WINDOW)
        while not stream.eof:
            try:
                unpacked += stream.decompress(rest, min(piece, max_bytes - len(unpacked) + 1))
            except zlib.error as error:
                raise CorruptBatch(f"gzip data cannot be decompressed: {error}") from None
            if len(unpacked) > max_bytes:
                raise _make_too_large_error(max_bytes)
            rest = stream.unconsumed_tail
            if not rest and not stream.eof:
                raise CorruptBatch("gzip data is cut off")
        if not stream.unused_data:
            return unpacked
        rest = stream.unused_data


def _unsnappy(data: Bytes, max_bytes: int) -> bytes | bytearray:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _unsnappy_block(view, max_bytes)
    unpacked = bytearray()
    position = len(_XERIAL_HEAD)
    while position < len(view):
        (length,) = _INT32.unpack_from(view, position)
        position += _INT32.size
        if not 0 < length <= len(view) - position:
            raise CorruptBatch(f"a snappy chunk of {length} bytes where {len(view) - position} are left")
        unpacked += _unsnappy_block(view[position : position + length], max_bytes - len(unpacked))
        position += length
    return unpacked


def _unsnappy_block(block: memoryview, max_bytes: int) -> bytearray:
    import cramjam

    length = cramjam.snappy.decompress_raw_len(block)
    if length > max_bytes:
        raise _make_too_large_error(max_bytes)
    if length > len(block) * _SNAPPY_RATIO_MAX:
        raise CorruptBatch(f"a snappy block of {len(block)} bytes claims to hold {length}")
    output = bytearray(length)
    if length:
        del output[cramjam.snappy.decompress_raw_into(block, output) :]
    return output


def _unpack(
    decompress_into: Callable[[Bytes, bytearray], int], data: Bytes, output_max: int, max_bytes: int
) -> bytearray:
    """Decompress into a buffer of at most `max_bytes`. The first attempt uses a buffer that is enough for nearly all
    batches."""
    import cramjam

    limit = min(output_max, max_bytes)
    usual = max(len(data) * _USUAL_RATIO, _USUAL_OUTPUT_MIN)
    if usual < limit:
        output = bytearray(usual)
        try:
            del output[decompress_into(data, output) :]
            return output
        except cramjam.DecompressionError:
            del output
    output = bytearray(limit)
    try:
        del output[decompress_into(data, output) :]
    except cramjam.DecompressionError:
        if limit < output_max:  # the buffer may have been too small
            raise _make_too_large_error(max_bytes) from None
        raise
    return output


def _skip_frame(data: Bytes, position: int) -> int:
    """The position after a skippable frame at `position`. lz4 and zstd both have such frames."""
    return position + 8 + int(_UINT32_LITTLE.unpack_from(data, position + 4)[0])


def _find_lz4_output_max(data: Bytes) -> int:
    total = position = 0
    while position < len(data):
        (magic,) = _UINT32_LITTLE.unpack_from(data, position)
        if magic & _SKIPPABLE_MASK == _SKIPPABLE_MAGIC:
            position = _skip_frame(data, position)
            continue
        if magic != _LZ4_MAGIC:
            raise CorruptBatch("lz4 data has no frame")
        flags = data[position + 4]
        block_max = 1 << (2 * (data[position + 5] >> 4 & 7) + 8)
        position += 7 + bool(flags & 0x08) * 8 + bool(flags & 0x01) * 4
        checksum_size = bool(flags & 0x10) * 4
        while True:
            (size,) = _UINT32_LITTLE.unpack_from(data, position)
            position += 4
            if not size:
                break
            size &= 0x7FFFFFFF
            total += min(block_max, size * _LZ4_RATIO_MAX)
            position += size + checksum_size
        position += bool(flags & 0x04) * 4
    return total


def _find_zstd_output_max(data: Bytes, max_bytes: int) -> int:
    total = certain = position = 0
    while position < len(data):
        (magic,) = _UINT32_LITTLE.unpack_from(data, position)
        if magic & _SKIPPABLE_MASK == _SKIPPABLE_MAGIC:
            position = _skip_frame(data, position)
            continue
        if magic != _ZSTD_MAGIC:
            raise CorruptBatch("zstd data has no frame")
        descriptor = data[position + 4]
        single_segment = bool(descriptor & 0x20)
        size_flag = descriptor >> 6
        position += 5 + (not single_segment) + _ZSTD_IDENTITY_SIZES[descriptor & 3]
        position += 1 << size_flag if size_flag else single_segment
        last = False
        while not last:
            head = int.from_bytes(data[position : position + 3], "little")
            last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
            if position + 3 > len(data) or kind == 3:
                raise CorruptBatch("zstd data has a block of no known kind")
            position += 3 + (1 if kind == 1 else size)
            total += size if kind < 2 else _ZSTD_BLOCK_MAX
            certain += size if kind < 2 else 0
        position += bool(descriptor & 0x04) * 4
    if certain > max_bytes:
        raise _make_too_large_error(max_bytes)
    return total
