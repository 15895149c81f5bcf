"""Values as JSON, a column at once: Arrow joins the texts of the fields, so no Python object is made for a row."""

from dataclasses import replace
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ottla.connect.converters.json_values import INTEGER_LIMITS, PYTHON_TYPES, JsonValues
from ottla.connect.data.arrow_types import find_schema
from ottla.connect.data.conversion import array_to_values, values_to_array
from ottla.connect.data.schema import DECIMAL, LOGICAL_NAMES, Field, Schema, Type
from ottla.connect.errors import RecordError

_CONTROLS: Final = r"[\x00-\x1f]"
_INTEGER_TEXT: Final = r"^-?[0-9]+$"

_COMPARED: Final = (*INTEGER_LIMITS, Type.STRING, Type.BOOLEAN)
"""Types whose equal values have the same text, as 0.0 and -0.0 have not."""

_Text = Any
"""An Arrow array with the JSON text of each row, or a str if it is the same in all rows."""


def write_json(values: JsonValues, schema: Schema, column: pa.Array) -> pa.Array:
    """The JSON text of each row. A null is the text `null`, or the default of the schema."""
    return _spread(_write(values, schema, column), len(column))


def _write(values: JsonValues, schema: Schema, column: pa.Array) -> _Text:
    if not column.null_count:
        return _write_present(values, schema, column)
    null = orjson.dumps(values.encode(schema, None)).decode()
    if column.null_count == len(column):
        return null
    present = column.drop_null()
    text = _spread(_write_present(values, schema, present), len(present))
    places = np.cumsum(column.is_valid().to_numpy(zero_copy_only=False)) - 1
    at = pa.array(places, pa.int64(), mask=column.is_null().to_numpy(zero_copy_only=False))
    return text.take(at).fill_null(null)


def _spread(text: _Text, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count) if isinstance(text, str) else text


def _write_present(values: JsonValues, schema: Schema, column: pa.Array) -> _Text:
    if schema.type in _COMPARED and _is_constant(column):
        text = _write_present(values, schema, column.slice(0, 1))
        return text if isinstance(text, str) else str(text[0])
    if schema.name in LOGICAL_NAMES and schema.name != DECIMAL:
        integers = pa.int64() if schema.type is Type.INT64 else pa.int32()
        return column.cast(integers).cast(pa.string())
    if schema.type is Type.STRUCT and schema.fields:
        return _write_structs(values, schema, column)
    if schema.type is Type.ARRAY and schema.value_schema:
        return _write_lists(values, schema.value_schema, column)
    if schema.type is Type.STRING:
        return _write_strings(column)
    if schema.type in (Type.FLOAT32, Type.FLOAT64):
        return _write_floats(column)
    if schema.type is Type.BOOLEAN or schema.type in INTEGER_LIMITS:
        return column.cast(pa.string())
    encode = values.find_encoder(schema)
    return pa.array([orjson.dumps(encode(each)).decode() for each in array_to_values(column)], pa.string())


def _is_constant(column: pa.Array) -> bool:
    """Whether several values are all the same. In most columns already the first and the last one differ."""
    if len(column) < 2 or column[0] != column[-1]:
        return False
    return bool(pc.all(pc.equal(column, column[0])).as_py())


def _write_structs(values: JsonValues, schema: Schema, column: pa.Array) -> _Text:
    """What is the same in all rows becomes part of the text between the others."""
    pieces: list[Any] = []
    constant = ""
    for number, (each, child) in enumerate(zip(schema.fields, column.flatten(), strict=True)):
        text = _write(values, each.schema, child)
        constant += f"{',' if number else '{'}{orjson.dumps(each.name).decode()}:"
        if isinstance(text, str):
            constant += text
        else:
            pieces += [constant, text]
            constant = ""
    constant += "}"
    return pc.binary_join_element_wise(*pieces, constant, "") if pieces else constant


def _write_lists(values: JsonValues, element: Schema, column: pa.Array) -> pa.Array:
    text = write_json(values, element, column.flatten())
    ends = np.cumsum(pc.list_value_length(column).to_numpy(zero_copy_only=False))
    lists = pa.ListArray.from_arrays(pa.array(np.concatenate(([0], ends)), pa.int32()), text)
    return pc.binary_join_element_wise("[", pc.binary_join(lists, ","), "]", "")


