"""The size and the names of things, and text that has no place in the project."""

import ast
import re
from collections.abc import Iterator

from tests.tidy.source import Finding, Module, within

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70

# Module (or package) -> why its length does not count.
GENERATED = {"ottla.wire.messages": "generated, one class per message of the protocol"}

EMPTY_NAMES = ("Manager", "Helper", "Helpers", "Impl", "Utils", "Util")
EMPTY_MODULES = ("utils", "util", "helpers", "helper", "common", "misc", "base")

# What no file of the project may hold, put together here so that this file does not hold it either.
UNFINISHED = re.compile(r"\b(?:" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX")) + r")\b")
REGISTRY = re.compile("|".join(("pypi" + r"\.org", "python" + "hosted", "npm" + r"js\.", "index" + "-url")))
MACHINE_PATH = re.compile(r"(?<![\w.~/-])/(?:home|Users|root|work|workspace)/\w")
BINARY = b"\0"


def length_findings(module: Module) -> Iterator[Finding]:
    """Files and functions that nobody can hold in their head."""
    if any(within(module.name, generated) for generated in GENERATED):
        return
    lines = module.text.count("\n")
    if lines > FILE_LINES_MAX:
        yield Finding(module.name, 1, f"{lines} lines, more than {FILE_LINES_MAX}")
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            length = node.end_lineno - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                what = f"{node.name} has {length} lines, more than {FUNCTION_LINES_MAX}"
                yield Finding(module.name, node.lineno, what)


def name_findings(module: Module) -> Iterator[Finding]:
    """Names that say nothing."""
    last = module.name.split(".")[-1]
    if last in EMPTY_MODULES:
        yield Finding(module.name, 1, f"{last!r} is not a heading")
    for node in module.nodes:
        if isinstance(node, ast.ClassDef) and node.name.endswith(EMPTY_NAMES):
            yield Finding(module.name, node.lineno, f"class {node.name} is named for nothing")


def docstring_findings(module: Module) -> Iterator[Finding]:
    """Modules that do not say what they own. An empty `__init__` has nothing to say."""
    if module.text.strip() and ast.get_docstring(module.tree) is None:
        yield Finding(module.name, 1, "no docstring says what this module owns")


def text_findings(name: str, content: bytes) -> Iterator[Finding]:
    """Unfinished work, addresses of package registries and paths of one person's machine."""
    if BINARY in content:
        return
    text = content.decode("utf-8", errors="replace")
    patterns = (("unfinished", UNFINISHED), ("registry", REGISTRY), ("machine path", MACHINE_PATH))
    if not any(pattern.search(text) for _, pattern in patterns):
        return
    for number, line in enumerate(text.splitlines(), start=1):
        for what, pattern in patterns:
            match = pattern.search(line)
            if match:
                yield Finding(name, number, f"{what}: {match.group()}")
