"""Functions of the user on the rows of a table: map and filter.

A change stays a change: a row that the function does not let pass deletes its key, for the key may have had a row that
passed. Deletions are passed on without asking the function. Old values are dropped, because the function has seen new
values only.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ottla.streams.kernels.functions import FunctionKernel, sort_rows
from ottla.streams.kernels.kernel import KernelContext, Row, StoreSpec
from ottla.streams.rows import DELETED, HIDDEN, table_schema


class TableFunctionKernel:
    """Input: changes of a table. Output: changes with `columns`, without `_old`.

    kind: map (the function returns the columns of the value, or None for no row) or filter (whether to keep the row).
    """

    stores: Sequence[StoreSpec] = ()

    def __init__(
        self,
        label: str,
        kind: str,
        function: Callable[[Row], Any],
        columns_before: pa.Schema,
        columns: pa.Schema,
        key: tuple[str, ...],
    ) -> None:
        if kind not in ("map", "filter"):
            raise ValueError(f"{label}: a table has no {kind}")
        self._schema = table_schema(columns, key)
        self._kept = (*key, *HIDDEN.names, DELETED)
        change = _follow_map(function, key) if kind == "map" else _follow_filter(function, key)
        self._kernel = FunctionKernel(
            label, "map", change, columns_before, pa.schema([*columns, pa.field(DELETED, pa.bool_())])
        )

    def process(self, inputs: Sequence[pa.Table], context: KernelContext) -> Sequence[pa.Table]:
        is_deleted = inputs[0].column(DELETED)
        (changed,) = self._kernel.process([inputs[0].filter(pc.invert(is_deleted))], context)
        deleted = inputs[0].filter(is_deleted).select(self._kept)
        for field in self._schema:
            if field.name not in self._kept:
                deleted = deleted.append_column(field, pa.nulls(deleted.num_rows, field.type))
        parts = [rows.select(self._schema.names).cast(self._schema) for rows in (deleted, changed)]
        return [sort_rows(pa.concat_tables(parts))]


def _follow_map(function: Callable[[Row], Any], key: tuple[str, ...]) -> Callable[[Row], Row]:
    def change(row: Row) -> Row:
        kept = {name: row[name] for name in key}
        found = function(row)
        return {**kept, DELETED: True} if found is None else {**found, **kept, DELETED: False}

    return change


def _follow_filter(function: Callable[[Row], Any], key: tuple[str, ...]) -> Callable[[Row], Row]:
    def change(row: Row) -> Row:
        before = dict(row)
        return {**before, DELETED: False} if function(row) else {name: before[name] for name in key} | {DELETED: True}

    return change
