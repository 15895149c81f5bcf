"""Infers a type for JSON without a schema: one that all values of a sample fit.

Numbers are bigint, or double if one of them has a fraction. A field may be missing or null in some values; if it is
null in all of them, its type is string. Fields are in the order in which they were first seen.
"""

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

_DEPTH_MAX = 50
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


class Mixed(Exception):
    """Two values of a field have types that no common type covers."""


def infer_type(values: Iterable[bytes | None]) -> pa.DataType:
    """Infers the type of a sample. ValueError with one line if no type fits all values, or if none of them is JSON."""
    found: pa.DataType = pa.null()
    seen = readable = 0
    for value in values:
        if value is None:
            continue
        seen += 1
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            continue  # bad records are handled when the topic is read
        readable += 1
        try:
            found = _merge(found, _infer_type(parsed, 0), "")
        except Mixed as error:
            raise ValueError(f"{error}; a schema must be given") from None
    if not readable:
        what = f"none of {seen} values is JSON" if seen else "there are no values to infer it from"
        raise ValueError(f"{what}; a schema must be given")
    return _replace_null_types(found)


def _infer_type(value: Any, depth: int) -> pa.DataType:
    if depth > _DEPTH_MAX:
        raise Mixed(f"values have more than {_DEPTH_MAX} levels")
    if value is None:
        return pa.null()
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64() if _INT64_MIN <= value <= _INT64_MAX else pa.float64()
    if isinstance(value, float):
        return pa.float64()
    if isinstance(value, str):
        return pa.string()
    if isinstance(value, dict):
        return pa.struct([pa.field(name, _infer_type(each, depth + 1)) for name, each in value.items()])
    found: pa.DataType = pa.null()
    for each in value:
        found = _merge(found, _infer_type(each, depth + 1), "")
    return pa.list_(found)


def _merge(one: pa.DataType, other: pa.DataType, where: str) -> pa.DataType:
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            inside = f"{where}.{field.name}".lstrip(".")
            fields[field.name] = _merge(fields.get(field.name, pa.null()), field.type, inside)
        return pa.struct(list(fields.items()))
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_merge(one.value_type, other.value_type, where))
    raise Mixed(f"{where or 'a value'} is {_describe(one)} in one record and {_describe(other)} in another")


def _replace_null_types(kind: pa.DataType) -> pa.DataType:
    """Makes fields string that were null in all values: their type is unknown, and text can show any value."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_replace_null_types(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_replace_null_types(kind.value_type))
    return kind


def _describe(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return "an object"
    if pa.types.is_list(kind):
        return "an array"
    return {pa.bool_(): "a boolean", pa.string(): "text"}.get(kind, "a number")
