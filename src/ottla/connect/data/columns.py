"""Many records of one topic that share their schemas, as Arrow columns. This is the fast path of most connectors."""

from dataclasses import dataclass

import pyarrow as pa

from ottla.connect.data.record import Header
from ottla.connect.data.schema import Schema


@dataclass(frozen=True)
class RecordColumns:
    """Column by column what `Record` is one by one. A null in `value` is a tombstone or a null without a schema.

    A STRUCT is an Arrow struct with the fields' names, other types are the nearest Arrow type (`data/arrow_types.py`).
    """

    topic: str
    value_schema: Schema
    value: pa.Array
    key_schema: Schema | None = None
    key: pa.Array | None = None
    timestamp: pa.Array | None = None
    """int64 milliseconds since 1970."""
    partition: pa.Array | None = None
    """int32, as `Record.partition`."""
    offset: pa.Array | None = None
    """int64, of records for a sink."""
    headers: list[list[Header]] | None = None

    def __len__(self) -> int:
        return len(self.value)


@dataclass(frozen=True)
class RawRecords:
    """Records of one topic as they are in it: no converter sees them. Sources that copy topics give them."""

    topic: str
    rows: pa.RecordBatch
    """The columns of `pipeline.encoding`: key, value, timestamp, partition, headers."""

    def __len__(self) -> int:
        return int(self.rows.num_rows)
