"""The numba kernels that find the rows in messages of pgoutput, so that no Python object is made for a change.

`scan` follows transactions as `changes.py` does and finds where the rows of each change begin. `find_cells` finds the
values of rows, and `copy_column` copies those of one column. They know inserts, updates and deletions with all their
values. For anything else, and for messages that are cut off, they say so, and the caller decodes these messages one by
one (`pgoutput.py`).

Importing this module takes a second, so only a task that reads the log does so.
"""

from typing import Any, Final

import numpy as np
from numba.extending import register_jitable

from ottla.connect.connectors.postgresql.pgoutput import EPOCH_US
from ottla.pipeline.kernels import compiled, read_big_endian
from ottla.pipeline.memcpy import copy_bytes

# Entries of the array of state: the transaction that messages belong to, and how far the log has been read.
COMMIT_LSN, TIME_US, XID, LSN, SEQ, SKIP = range(6)

# Columns of the table of changes. The kind is 0 if a message is no change, or one that was written before. The place of
# a row is 0 if there is none: a message begins with its kind, so no row can begin there.
KIND, OID, CHANGE_XID, CHANGE_TIME_US, LAST_LSN, OLD_ROW, NEW_ROW = range(7)
CHANGE_WIDTH: Final = 7

NULL: Final = -1
"""The length of a null."""

_BEGIN, _COMMIT, _INSERT, _UPDATE, _DELETE = (ord(each) for each in "BCIUD")
_TYPE, _ORIGIN, _MESSAGE = (ord(each) for each in "YOM")
_TEXT, _NULL = ord("t"), ord("n")
_NEW, _OLD, _KEY = (ord(each) for each in "NOK")

_BYTES: Final = "Array(uint8, 1, 'C', readonly=True)"
_PLACES: Final = "Array(int32, 1, 'C', readonly=True)"
_int64: Any = np.int64


@register_jitable
def _skip_row(data: Any, position: int, end: int) -> Any:
    """The place after a row; -1 if it is cut off, or has a value that is neither a text nor null."""
    if position + 2 > end:
        return _int64(-1)
    count = read_big_endian(data, position, 2)
    position += 2
    for _ in range(count):
        if position >= end:
            return _int64(-1)
        kind = data[position]
        position += 1
        if kind == _TEXT:
            if position + 4 > end:
                return _int64(-1)
            position += 4 + read_big_endian(data, position, 4)
        elif kind != _NULL:
            return _int64(-1)
    if position > end:
        return _int64(-1)
    return _int64(position)


@register_jitable
def _find_rows(data: Any, position: int, end: int, change: Any) -> Any:
    """Write the places of a change's rows. False if it is not one that the kernels know."""
    kind, at = data[position], position + 6
    change[OLD_ROW], change[NEW_ROW] = 0, 0
    if at > end:
        return False
    change[OID] = read_big_endian(data, position + 1, 4)
    mark = data[at - 1]
    if kind == _INSERT:
        change[NEW_ROW] = at
        return mark == _NEW and _skip_row(data, at, end) == end
    if kind == _DELETE:
        change[OLD_ROW] = at
        return mark in (_OLD, _KEY) and _skip_row(data, at, end) == end
    if mark == _OLD:
        change[OLD_ROW] = at
        at = _skip_row(data, at, end) + 1
        if at <= 0 or at > end:
            return False
        mark = data[at - 1]
    change[NEW_ROW] = at
    return mark == _NEW and _skip_row(data, at, end) == end


@compiled(f"UniTuple(int64, 2)({_BYTES}, {_PLACES}, int64, Array(int64, 1, 'C'), Array(int64, 2, 'C'))")
def scan(data: Any, places: Any, first: int, state: Any, changes: Any) -> tuple[int, int]:
    """Fill `changes`, which has a row for each message, from the first message up to one that has to be decoded.

    Returns where that is, and whether all changes before it are such as the kernels know. If not, neither `state` nor
    `changes` mean anything.
    """
    is_known = 1
    for at in range(first, len(places) - 1):
        position, end = _int64(places[at]), _int64(places[at + 1])
        changes[at, KIND] = 0
        kind = data[position] if position < end else 0
        if kind == _BEGIN and end - position >= 21:
            state[COMMIT_LSN] = read_big_endian(data, position + 1, 8)
            state[TIME_US] = read_big_endian(data, position + 9, 8) + EPOCH_US
            state[XID] = read_big_endian(data, position + 17, 4)
            state[SEQ] = 0
        elif kind == _COMMIT and end - position >= 18:
            if state[COMMIT_LSN] >= state[LSN]:
                state[LSN] = read_big_endian(data, position + 10, 8)
                state[SEQ] = 0
                state[SKIP] = 0
        elif kind in (_INSERT, _UPDATE, _DELETE):
            if state[COMMIT_LSN] < state[LSN]:
                continue
            state[SEQ] += 1
            if state[SEQ] <= state[SKIP]:
                continue
            if not _find_rows(data, position, end, changes[at]):
                is_known = 0
            changes[at, KIND] = kind
            changes[at, CHANGE_XID] = state[XID]
            changes[at, CHANGE_TIME_US] = state[TIME_US]
            changes[at, LAST_LSN] = state[LSN]
        elif kind not in (_TYPE, _ORIGIN, _MESSAGE):
            return at, is_known
    return len(places) - 1, is_known


@compiled(f"int64({_BYTES}, Array(int64, 1, 'C'), Array(int64, 2, 'C'), Array(int64, 2, 'C'))")
def find_cells(data: Any, rows: Any, starts: Any, lengths: Any) -> int:
    """Find the values of rows that `scan` has found, each with the columns of `starts`. A row at 0 has only nulls.

    Returns 1, or 0 if a row has another number of columns.
    """
    width = starts.shape[1]
    for number in range(len(rows)):
        position = rows[number]
        if position and read_big_endian(data, position, 2) != width:
            return 0
        position += 2
        for column in range(width):
            lengths[number, column] = NULL
            if rows[number]:
                kind = data[position]
                position += 1
                if kind == _TEXT:
                    size = read_big_endian(data, position, 4)
                    starts[number, column] = position + 4
                    lengths[number, column] = size
                    position += 4 + size
    return 1


@compiled(f"void({_BYTES}, Array(int64, 1, 'A'), Array(int32, 1, 'C'), Array(uint8, 1, 'C'))")
def copy_column(data: Any, starts: Any, ends: Any, copied: Any) -> None:
    """Copy values to `copied`, where each has its place: the next of `ends` says where it ends."""
    for number in range(len(starts)):
        place = _int64(ends[number])
        size = _int64(ends[number + 1]) - place
        if size:
            copy_bytes(copied, place, data, starts[number], size)
