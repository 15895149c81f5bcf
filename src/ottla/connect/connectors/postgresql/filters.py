"""Which tables and columns are captured: Debezium's include and exclude lists of regular expressions."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla.connect.transforms.java_regex import compile_java

Filter = Callable[[str], bool]


class CaptureFilter:
    """Expressions match whole names, whatever the case of their letters."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._schema = _make_filter(config, "schema")
        self._table = _make_filter(config, "table")
        self._column = _make_filter(config, "column")

    def has_table(self, schema: str, table: str) -> bool:
        return self._schema(schema) and self._table(f"{schema}.{table}")

    def has_column(self, schema: str, table: str, column: str) -> bool:
        return self._column(f"{schema}.{table}.{column}")


def _make_filter(config: Mapping[str, Any], what: str) -> Filter:
    included = _compile(config[f"{what}.include.list"])
    excluded = _compile(config[f"{what}.exclude.list"])

    def is_captured(name: str) -> bool:
        if included:
            return any(each.fullmatch(name) for each in included)
        return not any(each.fullmatch(name) for each in excluded)

    return is_captured


def _compile(patterns: Sequence[str] | None) -> list[re.Pattern[str]]:
    compiled = [compile_java(each) for each in patterns or ()]
    return [re.compile(each.pattern, each.flags | re.IGNORECASE) for each in compiled]
