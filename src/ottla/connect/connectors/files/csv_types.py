"""Types of the columns of CSV: those that a user names, or those that the first lines of a file look like.

What was found out about a file is part of its offset, so that all its rows have one schema.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

NAMES: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time32("ms"),
    "timestamp": pa.timestamp("ms"),
}
"""By Kafka Connect's names."""


def read_types(given: Sequence[str]) -> dict[str, pa.DataType]:
    """`column:type` pairs. ValueError if one is not."""
    found = {}
    for each in given:
        name, colon, kind = each.rpartition(":")
        if not colon or not name.strip() or kind.strip().lower() not in NAMES:
            raise ValueError(f"{each} is not column:type; types are {', '.join(NAMES)}")
        found[name.strip()] = NAMES[kind.strip().lower()]
    return found


def are_types(name: str, value: Any) -> None:
    read_types(value)


def find_types(table: pa.Table) -> dict[str, str]:
    """The types, by our names, of a table whose types were found out from its values."""
    return {field.name: _find_name(field.type) for field in table.schema}


def _find_name(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_time(kind):
        return "time"
    return next((name for name, each in NAMES.items() if each == kind), "string")
