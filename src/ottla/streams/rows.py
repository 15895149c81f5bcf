"""Rows between the steps of a topology: Arrow tables with the user's columns and a few of ours.

The user's columns are those of the record's key (`Node.key` names them) and those of its value. Ours begin with `_`:
they travel with each row through every step, also through Spark.

A row of a *stream* stands for one record. A row of a *table* stands for a change of one key: `_deleted` says that the
key is gone (the value columns are null then), and `_old` holds the value columns as they were before, or null if there
was no such key. Steps that do not need the old value leave `_old` out.
"""

from typing import Final

import pyarrow as pa

ORDER: Final = "_order"
"""int64: the place of the row in its batch. A row that a step makes has the place of the row that caused it; rows with
equal places keep their order. A step with several inputs handles their rows in this order."""

TIMESTAMP: Final = "_timestamp"
"""int64: the time of the row in milliseconds. It becomes the timestamp of the record that is written."""

STREAM_TIME: Final = "_stream_time"
"""int64: the highest time that the row's own source partition had reached with this row, itself included. Whether a row
is late depends on it alone, so it does not depend on how the input is cut into batches or mixed with other partitions.
"""

SOURCE: Final = "_source"
"""int32: the number of the source partition that STREAM_TIME is about, unique in the app."""

HEADERS: Final = "_headers"
"""list<struct<key, value>>: the headers of the record, or null."""

TOPIC: Final = "_topic"
PARTITION: Final = "_partition"
OFFSET: Final = "_offset"
"""The record that the row comes from: string, int32, int64. Null for a row that time has caused, not a record."""

DELETED: Final = "_deleted"
"""bool, of tables only: the key is gone."""

OLD: Final = "_old"
"""struct of the value columns, of tables only: the value before the change, or null."""

HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

HIDDEN: Final = pa.schema(
    [
        (ORDER, pa.int64()),
        (TIMESTAMP, pa.int64()),
        (STREAM_TIME, pa.int64()),
        (SOURCE, pa.int32()),
        (HEADERS, HEADERS_TYPE),
        (TOPIC, pa.string()),
        (PARTITION, pa.int32()),
        (OFFSET, pa.int64()),
    ]
)
"""The columns of ours that every row has."""

RESERVED: Final = (*HIDDEN.names, DELETED, OLD)


def stream_schema(columns: pa.Schema) -> pa.Schema:
    """The schema of a stream's rows with these columns of the user."""
    return pa.schema([*columns, *HIDDEN])


def table_schema(columns: pa.Schema, key: tuple[str, ...], *, with_old: bool = False) -> pa.Schema:
    """The schema of a table's changes with these columns of the user, of which `key` are those of the key."""
    old = [pa.field(OLD, pa.struct(value_fields(columns, key)))] if with_old else []
    return pa.schema([*columns, *HIDDEN, pa.field(DELETED, pa.bool_()), *old])


def value_fields(columns: pa.Schema, key: tuple[str, ...]) -> list[pa.Field]:
    return [field for field in columns if field.name not in key]
