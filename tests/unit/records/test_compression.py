"""Codecs: they agree with other implementations, and no input makes them use more memory than their bound."""

import contextlib
import gzip
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ottla.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, CorruptBatch, compress, decompress
from tests.unit.allocations import measure_peak

CODECS = (GZIP, SNAPPY, LZ4, ZSTD)
MIB = 1024 * 1024
TEXT = b"".join(b"line %d of a text that repeats itself\n" % number for number in range(5_000))


@given(st.sampled_from((NONE, *CODECS)), st.binary(max_size=2000), st.integers(1, 200))
def test_data_survives_a_round_trip(codec: int, data: bytes, times: int) -> None:
    # Proves: every codec gives back what went in, within a bound that is exactly its size.
    data *= times
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("view", [bytes, bytearray, memoryview])
def test_any_buffer_is_accepted(codec: int, view: type) -> None:
    # Proves: a slice of a frame can be packed and unpacked without copying it first.
    packed = compress(codec, view(TEXT))
    assert len(packed) < len(TEXT) // 2
    assert decompress(codec, view(packed), len(TEXT)) == TEXT


@pytest.mark.parametrize("codec", CODECS)
def test_one_byte_above_the_bound_is_refused(codec: int) -> None:
    # Proves: the bound is exact.
    with pytest.raises(CorruptBatch):
        decompress(codec, compress(codec, TEXT), len(TEXT) - 1)


def zstd_stream() -> bytes:
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    packed = b"".join(
        stream.compress(TEXT[start : start + 5000]) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        for start in range(0, len(TEXT), 5000)
    )
    return packed + stream.flush()


FOREIGN: dict[str, tuple[int, Callable[[], bytes]]] = {
    "gzip": (GZIP, lambda: gzip.compress(TEXT)),
    "gzip in two members": (GZIP, lambda: gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:])),
    "raw snappy": (SNAPPY, lambda: bytes(cramjam.snappy.compress_raw(TEXT))),
    "lz4 with linked blocks": (LZ4, lambda: lz4.frame.compress(TEXT, block_linked=True)),
    "lz4 with large blocks and size": (LZ4, lambda: lz4.frame.compress(TEXT, block_size=7, store_size=True)),
    "lz4 with checksums": (LZ4, lambda: lz4.frame.compress(TEXT, content_checksum=True, block_checksum=True)),
    "lz4 in two frames": (LZ4, lambda: lz4.frame.compress(TEXT[:1000]) + lz4.frame.compress(TEXT[1000:])),
    "lz4 after a skippable frame": (LZ4, lambda: b"\x50\x2a\x4d\x18\x03\0\0\0abc" + lz4.frame.compress(TEXT)),
    "zstd with size": (ZSTD, lambda: zstandard.ZstdCompressor(write_content_size=True).compress(TEXT)),
    "zstd as a stream of small blocks": (ZSTD, zstd_stream),
    "zstd with checksum": (ZSTD, lambda: zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)),
    "zstd at its highest level": (ZSTD, lambda: zstandard.ZstdCompressor(level=22).compress(TEXT)),
    "zstd after a skippable frame": (ZSTD, lambda: b"\x51\x2a\x4d\x18\x02\0\0\0ab" + zstandard.compress(TEXT)),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_other_implementations_output_unpacks(kind: str) -> None:
    # Proves: every shape of frame that producers write is understood, with the tightest bound.
    codec, pack = FOREIGN[kind]
    assert decompress(codec, pack(), len(TEXT)) == TEXT


def test_other_implementations_read_ours() -> None:
    # Proves: our output has the common formats, and lz4 blocks are independent, as Java's reader demands.
    assert gzip.decompress(compress(GZIP, TEXT)) == TEXT
    packed = bytes(compress(LZ4, TEXT))
    assert lz4.frame.decompress(packed) == TEXT
    assert not lz4.frame.get_frame_info(packed)["block_linked"]
    assert zstandard.ZstdDecompressor().decompressobj().decompress(bytes(compress(ZSTD, TEXT))) == TEXT
    framed = bytes(compress(SNAPPY, TEXT[:1000]))
    assert framed[:16] == b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01"
    assert int.from_bytes(framed[16:20], "big") == len(framed) - 20
    assert bytes(cramjam.snappy.decompress_raw(framed[20:])) == TEXT[:1000]


