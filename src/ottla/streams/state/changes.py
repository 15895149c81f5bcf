"""What records of a topic do to a table: the values of their keys.

A changelog holds keys and values as a store has them. The topic of a source table holds what its users have written: it
is read as a task reads it, so that the table holds for a key what the rows of the topic say, and nothing of a record
that a task cannot read.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple

import pyarrow as pa

from ottla.streams.kernels.versions import table_codec
from ottla.streams.planning.plan import SourcePlan, StorePlan
from ottla.streams.rows import DELETED
from ottla.streams.state.keys import encode_keys
from ottla.streams.tasks.reading import NO_TIME, read_rows

COLUMNS = ("key", "value", "offset")
SOURCE_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")


class Changes(NamedTuple):
    values: Mapping[bytes, bytes | None]
    """The last value of each key; None for a deleted one."""
    bad: int
    """Records that were left out because they cannot be decoded. The task that reads them says which ones."""


class ChangeReader:
    """Reads batches of records, which have the columns `columns`. A record without a key changes nothing."""

    def __init__(self, plan: StorePlan) -> None:
        self._source: SourcePlan | None = None
        if plan.key_format is not None and plan.value_format is not None:
            self._source = SourcePlan(
                plan.changelog,
                pa.schema([*plan.key_columns, *plan.value_columns]),
                tuple(plan.key_columns.names),
                is_table=True,
                key_format=plan.key_format,
                value_format=plan.value_format,
                time=plan.time,
            )
        self.columns = COLUMNS if self._source is None else SOURCE_COLUMNS
        self.form = "" if self._source is None else _fingerprint(plan)
        """Of a source table: changes with its columns and formats, and with it what a record becomes."""

    def read(self, batch: pa.RecordBatch) -> Changes:
        if self._source is not None:
            return _read_source(self._source, batch)
        changes = dict(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))
        changes.pop(None, None)
        return Changes(changes, 0)


def _fingerprint(plan: StorePlan) -> str:
    formats = [
        each and (each.kind, str(each.schema), each.message, str(each.type))
        for each in (plan.key_format, plan.value_format)
    ]
    parts = (str(plan.key_columns), str(plan.value_columns), formats, plan.time)
    return sha256(repr(parts).encode()).hexdigest()[:16]


def _read_source(source: SourcePlan, batch: pa.RecordBatch) -> Changes:
    read = read_rows(source, pa.Table.from_batches([batch]), stream_time=NO_TIME, number=0)
    keys = encode_keys(read.rows, source.key)
    newest = {key: row for row, key in enumerate(keys) if key is not None}
    rows = read.rows
    if len(newest) < rows.num_rows:
        rows = rows.take(pa.array(newest.values(), pa.int64()))
    values = table_codec(source.columns, source.key).encode(rows)
    is_deleted = rows[DELETED].to_pylist()
    changes = {key: None if gone else value for key, value, gone in zip(newest, values, is_deleted, strict=True)}
    return Changes(changes, read.bad.num_rows)
