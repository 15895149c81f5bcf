"""numeric.mapping: what becomes of NUMERIC columns, by their precision and scale."""

import re
from typing import Final

from ottla.connect.data.arrow_types import PRECISION
from ottla.connect.data.logical import make_decimal_schema
from ottla.connect.data.schema import Schema, Type

MAPPINGS: Final = ("none", "precision_only", "best_fit", "best_fit_eager_double")

DIGITS_MAX: Final = 76
"""Of Arrow's widest decimal."""
SCALE_UNKNOWN: Final = 18
"""Digits after the point of a NUMERIC that was declared without a scale: it may have any, Kafka Connect's has one."""
_INTEGER_DIGITS_MAX: Final = 18
_DECLARED: Final = re.compile(r"\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\)")


def find_number(mapping: str, type_name: str) -> Schema:
    """The schema of a column of a type such as `numeric(10,2)`."""
    declared = _DECLARED.search(type_name)
    precision = int(declared[1]) if declared else DIGITS_MAX
    scale = int(declared[2] or 0) if declared else SCALE_UNKNOWN
    fits = precision <= _INTEGER_DIGITS_MAX
    if mapping != "none" and fits and (scale == 0 or (scale < 0 and mapping != "precision_only")):
        return Schema(_find_integer(precision))
    if declared and scale > 0 and (mapping == "best_fit_eager_double" or (mapping == "best_fit" and fits)):
        return Schema(Type.FLOAT64)
    decimal = make_decimal_schema(max(scale, 0))
    digits = min(max(precision, precision - scale, scale), DIGITS_MAX)
    return Schema(decimal.type, name=decimal.name, version=1, parameters={**decimal.parameters, PRECISION: str(digits)})


def _find_integer(precision: int) -> Type:
    if precision > 9:
        return Type.INT64
    if precision > 4:
        return Type.INT32
    return Type.INT16 if precision > 2 else Type.INT8
