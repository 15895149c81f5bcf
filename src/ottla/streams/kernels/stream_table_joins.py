"""Joins of a stream with a table: each row with the value that the table has for its key when the row comes.

"When" is the order in which the task reads rows and changes, as in Kafka Streams. Rows are never joined again when the
table changes later. As in Kafka Streams, a row without a value is dropped, and one without a key is dropped by an inner
join and has no match in a left join.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ottla.streams.kernels.grouping import Numbers
from ottla.streams.kernels.joining import JoinShape, Taken, rank_rows
from ottla.streams.kernels.kernel import KernelContext, StoreSpec
from ottla.streams.kernels.versions import (
    NONE,
    NULL_KEY_OR_VALUE,
    TableVersions,
    drop_null_values,
    number_array,
    table_codec,
)
from ottla.streams.rows import HIDDEN, stream_schema
from ottla.streams.state.keys import encode_keys


class StreamTableJoinKernel:
    """Inputs: rows of the stream, changes of the table (they need no `_old`). Output: rows with the stream's time.

    The kernel has no store of its own. It reads the table's store, which must be in the same task and have the
    canonical key. Of a row and a change that the same record has caused, the change comes first.
    """

    stores: Sequence[StoreSpec] = ()

    def __init__(self, label: str, shape: JoinShape, table_store: str) -> None:
        if shape.how not in ("inner", "left"):
            raise ValueError(f"{label}: unknown kind of join {shape.how!r}")
        self._label = label
        self._shape = shape
        self._store_name = table_store
        self._codec = table_codec(shape.right.columns, shape.right.key)

    def process(self, inputs: Sequence[pa.Table], context: KernelContext) -> Sequence[pa.Table]:
        rows, changes = inputs
        rows = drop_null_values(rows, self._shape.left.null_value_names, self._label, context)
        if not rows.num_rows:
            return [stream_schema(self._shape.columns).empty_table()]
        row_keys = encode_keys(rows, self._shape.left.key)
        change_keys = encode_keys(changes, self._shape.right.key)
        change_places, places = rank_rows([changes, rows])
        store = context.store(self._store_name)
        versions = TableVersions(self._codec, changes, change_places, change_keys, store, asked=row_keys)
        found = versions.find(row_keys, places)
        kept = np.flatnonzero(found != NONE)
        if self._shape.how == "inner" and len(kept) < len(found):
            without_key = row_keys.count(None)
            if without_key:
                context.dropped[self._label, NULL_KEY_OR_VALUE] += without_key
            rows, found = rows.take(number_array(kept)), found[kept]
        return [self._make_rows(rows, versions, found)]

    def _make_rows(self, rows: pa.Table, versions: TableVersions, found: Numbers) -> pa.Table:
        shape = self._shape
        keys = [rows.column(name) for name in shape.left.key]
        left, right = Taken(rows, np.arange(rows.num_rows)), Taken(versions.values, found)
        columns = shape.make_values(keys, left, right, shape.columns.names)
        hidden = [rows.column(name) for name in HIDDEN.names]
        return pa.Table.from_arrays([*columns, *hidden], schema=stream_schema(shape.columns))
