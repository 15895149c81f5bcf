"""Cuts the rows of a topic partition into files: by directory, by schema, by number of rows, by the records' time.

Where the cuts are depends on the rows alone, so a batch that is written again makes the same files; only
`rotate.schedule.interval.ms` looks at the clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.connect.connector import MAX_ROWS
from ottla.connect.connectors.files.partitioners import Partitioner
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.schema import Schema

BATCH_BYTES: Final = 32 * 1024 * 1024
"""A batch of so many bytes is written even if no file is complete: a task reads no more at once."""


@dataclass(frozen=True)
class Rotation:
    """When a file is complete."""

    flush_size: int
    interval_ms: int
    """`rotate.interval.ms`: the records' time that a file spans at most; -1 for ever."""
    schedule_ms: int
    """`rotate.schedule.interval.ms`: how long the first record of a file waits by the clock; -1 for ever."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Rotation":
        size = min(config["flush.size"], MAX_ROWS)
        return cls(size, config["rotate.interval.ms"], config["rotate.schedule.interval.ms"])


@dataclass
class Piece:
    """The rows of one file."""

    directory: str
    schema: Schema
    start: int
    """The offset of the first row."""
    start_ms: int
    values: list[pa.Array] = field(default_factory=list)
    rows: int = 0
    is_complete: bool = False

    def join(self) -> pa.Array:
        """All values, as one column."""
        return self.values[0] if len(self.values) == 1 else pa.concat_arrays(self.values)


@dataclass(frozen=True)
class Cut:
    pieces: Sequence[Piece]
    """To be written now."""
    end: int | None
    """Where the rest begins; None if there is none."""


def cut_rows(
    partition: int, found: Sequence[RecordColumns], partitioner: Partitioner, rotation: Rotation, now_ms: int
) -> Cut:
    """What to write of these rows. The last file of a directory may wait for more rows; if rows of several directories
    alternate, all of them are written as soon as one file is complete."""
    pieces: list[Piece] = []
    open_pieces: dict[str, Piece] = {}
    for rows in found:
        directories = partitioner(partition, rows)
        codes = directories.indices.to_numpy(zero_copy_only=False)
        for code in np.unique(codes):
            chosen = np.flatnonzero(codes == code)
            _add_rows(pieces, open_pieces, directories.dictionary[int(code)].as_py(), rows, chosen, rotation)
    for piece in open_pieces.values():
        waited = now_ms - piece.start_ms
        piece.is_complete |= 0 <= rotation.schedule_ms <= waited
    size = sum(values.nbytes for piece in pieces for values in piece.values)
    complete = [piece for piece in pieces if piece.is_complete]
    waiting = [piece for piece in pieces if not piece.is_complete]
    if not waiting or size >= BATCH_BYTES or (complete and len({piece.directory for piece in pieces}) > 1):
        return Cut(pieces, None)
    return Cut(complete, min(piece.start for piece in waiting))


def _add_rows(
    pieces: list[Piece],
    open_pieces: dict[str, Piece],
    directory: str,
    rows: RecordColumns,
    chosen: Any,
    rotation: Rotation,
) -> None:
    assert rows.offset is not None
    offsets = rows.offset.to_numpy(zero_copy_only=False)[chosen]
    times = _find_times(rows)[chosen]
    values = rows.value if len(chosen) == len(rows) else rows.value.take(pa.array(chosen))
    first = 0
    while first < len(chosen):
        piece = open_pieces.get(directory)
        if piece is not None and (piece.schema != rows.value_schema or _has_passed(piece, times[first], rotation)):
            piece.is_complete = True
            piece = None
        if piece is None:
            piece = Piece(directory, rows.value_schema, int(offsets[first]), int(times[first]))
            open_pieces[directory] = piece
            pieces.append(piece)
        last = min(first + rotation.flush_size - piece.rows, len(chosen))
        if rotation.interval_ms > 0:
            late = np.flatnonzero(times[first:last] >= piece.start_ms + rotation.interval_ms)
            last = first + int(late[0]) if len(late) else last
        piece.values.append(values.slice(first, last - first))
        piece.rows += last - first
        if piece.rows >= rotation.flush_size:
            piece.is_complete = True
            del open_pieces[directory]
        first = last


def _has_passed(piece: Piece, time_ms: int, rotation: Rotation) -> bool:
    return 0 < rotation.interval_ms <= time_ms - piece.start_ms


def _find_times(rows: RecordColumns) -> Any:
    if rows.timestamp is None:
        return np.zeros(len(rows), np.int64)
    return rows.timestamp.fill_null(0).to_numpy(zero_copy_only=False)


def list_after(found: Sequence[RecordColumns], position: int) -> list[RecordColumns]:
    """Rows from an offset on. Earlier ones were written by a batch whose offsets were not committed."""
    kept = []
    for rows in found:
        assert rows.offset is not None
        first = len(rows.offset.filter(pc.less(rows.offset, position)))
        if first < len(rows):
            kept.append(rows if not first else _slice(rows, first))
    return kept


def _slice(rows: RecordColumns, first: int) -> RecordColumns:
    times = None if rows.timestamp is None else rows.timestamp.slice(first)
    offsets = None if rows.offset is None else rows.offset.slice(first)
    return RecordColumns(rows.topic, rows.value_schema, rows.value.slice(first), timestamp=times, offset=offsets)
