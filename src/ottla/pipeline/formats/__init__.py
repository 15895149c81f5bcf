"""Decodes keys and values to typed columns: text, JSON, Avro and Protobuf, with a given or a registered schema.

    choice.py             makes the format that a user has named
    text.py               text and JSON
    numbers.py            numbers as Kafka's serializers write them
    avro.py               Avro columns
    avro_schemas.py       parses Avro schemas
    avro_reading.py       functions that read Avro values
    avro_writing.py       encodes Avro values, and makes schemas
    protobuf.py           Protobuf columns
    protobuf_messages.py  classes of Protobuf messages, and which message of its schema a value is
    protobuf_writing.py   encodes Protobuf messages
    proto_source.py       reads the source of .proto files
    proto_tokens.py       its words
    framed.py             values that begin with the id of a schema in a schema registry
    ddl.py                parses types in SQL syntax
    inference.py          infers a type for JSON without a schema

A `Format` decodes a column of bytes to a typed Arrow column. A bad record does not raise: the format returns which
rows are bad and why. With `decode_columns` the user chooses what happens to them: the read fails, the column is null,
or the rows are removed and returned with the reason, for a dead-letter topic.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:  # modules of this package that read single values must be importable without pyarrow
    import pyarrow as pa

FAIL, NULL, DEAD_LETTER = "fail", "null", "dead-letter"
ON_BAD = (FAIL, NULL, DEAD_LETTER)

REASON = "reason"
"""The column with the reason, in the batch of bad records that `decode_columns` returns."""


class BadRecord(ValueError):
    """A record cannot be decoded, and the user has chosen that the read fails."""


class Decoded(NamedTuple):
    column: "pa.Array"
    """The decoded column. It is null where the value was null or bad."""
    bad: Mapping[int, str]
    """The reason for each bad row."""


class Format(Protocol):
    @property
    def type(self) -> "pa.DataType":
        """The type of the decoded column."""

    def decode(self, values: "pa.Array") -> Decoded:
        """Decodes a column of bytes."""


class DecodedColumns(NamedTuple):
    batch: "pa.RecordBatch"
    """The batch with the decoded columns."""
    reasons: Mapping[int, str]
    """With NULL: for each row with a bad column, the reason."""
    bad: "pa.RecordBatch | None" = None
    """With DEAD_LETTER: the bad rows as they were read, with the column REASON. None if no row is bad."""


def decode_columns(batch: "pa.RecordBatch", formats: Mapping[str, Format], on_bad: str = FAIL) -> DecodedColumns:
    """Decodes the columns (key, value) that `formats` names. A row is bad if at least one of its columns is."""
    import pyarrow as pa

    if on_bad not in ON_BAD:
        raise ValueError(f"{on_bad!r}: a bad record can be {', '.join(ON_BAD)}")
    decoded = batch
    reasons: dict[int, str] = {}
    for name, form in formats.items():
        index = batch.schema.get_field_index(name)
        column, bad_rows = form.decode(batch.column(index))
        decoded = decoded.set_column(index, pa.field(name, form.type), column)
        for row, reason in bad_rows.items():
            reasons[row] = f"{reasons[row]}; {name}: {reason}" if row in reasons else f"{name}: {reason}"
    if not reasons or on_bad == NULL:
        return DecodedColumns(decoded, reasons)
    rows = sorted(reasons)
    if on_bad == FAIL:
        others = f" ({len(rows) - 1} more in the same batch)" if len(rows) > 1 else ""
        raise BadRecord(f"{_locate(batch, rows[0])}: {reasons[rows[0]]}{others}")
    kept = pa.array([row not in reasons for row in range(batch.num_rows)])
    bad = batch.take(pa.array(rows, pa.int64()))
    bad = bad.append_column(REASON, pa.array([reasons[row] for row in rows], pa.string()))
    return DecodedColumns(decoded.filter(kept), {}, bad)


def _locate(batch: "pa.RecordBatch", row: int) -> str:
    """Names a record for an error message: by topic, partition and offset if the batch has these columns."""
    names = batch.schema.names
    if not {"topic", "partition", "offset"} <= set(names):
        return f"row {row}"
    found = {name: batch.column(names.index(name))[row].as_py() for name in ("topic", "partition", "offset")}
    return "{topic}-{partition} at offset {offset}".format(**found)


def scatter(parts: "Sequence[tuple[Sequence[int], pa.Array]]", rows: int, kind: "pa.DataType") -> "pa.Array":
    """Merges partial columns into one of `rows` rows. Each part comes with the rows of its values; other rows are
    null."""
    import pyarrow as pa

    places: list[int | None] = [None] * rows
    done = 0
    for indexes, column in parts:
        for at, row in enumerate(indexes):
            places[row] = done + at
        done += len(column)
    columns = [column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for _, column in parts]
    whole = pa.concat_arrays(columns) if columns else pa.nulls(0, kind)
    return whole.take(pa.array(places, pa.int64()))
