"""Messages of pgoutput as columns: the fast way through a log that has only changes with all their values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.connect.connectors.postgresql import kernels
from ottla.connect.connectors.postgresql.envelopes import ChangeColumns

_OPS: Final = {ord("I"): "c", ord("U"): "u", ord("D"): "d"}


@dataclass(frozen=True)
class ScannedChanges:
    """Changes of any tables that follow one another in the log."""

    state: Sequence[int]
    """After them, by the names of `kernels`."""
    by_table: Mapping[int, ChangeColumns]
    """By the tables' oids."""


class MessageColumns:
    """A batch of messages with their LSNs."""

    def __init__(self, lsns: pa.Array, messages: pa.Array) -> None:
        self._lsns = lsns.to_numpy()
        _, places, data = messages.buffers()
        self._places = np.frombuffer(places, np.int32)[messages.offset : messages.offset + len(messages) + 1]
        self._data = np.frombuffer(data, np.uint8)

    def scan(
        self, first: int, state: Sequence[int], widths: Mapping[int, int], skipped: frozenset[str]
    ) -> tuple[int, ScannedChanges | None]:
        """The changes from a message on, up to one that is no change; and the number of that message.

        `widths` has the number of columns of each table that is captured. None: they have to be decoded one by one.
        """
        new_state = np.array(state, np.int64)
        table = np.empty((len(self._places) - 1, kernels.CHANGE_WIDTH), np.int64)
        end, is_known = kernels.scan(self._data, self._places, first, new_state, table)
        if not is_known or "u" in skipped:  # an update of a key is a deletion and a creation
            return end, None
        kinds = table[first:end, kernels.KIND]
        wanted = [kind for kind, op in _OPS.items() if op not in skipped]
        numbers = first + np.flatnonzero(np.isin(kinds, wanted))
        oids = table[numbers, kernels.OID]
        by_table = {}
        for oid, width in widths.items():
            mine = numbers[oids == oid]
            if len(mine):
                columns = self._build(table[mine], self._lsns[mine], width)
                if columns is None:
                    return end, None
                by_table[oid] = columns
        return end, ScannedChanges([int(each) for each in new_state], by_table)

    def _build(self, table: Any, lsns: Any, width: int) -> ChangeColumns | None:
        """None if rows do not have the columns of their table."""
        afters = self._read_rows(table[:, kernels.NEW_ROW], width)
        befores = self._read_rows(table[:, kernels.OLD_ROW], width)
        if afters is None or befores is None:
            return None
        kinds = table[:, kernels.KIND]
        ops = pa.DictionaryArray.from_arrays(
            pa.array(np.searchsorted(sorted(_OPS), kinds).astype(np.int8)), [_OPS[kind] for kind in sorted(_OPS)]
        )
        return ChangeColumns(
            ops.cast(pa.string()),
            befores,
            pa.array(table[:, kernels.OLD_ROW] > 0),
            afters,
            pa.array(table[:, kernels.NEW_ROW] > 0),
            *(
                pa.array(np.ascontiguousarray(each))
                for each in (
                    table[:, kernels.CHANGE_XID],
                    lsns,
                    table[:, kernels.LAST_LSN],
                    table[:, kernels.CHANGE_TIME_US],
                )
            ),
        )

    def _read_rows(self, rows: Any, width: int) -> list[pa.Array] | None:
        """The texts of each column."""
        count = len(rows)
        if not rows.any():
            return [pa.nulls(count, pa.string())] * width
        starts, lengths = np.empty((count, width), np.int64), np.empty((count, width), np.int64)
        if not kernels.find_cells(self._data, np.ascontiguousarray(rows), starts, lengths):
            return None
        return [self._copy_column(starts[:, column], lengths[:, column]) for column in range(width)]

    def _copy_column(self, starts: Any, lengths: Any) -> pa.Array:
        is_null = lengths == kernels.NULL
        ends = np.zeros(len(starts) + 1, np.int32)
        np.cumsum(np.where(is_null, 0, lengths), out=ends[1:])
        copied = np.empty(ends[-1], np.uint8)
        kernels.copy_column(self._data, starts, ends, copied)
        valid = pa.py_buffer(np.packbits(~is_null, bitorder="little")) if is_null.any() else None
        buffers = [valid, pa.py_buffer(ends), pa.py_buffer(copied)]
        return pa.Array.from_buffers(pa.binary(), len(starts), buffers).cast(pa.string())


def has_other_keys(changes: ChangeColumns, places: Sequence[int]) -> bool:
    """Whether an update has changed a key: such a row is deleted and created."""
    moved = pc.and_(changes.has_before, changes.has_after)
    if not pc.any(moved).as_py():
        return False
    return any(
        pc.any(pc.and_(moved, pc.invert(_are_equal(changes.befores[at], changes.afters[at])))).as_py() for at in places
    )


def _are_equal(one: pa.Array, other: pa.Array) -> pa.Array:
    both_null = pc.and_(one.is_null(), other.is_null())
    return pc.or_(pc.fill_null(pc.equal(one, other), False), both_null)
