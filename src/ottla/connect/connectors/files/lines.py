"""Lines of a text file that grows: only lines that have their end are read.

A line ends with \\n, \\r\\n or \\r, as in Kafka's file source. A \\r at the end of the file may be the first half of an
\\r\\n, so it ends no line yet. Positions are in bytes.
"""

from collections.abc import Iterator
from typing import BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

CHUNK_BYTES: Final = 4 * 1024 * 1024
LOOK_BYTES: Final = 64 * 1024


def has_line(file: BinaryIO, position: int) -> bool:
    """Whether a whole line follows."""
    file.seek(position)
    before = b""
    while chunk := file.read(LOOK_BYTES):
        if b"\n" in chunk or b"\r" in before + chunk[:-1]:
            return True
        before = chunk[-1:]
    return False


def read_lines(file: BinaryIO, position: int, rows_max: int) -> Iterator[tuple[pa.Array, int]]:
    """Columns of at most `rows_max` lines, without their ends, and the position after each column."""
    rest = b""
    file.seek(position)
    while chunk := file.read(CHUNK_BYTES):
        rest += chunk
        end = _find_end(rest)
        if not end:
            continue
        whole, rest = rest[:end], rest[end:]
        for lines, size in _split(whole, rows_max):
            position += size
            yield lines, position


def _find_end(data: bytes) -> int:
    """The place after the last end of a line; 0 if there is none."""
    return max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1


def _split(data: bytes, rows_max: int) -> Iterator[tuple[pa.Array, int]]:
    """Columns of lines, and how many bytes of the data each of them has taken."""
    is_plain = b"\r" not in data
    plain = data if is_plain else data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    try:
        text = pa.array([plain[:-1]], pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:  # it is not UTF-8
        is_plain = False
        text = pa.array([plain[:-1].decode("utf-8", "replace")])
    lines = pc.split_pattern(text, "\n").values
    if len(lines) <= rows_max:
        yield lines, len(data)
        return
    firsts = range(0, len(lines), rows_max)
    if is_plain:  # a line has taken its own bytes and one for its end
        offsets = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset : lines.offset + len(lines) + 1]
        for first in firsts:
            column = lines.slice(first, rows_max)
            yield column, int(offsets[first + len(column)] - offsets[first]) + len(column)
        return
    pieces = data.splitlines(keepends=True)  # of bytes: at \n, \r and \r\n only
    for first in firsts:
        yield lines.slice(first, rows_max), sum(map(len, pieces[first : first + rows_max]))
