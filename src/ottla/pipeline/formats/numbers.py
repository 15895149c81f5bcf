"""Numbers as Kafka's own serializers write them: four or eight bytes, big-endian, and one byte for a boolean.

These are the formats of IntegerSerializer, LongSerializer, DoubleSerializer and BooleanSerializer of the Java client.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.formats import Decoded

FORMS = {pa.int32(): ">i4", pa.int64(): ">i8", pa.float64(): ">f8", pa.bool_(): "u1"}

Array = Any
"""A numpy array. Its shape and type are not checked statically."""


class Numbers:
    """Encodes and decodes one of the types of FORMS."""

    def __init__(self, kind: pa.DataType) -> None:
        self.type = kind
        self._form = np.dtype(FORMS[kind])

    def __reduce__(self) -> tuple[type["Numbers"], tuple[pa.DataType]]:
        return Numbers, (self.type,)

    def decode(self, values: pa.Array) -> Decoded:
        size = self._form.itemsize
        column = values.cast(pa.binary())
        lengths = _lengths(column)
        is_null = column.is_null().to_numpy(zero_copy_only=False)
        bad = {
            int(row): f"{lengths[row]} bytes, where {self.type} has {size}"
            for row in np.flatnonzero((lengths != size) & ~is_null)
        }
        usable = (lengths == size) & ~is_null
        raw = b"".join(column.filter(pa.array(usable)).to_numpy(zero_copy_only=False).tolist())
        numbers = np.zeros(len(column), self._form.newbyteorder("="))
        numbers[usable] = np.frombuffer(raw, self._form)
        found = numbers != 0 if self.type == pa.bool_() else numbers
        return Decoded(pa.array(found, self.type, mask=~usable), bad)

    def encode(self, column: pa.Array) -> pa.Array:
        """The bytes of each number; null where the column is null. All NaNs become the one that Java writes."""
        filled = column.fill_null(pa.scalar(0, pa.int8()).cast(self.type)) if column.null_count else column
        numbers = filled.to_numpy(zero_copy_only=False).astype(self._form)
        if self.type == pa.float64():
            numbers[np.isnan(numbers)] = np.nan
        size = self._form.itemsize
        fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), len(column), [None, pa.py_buffer(numbers)])
        found = fixed.cast(pa.binary())
        return pc.if_else(column.is_valid(), found, None) if column.null_count else found


def _lengths(column: pa.Array) -> Array:
    _, ends, _ = column.buffers()
    offsets = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]
    return np.diff(offsets)