def _write_strings(column: pa.Array) -> pa.Array:
    found = _get_bytes(column)
    if (found < ord(" ")).any():
        special = pc.match_substring_regex(column, _CONTROLS)
        escaped = pa.array([orjson.dumps(each).decode() for each in column.filter(special).to_pylist()], pa.string())
        rest = pc.if_else(special, "", column)
        return pc.replace_with_mask(_write_strings(rest), special, escaped)
    for character in ("\\", '"'):
        if (found == ord(character)).any():
            column = pc.replace_substring(column, character, f"\\{character}")
    return pc.binary_join_element_wise('"', column, '"', "")


def _get_bytes(column: pa.Array) -> Any:
    """The bytes of all texts, one after the other."""
    _, places, data = column.buffers()
    ends = np.frombuffer(places, np.int32)[column.offset : column.offset + len(column) + 1]
    return np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]]


def _write_floats(column: pa.Array) -> pa.Array:
    """A float without a fraction is written with one, so that it is read as a float again."""
    text = column.cast(pa.string())
    if pc.any(pc.equal(pc.trunc(column), column)).as_py():
        whole = pc.match_substring_regex(text, _INTEGER_TEXT)
        text = pc.if_else(whole, pc.binary_join_element_wise(text, ".0", ""), text)
    finite = pc.is_finite(column)
    if pc.all(finite).as_py():
        return text
    names = pc.if_else(pc.is_nan(column), '"NaN"', pc.if_else(pc.greater(column, 0.0), '"Infinity"', '"-Infinity"'))
    return pc.if_else(finite, text, names)


def infer_columns(rows: list[Any]) -> tuple[Schema, pa.Array] | None:
    """A schema for JSON that has none, and its column. None if the rows differ in their fields or in a field's type.

    Everything is optional. Rows are compared strictly, so that a record is the same afterwards: an absent field is not
    a null, and 1 is not 1.0.
    """
    present = [each for each in rows if each is not None]
    if not present:
        return None
    shape = _find_shape(present)
    if shape is None:
        return None
    try:
        return replace(shape, is_inferred=True), values_to_array(shape, rows)
    except RecordError:
        return None


def _find_shape(values: list[Any]) -> Schema | None:
    """The one schema of values that are not null."""
    kinds = set(map(type, values))
    if len(kinds) != 1:
        return None
    kind = kinds.pop()
    if kind is dict:
        return _find_struct_shape(values)
    if kind is list:
        elements = [each for value in values for each in value if each is not None]
        element = _find_shape(elements) if elements else find_schema(pa.null())
        return None if element is None else Schema(Type.ARRAY, optional=True, value_schema=element)
    return _SHAPES.get(kind)


def _find_struct_shape(values: list[Any]) -> Schema | None:
    if len(set(map(tuple, values))) != 1 or not values[0]:
        return None
    fields = []
    for name in values[0]:
        present = [each for each in [value[name] for value in values] if each is not None]
        shape = _find_shape(present) if present else find_schema(pa.null())
        if shape is None:
            return None
        fields.append(Field(name, shape))
    return Schema(Type.STRUCT, optional=True, fields=tuple(fields))


_SHAPES: Final = {
    int: Schema(Type.INT64, optional=True),
    float: Schema(Type.FLOAT64, optional=True),
    str: Schema(Type.STRING, optional=True),
    bool: Schema(Type.BOOLEAN, optional=True),
}


def is_plain(schema: Schema) -> bool:
    """Whether parsed JSON of the schema is a struct whose values Arrow checks as strictly as the decoder does."""
    return schema.type is Type.STRUCT and all(
        each.schema.default is None
        and each.schema.name not in LOGICAL_NAMES
        and each.schema.type in (*INTEGER_LIMITS, Type.FLOAT64, Type.STRING, Type.BOOLEAN)
        for each in schema.fields
    )


def read_plain(schema: Schema, rows: list[Any]) -> pa.Array | None:
    """The column of parsed rows whose schema `is_plain`. None if a row is not of the schema."""
    for each in schema.fields:
        allowed = {PYTHON_TYPES[each.schema.type]} | ({type(None)} if each.schema.optional else set())
        if each.schema.type is Type.FLOAT64:
            allowed.add(int)
        if not {type(row.get(each.name)) for row in rows if row is not None} <= allowed:
            return None
    try:
        return values_to_array(schema, rows)
    except RecordError:
        return None
