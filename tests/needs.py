"""Skips a test that needs a program which is not installed here. The summary of the run counts the skips by program."""

import shutil
from collections.abc import Iterable
from typing import NoReturn

import pytest


def skip_without(program: str, reason: str) -> NoReturn:
    """Skip the running test: it needs `program`, and `reason` says why that cannot run here."""
    pytest.skip(f"needs {program} ({reason})")


def require_program(name: str) -> str:
    """The path of an executable; without it the running test is skipped."""
    found = shutil.which(name)
    if found is None:
        skip_without(name, f"{name} is not installed")
    return found


def summarise_skips(reasons: Iterable[str]) -> str:
    """All skips of a run in one line, such as `skipped: 12 tests need kcat (kcat is not installed)`."""
    counts: dict[str, int] = {}
    for reason in reasons:
        text = reason.removeprefix("Skipped: ")
        counts[text] = counts.get(text, 0) + 1
    return "skipped: " + ", ".join(_describe(count, text) for text, count in sorted(counts.items()))


def _describe(count: int, reason: str) -> str:
    tests = "1 test" if count == 1 else f"{count} tests"
    if not reason.startswith("needs "):
        return f"{tests} ({reason})"
    return f"{tests} {'needs' if count == 1 else 'need'} {reason.removeprefix('needs ')}"