@pytest.mark.parametrize("codec", (GZIP, LZ4, ZSTD))
def test_a_level_is_obeyed(codec: int) -> None:
    # Proves: the level reaches the codec.
    assert len(compress(codec, TEXT, 9)) != len(compress(codec, TEXT, 1))


BOMBS: dict[str, tuple[int, Callable[[], bytes]]] = {
    "gzip": (GZIP, lambda: gzip.compress(bytes(16 * MIB), 1)),
    "gzip of many members": (GZIP, lambda: gzip.compress(bytes(MIB)) * 16),
    "snappy claim": (SNAPPY, lambda: b"\xff\xff\xff\xff\x0f" + b"\0" * 20),
    "snappy claim within the bound": (SNAPPY, lambda: b"\x80\x80\x40" + b"\0" * 20),
    "snappy framed": (SNAPPY, lambda: bytes(compress(SNAPPY, bytes(16 * MIB)))),
    "lz4": (LZ4, lambda: lz4.frame.compress(bytes(16 * MIB))),
    "zstd": (ZSTD, lambda: zstandard.compress(bytes(16 * MIB))),
    "zstd of repeated bytes": (ZSTD, lambda: b"\x28\xb5\x2f\xfd\x00\x58" + b"\x02\x00\x10a" * 4096 + b"\x03\x00\x10a"),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_bombs_take_no_memory(kind: str) -> None:
    # Proves: data that decompresses to 16 MiB, or claims to, is refused with little more memory than the bound of 1
    # MiB.
    codec, pack = BOMBS[kind]
    packed = pack()

    def refuse() -> None:
        with pytest.raises(CorruptBatch):
            decompress(codec, packed, MIB)

    assert measure_peak(refuse) < 3 * MIB


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("snappy claim", "more than 65536 bytes|invalid header"),
        ("snappy claim within the bound", "claims to hold 1048576"),
        ("zstd of repeated bytes", "more than 65536 bytes"),
    ],
)
def test_bombs_with_an_honest_header_are_not_decompressed(kind: str, reason: str) -> None:
    # Proves: if the headers show the size, the data is refused before any decompression.
    codec, pack = BOMBS[kind]
    packed = pack()
    with pytest.raises(CorruptBatch, match=reason):
        decompress(codec, packed, 2 * MIB if "within" in kind else 65536)


@pytest.mark.parametrize("codec", CODECS)
def test_every_cut_is_noticed(codec: int) -> None:
    # Proves: data that ends early is refused, at every length of a small frame.
    packed = bytes(compress(codec, TEXT[:500]))
    for length in range(len(packed)):
        try:
            unpacked = decompress(codec, packed[:length], MIB)
        except CorruptBatch:
            continue
        # Formats without an end mark may stop between their parts. The record count of the batch notices that.
        assert TEXT.startswith(bytes(unpacked)) and len(unpacked) < 500


@given(st.sampled_from((*CODECS, 5, 7)), st.binary(max_size=300))
def test_garbage_is_refused(codec: int, data: bytes) -> None:
    # Proves: no bytes lead to another exception or beyond the bound.
    with contextlib.suppress(CorruptBatch):
        assert len(decompress(codec, data, 10_000)) <= 10_000


@given(st.sampled_from(CODECS), st.data())
def test_damage_is_survived(codec: int, data: st.DataObject) -> None:
    # Proves: the same for valid frames with a few changed bytes.
    damaged = bytearray(compress(codec, TEXT[:2000]))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptBatch):
        assert len(decompress(codec, damaged, 10_000)) <= 10_000


def test_unknown_codecs() -> None:
    # Proves: packing with a codec that does not exist is a mistake of ours, unpacking one is damage.
    with pytest.raises(ValueError, match="no codec 5"):
        compress(5, b"")
    with pytest.raises(CorruptBatch):
        decompress(5, b"", 10)
    with pytest.raises(CorruptBatch):
        decompress(NONE, b"abc", 2)
