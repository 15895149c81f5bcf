"""Columns out of keys and values: text, JSON, Avro and Protobuf, with a schema given or from a schema registry.

    text.py       string and JSON            avro.py       Avro, with the writer's and the reader's schema
    protobuf.py   Protobuf descriptors       framed.py     what a registry's clients put before each value
    ddl.py        types as SQL writes them   inference.py  a type for JSON that has no schema
    choice.py     a format by its name       avro_reading.py  functions that read Avro, one for each pair of schemas

A `Format` makes an Arrow column of a column of bytes and never raises for a record: it says which rows are bad and why.
What becomes of those is the user's choice (`decode_columns`): the read fails, the column is null, or they are taken out
and handed back with the reason, for a dead-letter topic.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import pyarrow as pa

FAIL, NULL, DEAD_LETTER = "fail", "null", "dead-letter"
ON_BAD = (FAIL, NULL, DEAD_LETTER)

REASON = "reason"
"""The column that tells why a record is bad, among those that are handed back."""


class BadRecord(ValueError):
    """A record that cannot be decoded, where the user wants to hear of it."""


class Decoded(NamedTuple):
    column: pa.Array
    """Null where the value was null, and where it was bad."""
    bad: Mapping[int, str]
    """Row -> why."""


class Format(Protocol):
    @property
    def type(self) -> pa.DataType:
        """Of the column."""

    def decode(self, values: pa.Array) -> Decoded:
        """`values` is a column of bytes."""


class DecodedColumns(NamedTuple):
    batch: pa.RecordBatch
    """With the columns decoded."""
    reasons: Mapping[int, str]
    """Row of `batch` -> why a column of it is null; only with NULL."""
    bad: pa.RecordBatch | None = None
    """Rows as they were read, with REASON; only with DEAD_LETTER, and only if there are any."""


def decode_columns(batch: pa.RecordBatch, formats: Mapping[str, Format], on_bad: str = FAIL) -> DecodedColumns:
    """The batch with these columns (key, value) decoded, and what could not be. A row with one bad column is bad."""
    if on_bad not in ON_BAD:
        raise ValueError(f"{on_bad!r}: a bad record can be {', '.join(ON_BAD)}")
    decoded = batch
    reasons: dict[int, str] = {}
    for name, form in formats.items():
        index = batch.schema.get_field_index(name)
        column, bad = form.decode(batch.column(index))
        decoded = decoded.set_column(index, pa.field(name, form.type), column)
        for row, reason in bad.items():
            reasons[row] = f"{reasons[row]}; {name}: {reason}" if row in reasons else f"{name}: {reason}"
    if not reasons or on_bad == NULL:
        return DecodedColumns(decoded, reasons)
    rows = sorted(reasons)
    if on_bad == FAIL:
        others = f" ({len(rows) - 1} more in the same batch)" if len(rows) > 1 else ""
        raise BadRecord(f"{_locate(batch, rows[0])}: {reasons[rows[0]]}{others}")
    kept = pa.array([row not in reasons for row in range(batch.num_rows)])
    told = pa.array([reasons[row] for row in rows], pa.string())
    return DecodedColumns(decoded.filter(kept), {}, batch.take(pa.array(rows, pa.int64())).append_column(REASON, told))


def _locate(batch: pa.RecordBatch, row: int) -> str:
    """As exactly as the columns allow."""
    names = batch.schema.names
    if not {"topic", "partition", "offset"} <= set(names):
        return f"row {row}"
    found = {name: batch.column(names.index(name))[row].as_py() for name in ("topic", "partition", "offset")}
    return "{topic}-{partition} at offset {offset}".format(**found)


def scatter(parts: list[tuple[list[int], pa.Array]], rows: int, kind: pa.DataType) -> pa.Array:
    """One column of `rows` rows out of several: each part knows which rows it has; the rest is null."""
    places: list[int | None] = [None] * rows
    done = 0
    for indexes, column in parts:
        for at, row in enumerate(indexes):
            places[row] = done + at
        done += len(column)
    columns = [column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for _, column in parts]
    whole = pa.concat_arrays(columns) if columns else pa.nulls(0, kind)
    return whole.take(pa.array(places, pa.int64()))
