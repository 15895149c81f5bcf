"""Rows of a query as a person or a program reads them."""

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any

from ottla.cli.output import show_table


def show_rows_as_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    show_table(columns, [cells(row) for row in rows])


def show_rows_as_json(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print each row as a JSON object on its own line."""
    for row in rows:
        print(json.dumps(dict(zip(columns, map(plain, row), strict=True)), ensure_ascii=False))


def cells(row: Sequence[Any]) -> list[Any]:
    """What is neither a number nor text is JSON; a cell is one line."""
    return [_cell(plain(value)) for value in row]


def _cell(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float | None):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, str):
        return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r") if "\n" in value else value
    return value


def plain(value: Any) -> Any:
    """Converts a value of Spark for JSON. Bytes that are not text become base64, as in `consume --format json`."""
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": b64encode(value).decode()}
    if hasattr(value, "asDict"):
        return {name: plain(each) for name, each in value.asDict().items()}
    if isinstance(value, dict):
        return {str(plain(name)): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="microseconds" if value.microsecond % 1000 else "milliseconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | None) else str(value)
