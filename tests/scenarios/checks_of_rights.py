"""The checks of rights in handlers: found in their code, so that a new one cannot be forgotten.

`test_defences.py` takes each of them out. What is there instead allows everything.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ottla.wire import frames

ACCESS = "tests/scenarios/test_access.py"
PARTS = "tests/scenarios/test_access_parts.py"
WALK = "tests/scenarios/test_access_walk.py"
TOKENS = "tests/scenarios/test_delegation_tokens.py"
OF_EVERY_API = "nobody_writes or nobody_reads or metadata_of_all"

ALLOWED = {"require": "None", "may": "True", "may_any": "True"}
"""Function -> what a call of it returns if everything is allowed."""

HELPERS = ("authorization.py",)
"""The functions themselves, which the table of defences has."""

WITHOUT_EFFECT = {
    ("metadata.py", "is_unknown"): "which broker of a cluster is asked first: its answer is checked afterwards",
}
"""File and function -> why nothing is seen if its check is taken out."""


class Check(NamedTuple):
    file: str
    function: str
    line: int
    start: int
    end: int
    """Where it is in the text of the file."""
    without: str

    def __repr__(self) -> str:
        return f"{self.file}:{self.line}"

    def remove(self, text: str) -> str:
        return text[: self.start] + self.without + text[self.end :]

    @property
    def tests(self) -> tuple[tuple[str, ...], ...]:
        """Arguments of pytest. One of these runs must fail without the check."""
        name = self.file.removesuffix(".py")
        walk: tuple[str, ...] = (WALK,)
        if frames.is_api(name):
            walk = (WALK, "-k", f"{frames.find_api_by_folder(name).name} or {OF_EVERY_API}")
        return walk, (PARTS, ACCESS, TOKENS)


def find_checks(handlers: Path) -> list[Check]:
    return [
        check
        for path in sorted(handlers.glob("*.py"))
        if path.name not in HELPERS
        for check in find_in(path)
        if (check.file, check.function) not in WITHOUT_EFFECT
    ]


def find_in(path: Path) -> list[Check]:
    text = path.read_text()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: dict[int, Check] = {}
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for call in find_calls(function):
            without = allow(call, text)
            if without is not None:
                assert call.end_lineno is not None and call.end_col_offset is not None
                start = starts[call.lineno - 1] + call.col_offset
                end = starts[call.end_lineno - 1] + call.end_col_offset
                found[start] = Check(path.name, function.name, call.lineno, start, end, without)
    return list(found.values())


def find_calls(function: ast.AST) -> Iterator[ast.Call]:
    """Calls whose result counts, or that may raise."""
    for_the_log = {
        statement.value
        for statement in ast.walk(function)
        if isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and name_of(statement.value) == "may"
    }
    for each in ast.walk(function):
        if isinstance(each, ast.Call) and each not in for_the_log:
            yield each


def name_of(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def allow(call: ast.Call, text: str) -> str | None:
    """What is in place of a check when it allows everything; None if the call is no check."""
    name = name_of(call)
    if name == "check_again":
        return ast.get_source_segment(text, call.args[-1])
    if name == "split":
        return f"(list({ast.get_source_segment(text, call.args[3])}), [])"
    return ALLOWED.get(name)
