"""Turns columns of records into Spark's columns, in the tasks: decodes, renames and orders them."""

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from ottla.pipeline.formats import NULL, decode_columns
from pyspark_ottla.dead_letters import NEEDED, DeadLetters
from pyspark_ottla.rows import COLUMNS, ERROR
from pyspark_ottla.shapes import Origin, Shape

PLACE = ("topic", "partition", "offset")


class RowMaker:
    """Makes the rows of one task."""

    def __init__(self, shape: Shape, kafka: Mapping[str, str]) -> None:
        self._shape = shape
        self._kafka = kafka
        self._target = to_arrow_schema(shape.schema, timezone="UTC")
        self._dead_letters: DeadLetters | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to read: those that the query wants, and those that describe a bad record."""
        asked = tuple(origin.column for origin in self._shape.origins)
        if not self._shape.formats:
            return asked
        wanted = {*asked, *self._shape.formats, *PLACE}
        if self._shape.dead_letter_topic is not None:
            wanted |= set(NEEDED)
        return tuple(name for name in COLUMNS if name in wanted)

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not self._shape.formats:
            return batches
        return self._decode(batches)

    def _decode(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                good, reasons, bad = decode_columns(batch, self._shape.formats, self._shape.bad_records)
                if bad is not None:
                    self._send(bad)
                if good.num_rows:
                    yield self._arrange(good, reasons)
        finally:
            if self._dead_letters is not None:
                self._dead_letters.close()

    def _send(self, bad: pa.RecordBatch) -> None:
        if self._dead_letters is None:
            assert self._shape.dead_letter_topic is not None
            self._dead_letters = DeadLetters(self._kafka, self._shape.dead_letter_topic)
        self._dead_letters.send(bad)

    def _arrange(self, good: pa.RecordBatch, reasons: Mapping[int, str]) -> pa.RecordBatch:
        found: dict[Origin, pa.Array] = {Origin(name): good.column(name) for name in good.schema.names}
        if self._shape.bad_records == NULL:
            found[Origin(ERROR)] = _report(reasons, good.num_rows)
        if any(origin.field is not None for origin in self._shape.origins):
            value = good.column("value")
            fields = zip(value.type, value.flatten(), strict=True)
            found.update({Origin("value", field.name): column for field, column in fields})
        arrays = [
            _as(found[origin], kind) for origin, kind in zip(self._shape.origins, self._target.types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._target)


def _report(reasons: Mapping[int, str], rows: int) -> pa.Array:
    if not reasons:
        return pa.nulls(rows, pa.string())
    return pa.array([reasons.get(row) for row in range(rows)], pa.string())


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same column, with Spark's names for the elements of lists and maps."""
    return column if column.type.equals(kind, check_metadata=True) else column.cast(kind)
