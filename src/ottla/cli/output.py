"""Prints results as a table with aligned columns, or as one JSON document."""

import argparse
import json
from collections.abc import Sequence

TABLE = "table"
JSON = "json"


def add_format_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=(TABLE, JSON), default=TABLE, help="output format (default: table)")


def counted(number: int, noun: str) -> str:
    """`1 record`, `2 records`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def hyphenate(word: str) -> str:
    """Kafka's name of a state as the command line shows it: `PrepareCommit` is `prepare-commit`."""
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in word).removeprefix("-")


def show_json(document: object) -> None:
    print(json.dumps(document, indent=2, ensure_ascii=False))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """One line per row; numbers are aligned to the right."""
    aligned = []
    for index, name in enumerate(columns):
        values = [row[index] for row in rows]
        texts = [name.upper(), *map(_cell, values)]
        width = max(map(len, texts))
        align = str.rjust if all(isinstance(value, int | float | None) for value in values) else str.ljust
        aligned.append([align(text, width) for text in texts])
    print("\n".join("  ".join(line).rstrip() for line in zip(*aligned, strict=True)))


def show_rows(form: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Rows in the format that `--format` names: a table, or a JSON list of objects."""
    if form == JSON:
        show_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        show_table(columns, rows)


def _cell(value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "-"
    return ",".join(map(_cell, value)) if isinstance(value, list | tuple) else str(value)
