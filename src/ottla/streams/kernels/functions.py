"""Steps without state: functions of the user on single rows, and changes of the key, the kind and the number of inputs.

A row keeps its time, headers and place when a function changes it. All that a row causes has the row's own.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ottla.streams.kernels.kernel import KernelContext, Row, StoreSpec
from ottla.streams.kernels.python_rows import Failures, make_columns, to_dicts
from ottla.streams.rows import HIDDEN, ORDER, stream_schema


class FunctionKernel:
    """Calls a function of the user for each row.

    Input: rows of a stream. Output: rows with `columns`. kind: map (the function returns a row, or None to drop it),
    flat_map (an iterable of rows), filter (whether to keep the row) or peek (the row stays as it is). A row whose
    function fails, or returns what does not fit `columns`, is handled by `KernelContext.on_error`; nothing of it goes
    on.
    """

    stores: Sequence[StoreSpec] = ()

    def __init__(
        self,
        label: str,
        kind: str,
        function: Callable[[Row], Any],
        columns_before: pa.Schema,
        columns: pa.Schema,
    ) -> None:
        if kind not in ("map", "flat_map", "filter", "peek"):
            raise ValueError(f"{label}: unknown kind of function {kind!r}")
        self._label = label
        self._kind = kind
        self._function = function
        self._names_before = columns_before.names
        self._columns = columns

    def process(self, inputs: Sequence[pa.Table], context: KernelContext) -> Sequence[pa.Table]:
        (rows,) = inputs
        if not rows.num_rows:
            return [rows_without_content(self._columns)]
        failures = Failures(self._label, rows, context)
        apply = self._keep_rows if self._kind in ("filter", "peek") else self._replace_rows
        result = apply(rows, failures)
        failures.hand_over()
        return [result]

    def _keep_rows(self, rows: pa.Table, failures: Failures) -> pa.Table:
        kept = []
        for index, row in enumerate(to_dicts(rows, self._names_before)):
            try:
                if self._function(row) or self._kind == "peek":
                    kept.append(index)
            except Exception as error:
                failures.add(index, error)
        rows = rows.select(stream_schema(self._columns).names)
        return rows if len(kept) == rows.num_rows else rows.take(pa.array(kept, pa.int64()))

    def _replace_rows(self, rows: pa.Table, failures: Failures) -> pa.Table:
        made: list[Row] = []
        causes: list[int] = []
        for index, row in enumerate(to_dicts(rows, self._names_before)):
            try:
                found = self._function(row)
                new = list(found) if self._kind == "flat_map" else [] if found is None else [found]
            except Exception as error:
                failures.add(index, error)
                continue
            made += new
            causes += [index] * len(new)
        content, causes = make_columns(made, causes, self._columns, failures.add)
        hidden = rows.select(HIDDEN.names).take(pa.array(causes, pa.int64()))
        return pa.Table.from_arrays([*content.columns, *hidden.columns], schema=stream_schema(self._columns))


class SelectKernel:
    """Keeps `columns` and ours, in the order of `columns`: a new key (Rekey), or a table's changes as rows (ToStream).

    Input: rows of a stream or changes of a table. Output: rows of a stream. The row of a deleted key has null in its
    value columns, as every change of a deleted key has.
    """

    stores: Sequence[StoreSpec] = ()

    def __init__(self, columns: pa.Schema) -> None:
        self._names = stream_schema(columns).names

    def process(self, inputs: Sequence[pa.Table], context: KernelContext) -> Sequence[pa.Table]:
        return [inputs[0].select(self._names)]


class MergeKernel:
    """The rows of all inputs in the order in which they were read. Inputs: streams. Output: a stream."""

    stores: Sequence[StoreSpec] = ()

    def __init__(self, columns: pa.Schema) -> None:
        self._names = stream_schema(columns).names

    def process(self, inputs: Sequence[pa.Table], context: KernelContext) -> Sequence[pa.Table]:
        return [sort_rows(pa.concat_tables([rows.select(self._names) for rows in inputs]))]


def rows_without_content(columns: pa.Schema) -> pa.Table:
    """No rows of a stream with these columns."""
    return stream_schema(columns).empty_table()


def sort_rows(rows: pa.Table) -> pa.Table:
    """The rows by their place. Rows with equal places keep their order."""
    return rows.take(pc.sort_indices(rows, [(ORDER, "ascending")])) if rows.num_rows > 1 else rows
