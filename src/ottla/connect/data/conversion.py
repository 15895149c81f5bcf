"""Between records one by one and columns of many: `Record` and `RecordColumns`, Python values and Arrow arrays."""

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa

from ottla.connect.data.arrow_types import find_arrow_type
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.record import Record
from ottla.connect.data.schema import Schema, Type
from ottla.connect.errors import RecordError


def values_to_array(schema: Schema, values: Sequence[Any]) -> pa.Array:
    """The values as an Arrow column. RecordError if one of them is not of the schema."""
    try:
        return _build_array(schema, values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise RecordError(f"a value is not {schema.name or schema.type.value}: {_first_line(error)}") from None


def array_to_values(array: pa.Array) -> list[Any]:
    """The rows of a column as Python values: dicts for structs and maps."""
    if not pa.types.is_struct(array.type) or not array.type.num_fields:
        return list(array.to_pylist(maps_as_pydicts="strict"))
    names = [each.name for each in array.type]
    fields = [array_to_values(each) for each in array.flatten()]
    rows: list[Any] = [dict(zip(names, row, strict=True)) for row in zip(*fields, strict=True)]
    if array.null_count:
        for at, is_valid in enumerate(array.is_valid().to_pylist()):
            if not is_valid:
                rows[at] = None
    return rows


def records_to_columns(records: Sequence[Record]) -> RecordColumns | None:
    """The records as columns. None if they are of several topics or schemas, or have none; then they stay as they are.

    Records without a value may be among them: tombstones have no schema.
    """
    if not records:
        return None
    value_schema = next((each.value_schema for each in records if each.value is not None), None)
    key_schema = next((each.key_schema for each in records if each.key is not None), None)
    if value_schema is None:
        return None
    topic = records[0].topic
    for each in records:
        if (
            each.topic != topic
            or (each.value is not None and each.value_schema != value_schema)
            or (each.key is not None and (each.key_schema is None or each.key_schema != key_schema))
        ):
            return None
    return RecordColumns(
        topic,
        value_schema,
        values_to_array(value_schema, [each.value for each in records]),
        key_schema,
        None if key_schema is None else values_to_array(key_schema, [each.key for each in records]),
        _to_integers([each.timestamp for each in records], pa.int64()),
        _to_integers([each.partition for each in records], pa.int32()),
        _to_integers([each.offset for each in records], pa.int64()),
        [each.headers for each in records] if any(each.headers for each in records) else None,
    )


def columns_to_records(columns: RecordColumns) -> list[Record]:
    """The rows as records. A row without a value or key has no schema for it: that is a tombstone. An inferred schema
    is none."""
    rows = zip(
        array_to_values(columns.value),
        _rows_of(columns.key),
        _rows_of(columns.timestamp),
        _rows_of(columns.partition),
        _rows_of(columns.offset),
        repeat(None) if columns.headers is None else columns.headers,
        strict=False,
    )
    topic = columns.topic
    value_schema = None if columns.value_schema.is_inferred else columns.value_schema
    key_schema = None if columns.key_schema is None or columns.key_schema.is_inferred else columns.key_schema
    return [
        Record(
            topic,
            value,
            None if value is None else value_schema,
            key,
            None if key is None else key_schema,
            timestamp,
            [] if headers is None else list(headers),
            partition,
            offset,
        )
        for value, key, timestamp, partition, offset, headers in rows
    ]


def _rows_of(column: pa.Array | None) -> Any:
    return repeat(None) if column is None else array_to_values(column)


def _to_integers(values: list[int | None], kind: pa.DataType) -> pa.Array | None:
    return None if all(each is None for each in values) else pa.array(values, kind)


def _build_array(schema: Schema, values: Sequence[Any]) -> pa.Array:
    """A struct is built field by field, which is faster than from dicts as they are."""
    if schema.type is not Type.STRUCT or not schema.fields:
        return pa.array(_with_pairs(schema, values), find_arrow_type(schema))
    absent = [each is None for each in values]
    rows = [{} if each is None else each for each in values] if any(absent) else values
    arrays = [_build_array(field.schema, [row.get(field.name) for row in rows]) for field in schema.fields]
    mask = pa.array(absent) if any(absent) else None
    return pa.StructArray.from_arrays(arrays, fields=list(find_arrow_type(schema)), mask=mask)


def _with_pairs(schema: Schema, values: Sequence[Any]) -> Sequence[Any]:
    """Values with a list of pairs for each map, as Arrow wants them."""
    pairs = _find_pairs(schema)
    return values if pairs is None else [pairs(each) for each in values]


def _find_pairs(schema: Schema | None) -> Any:
    """The function that makes pairs out of the maps of a value. None if the schema has no map."""
    if schema is None:
        return None
    element, key = _find_pairs(schema.value_schema), _find_pairs(schema.key_schema)
    if schema.type is Type.MAP:
        same = lambda value: value  # noqa: E731 - the smallest name for what most keys and values need
        of_key, of_value = key or same, element or same
        return lambda value: None if value is None else [(of_key(k), of_value(v)) for k, v in value.items()]
    if schema.type is Type.ARRAY and element:
        return lambda value: None if value is None else [element(each) for each in value]
    if schema.type is Type.STRUCT:
        inner = {each.name: _find_pairs(each.schema) for each in schema.fields}
        found = {name: make for name, make in inner.items() if make}
        if found:
            return lambda value: (
                None if value is None else {**value, **{name: make(value.get(name)) for name, make in found.items()}}
            )
    return None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
