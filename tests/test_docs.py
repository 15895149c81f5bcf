"""The pages of the project: files, tests and imports that they name exist, and figures are the measured ones."""

import ast
import re
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest

from ottla.cli import COMMANDS, command_parser
from tests import excuses
from tests.pages import list_blocks
from tests.test_readme import blocks, commands
from tools import write_commands, write_settings

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CODE_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
PYTHON_BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"`((?:src|tests|tools|docs|examples|benchmarks)/[\w/.]+)(?:::\w+)?`")
MODULE = re.compile(r"`([a-z_]+(?:/[a-z_]+)*\.py)`")
TEST = re.compile(r"`(tests/[\w/.]+)(?:::(\w+))?`")


def named_tests(page: str) -> list[tuple[str, str]]:
    return sorted({(path, function) for path, function in TEST.findall(page)})


def anchors(page: Path) -> set[str]:
    """The names by which a heading can be linked to, as GitHub makes them."""
    headings = HEADING.findall(CODE_BLOCK.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    # Links to files of the repository, and to headings in them. Links to the web are not followed.
    broken = []
    for link in LINK.findall(CODE_BLOCK.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if "://" in link:
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tests_that_a_page_names_exist(page: Path) -> None:
    missing = []
    for path, function in named_tests(page.read_text()):
        target = ROOT / path
        if not target.exists() or (function and f"def {function}(" not in target.read_text()):
            missing.append(f"{path}::{function}" if function else path)
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    # A path from the root of the repository. The changelog is about the past.
    if page.name != "CHANGELOG.md":
        assert [path for path in PATH.findall(page.read_text()) if not (ROOT / path).exists()] == []


def test_modules_that_the_architecture_names_exist() -> None:
    # A path below src/ottla or src, or the name of a single file anywhere below them.
    names = {path.name for path in (ROOT / "src").rglob("*.py")}
    for module in MODULE.findall((ROOT / "ARCHITECTURE.md").read_text()):
        places = (ROOT / "src/ottla" / module, ROOT / "src" / module, ROOT / module)
        assert any(place.exists() for place in places) or ("/" not in module and module in names), module


def test_every_room_has_a_map_of_its_files() -> None:
    # In the docstring of its package. Handlers and messages are named after their APIs and need none.
    missing = []
    for package in (ROOT / "src").rglob("__init__.py"):
        if package.parent.name in ("ottla", "handlers", "messages"):
            continue
        words = set(re.findall(r"\w+", package.read_text().split('"""')[1]))
        missing += [str(file) for file in package.parent.glob("[a-z]*.py") if file.stem not in words]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_imports_in_examples_work(page: Path) -> None:
    # Of our own packages: examples are read by people, and a renamed function must not survive in them.
    for _, block in PYTHON_BLOCK.findall(page.read_text()):
        try:
            nodes = list(ast.walk(ast.parse(dedent(block))))
        except SyntaxError:  # a fragment, such as a method without its class
            continue
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("ottla", "pyspark_ottla")):
                module = import_module(node.module or "")
                assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_examples_exist(page: Path) -> None:
    # In blocks of shell: targets of make, modules and files that Python is given, and options of `ottla`.
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    shell = "\n".join(dedent(block) for block in blocks("sh", page.read_text()))
    assert [target for target in re.findall(r"\bmake ([a-z-]+)", shell) if target not in targets] == []
    files = re.findall(r"\b((?:tools|tests|examples|benchmarks)/[\w/]+\.py)", shell)
    assert [file for file in files if not (ROOT / file).exists()] == []
    for module in re.findall(r"-m ((?:benchmarks|tests)[\w.]*)", shell):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module
    for arguments in commands(page.read_text()):
        if arguments[-1] != "--help":  # which would print and end
            command_parser(COMMANDS).parse_args(arguments)


@pytest.mark.parametrize("tool", [write_commands, write_settings], ids=lambda tool: tool.__name__)
def test_the_reference_is_what_the_code_says(tool: ModuleType) -> None:
    page: Path = tool.PAGE
    assert page.read_text(encoding="utf-8") == tool.build_page(), f"run {tool.__name__.replace('.', '/')}.py"


def test_every_command_and_program_is_run_or_excused() -> None:
    # By name, in tests/excuses.py; entries there are about blocks that exist, and name tests that exist.
    forgotten: list[str] = []
    used: set[tuple[str, str]] = set()
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        for block in list_blocks(page.read_text()):
            if block.language in ("sh", "bash", "console", "python") and name not in excuses.WHOLE_PAGES:
                begins = [each for each in excuses.BLOCKS.get(name, {}) if dedent(block.text).startswith(each)]
                used.update((name, each) for each in begins)
                forgotten += [] if begins else [f"{name}: {block.text.splitlines()[0]}"]
    assert forgotten == []
    assert [(name, each) for name, table in excuses.BLOCKS.items() for each in table if (name, each) not in used] == []


def test_excuses_name_tests_that_exist() -> None:
    sentences = [*excuses.WHOLE_PAGES.values(), *excuses.LINES.values()]
    sentences += [sentence for table in excuses.BLOCKS.values() for sentence in table.values()]
    for path, function in re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))?", "\n".join(sentences)):
        assert (ROOT / path).exists(), path
        assert f"def {function}" in (ROOT / path).read_text(), f"{path}::{function}"


def test_every_guarantee_names_a_test() -> None:
    # Tables of promises have three columns, and the last of them names tests.
    lines = (ROOT / "docs/guarantees.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    promises = [row for row in rows if len(row) == 3 and row[0] != "promise"]
    assert len(promises) > 40
    assert [promise for promise, _, tests in promises if not TEST.search(tests)] == []


def test_the_figures_of_the_readme_are_those_of_the_measured_page() -> None:
    # A number of README's table, in a row that has one for both brokers, is a number of docs/performance.md.
    readme, measured = (ROOT / "README.md").read_text(), (ROOT / "docs/performance.md").read_text()
    numbers = set(re.findall(r"\d[\d,.]*", measured))
    rounded = {re.sub(r"\.\d$", "", number) for number in numbers}
    rows = re.findall(r"^\|[^|]*\| (\d[\d,.]*) [^|]*\| (\d[\d,.]*) [^|]*\|", readme, re.MULTILINE)
    assert len(rows) > 4
    assert [number for row in rows for number in row if number not in numbers | rounded] == []
