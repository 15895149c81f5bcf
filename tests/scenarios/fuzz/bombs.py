"""Batches that are small on the wire and huge when decompressed, or malformed; all with a correct CRC."""

import struct
from functools import cache
from random import Random

from crc32c import crc32c

from ottla.records.batch import encode, read_header, repack
from ottla.records.compression import GZIP, LZ4, SNAPPY, ZSTD, compress
from tests.unit.wire.mutations import mutants

CODECS = (GZIP, SNAPPY, LZ4, ZSTD)
ZEROS = {GZIP: 256 << 20, SNAPPY: 20 << 20, LZ4: 128 << 20, ZSTD: 256 << 20}
"""How many zero bytes are compressed with each codec, so that the result fits into a request."""
CRC_AT, CRC_FROM, COUNT_AT = 17, 21, 57

FORGED = {
    GZIP: b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03" + b"\xed\xc1\x01\x01" * 50,
    SNAPPY: b"\xff\xff\xff\xff\x07" + b"\xfe\x01\x00" * 300,
    LZ4: struct.pack("<IBBQB", 0x184D2204, 0x68, 0x70, 1 << 60, 0) + b"\x1f\x00\x01\x00" + b"\xff" * 900,
    ZSTD: struct.pack("<IBQ", 0xFD2FB528, 0xE0, 1 << 60) + b"\x03\xff\xff" * 100,
}
"""Headers of compressed data that announce gigabytes, with next to nothing behind them."""


@cache
def make_valid_batch() -> bytes:
    return bytes(encode([(b"key", b"value %d" % number, (("header", b"x"),), 1_000 + number) for number in range(20)]))


@cache
def compress_zeros(codec: int) -> bytes:
    return bytes(compress(codec, bytes(ZEROS[codec])))


def make_bomb(random: Random) -> bytearray:
    """A batch that decompresses to very many zeros, or announces it."""
    codec = random.choice(CODECS)
    body = compress_zeros(codec) if random.random() < 0.5 else FORGED[codec]
    batch = repack(read_header(make_valid_batch()), codec, body, 1_019)
    if random.random() < 0.5:
        struct.pack_into(">i", batch, COUNT_AT, random.choice((0, -1, 1 << 30, 2**31 - 1)))
    return seal(batch)


def make_malformed_batch(random: Random) -> bytearray:
    """A valid batch that is damaged behind its length field, with a correct checksum."""
    (damaged,) = mutants(random, make_valid_batch()[CRC_FROM:], 1)
    batch = bytearray(make_valid_batch()[:CRC_FROM] + damaged)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    return seal(batch)


def seal(batch: bytearray) -> bytearray:
    struct.pack_into(">I", batch, CRC_AT, crc32c(batch[CRC_FROM:]))
    return batch
