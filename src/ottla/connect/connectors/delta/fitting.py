"""Rows in the types that a table has."""

from typing import Final

import pyarrow as pa

from ottla.connect.data.columns import RecordColumns
from ottla.connect.errors import ConnectError

_MICROSECONDS: Final = pa.timestamp("us", "UTC")
_DIGITS_MAX: Final = 38


def to_table(columns: RecordColumns) -> pa.Table:
    """The fields of the values as columns of types that Delta Lake has: times of day are milliseconds.

    ConnectError if the values have no fields.
    """
    if not pa.types.is_struct(columns.value.type) or not columns.value.type.num_fields:
        raise ConnectError("a row of a table needs a value with fields: a struct, or JSON objects with the same fields")
    arrays = columns.value.flatten()
    found = {
        field.name: array.cast(_find_type(field.type)) for field, array in zip(columns.value.type, arrays, strict=True)
    }
    return pa.table(found)


def _find_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return _MICROSECONDS
    if pa.types.is_time(kind):
        return pa.int32()
    if pa.types.is_decimal256(kind):
        return pa.decimal128(_DIGITS_MAX, kind.scale)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _find_type(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(_find_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_find_type(kind.key_type), _find_type(kind.item_type))
    return kind


def fit(rows: pa.Table, wanted: pa.Schema) -> tuple[pa.Table, dict[int, str]]:
    """The rows in the table's types, and why each row that does not fit does not, by its number.

    Columns that the table lacks stay as they are.
    """
    bad: dict[int, str] = {}
    for at, field in enumerate(rows.schema):
        place = wanted.get_field_index(field.name)
        if place < 0 or wanted.field(place).type == field.type or pa.types.is_nested(field.type):
            continue
        kind = wanted.field(place).type
        column = rows.column(at)
        try:
            fitted = column.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            fitted = _fit_one_by_one(field.name, column, kind, bad, str(error))
        rows = rows.set_column(at, field.name, fitted)
    return rows, bad


def _fit_one_by_one(name: str, column: pa.ChunkedArray, kind: pa.DataType, bad: dict[int, str], why: str) -> pa.Array:
    found = []
    for number in range(len(column)):
        value = pa.scalar(None, kind)
        try:
            value = column[number].cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            bad[number] = f"the column {name} has the type {kind}: {why.splitlines()[0]}"
        found.append(value.as_py())
    return pa.array(found, kind)
