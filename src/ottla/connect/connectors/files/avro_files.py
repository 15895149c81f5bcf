"""Avro object container files: a header with the schema, then blocks of values, each block behind its count and size.

header   "Obj" 1, a map with avro.schema and avro.codec, 16 bytes of sync marker
block    count, size in bytes, the values, the sync marker
"""

import zlib
from collections.abc import Iterator
from hashlib import md5
from typing import BinaryIO, Final

import pyarrow as pa

from ottla.connect.errors import ConnectError
from ottla.pipeline.formats.avro import derive_type
from ottla.pipeline.formats.avro_reading import make_reader, read_long
from ottla.pipeline.formats.avro_schemas import parse_schema
from ottla.pipeline.formats.avro_writing import AvroEncoder, make_schema, write_long

MAGIC: Final = b"Obj\x01"
SYNC_BYTES: Final = 16
BLOCK_ROWS: Final = 4096


def write_avro(column: pa.Array, name: str) -> bytes:
    """A file with the rows of a struct column. The same rows make the same file."""
    schema = make_schema(column.type, name)
    sync = md5(schema.encode(), usedforsecurity=False).digest()
    out = bytearray(MAGIC)
    write_long(2, out)
    for key, value in (("avro.schema", schema.encode()), ("avro.codec", b"deflate")):
        for data in (key.encode(), value):
            write_long(len(data), out)
            out += data
    write_long(0, out)
    out += sync
    encoder = AvroEncoder(schema)
    for first in range(0, len(column), BLOCK_ROWS):
        rows = encoder.encode(column.slice(first, BLOCK_ROWS).cast(encoder.type)).to_pylist()
        block = zlib.compress(b"".join(rows), wbits=-15)
        write_long(len(rows), out)
        write_long(len(block), out)
        out += block + sync
    return bytes(out)


def read_avro(file: BinaryIO, rows_before: int) -> Iterator[pa.Array]:
    """The rows of a file after so many, a block at a time, as struct columns. ConnectError if it is no such file."""
    data = file.read()
    if data[:4] != MAGIC:
        raise ConnectError(f"{file.name} is no Avro file")
    metadata, position = _read_metadata(data)
    codec = metadata.get("avro.codec", b"null").decode()
    if codec not in ("null", "deflate"):
        raise ConnectError(f"{file.name} is compressed with {codec}; null and deflate can be read")
    schema = parse_schema(metadata["avro.schema"].decode())
    read, kind = make_reader(schema, schema), derive_type(schema)
    position += SYNC_BYTES
    while position < len(data):
        count, position = read_long(data, position)
        size, position = read_long(data, position)
        if rows_before >= count:
            rows_before -= count
        else:
            block = data[position : position + size]
            block = zlib.decompress(block, wbits=-15) if codec == "deflate" else block
            rows, at = [], 0
            for _ in range(count):
                row, at = read(block, at)
                rows.append(row)
            yield pa.array(rows[rows_before:], kind)
            rows_before = 0
        position += size + SYNC_BYTES


def _read_metadata(data: bytes) -> tuple[dict[str, bytes], int]:
    found: dict[str, bytes] = {}
    position = len(MAGIC)
    while True:
        count, position = read_long(data, position)
        if count == 0:
            return found, position
        if count < 0:  # a block with its size before it
            count = -count
            _, position = read_long(data, position)
        for _ in range(count):
            pair = []
            for _ in range(2):
                size, position = read_long(data, position)
                pair.append(data[position : position + size])
                position += size
            found[pair[0].decode()] = pair[1]
