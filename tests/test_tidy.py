"""The house plan as tests: layers, bans, sizes and names. The tables stand in `tests/tidy`, exceptions with reasons.

Every rule is also shown a wrong snippet, because a rule that cannot fail guards nothing.
"""

from collections.abc import Callable, Iterable, Iterator

import pytest

from tests.tidy import layers, shape
from tests.tidy.ban import Ban
from tests.tidy.bans import BANS
from tests.tidy.source import ROOT, Finding, Module, forget_modules, imports, modules, project_files, within

Rule = Callable[[Module], Iterator[Finding]]


@pytest.fixture(scope="module", autouse=True)
def parsed() -> Iterator[None]:
    """What other tests of this process would only have in their way is freed."""
    yield
    forget_modules()


def report(findings: Iterable[Finding]) -> str:
    return "\n".join(str(finding) for finding in findings)


def keep(findings: Iterable[Finding]) -> None:
    """Fail with the lines that break a rule, one per line and nothing else."""
    lines = report(findings)
    if lines:
        pytest.fail(lines, pytrace=False)


def keep_over_the_source(rule: Rule) -> None:
    keep(finding for module in modules() for finding in rule(module))


def ban_names() -> list[str]:
    return [ban.name for ban in BANS]


def test_the_source_is_found() -> None:
    # An empty list of modules would let every other test of this file pass.
    assert any(module.name == "ottla.storage.files" for module in modules())


def test_every_module_has_a_layer() -> None:
    # A new room must be given its place before it is built into.
    keep(layers.homeless(modules()))


def test_a_module_without_a_layer_is_noticed() -> None:
    assert report(layers.homeless([Module("ottla.attic", "")]))


def test_layers_import_only_downwards() -> None:
    # No import goes up, or across to a neighbour, except through the doors of the table.
    keep_over_the_source(layers.layer_findings)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ottla.storage.log", "from ottla.cluster.image import Image"),
        ("ottla.storage.log", "from ottla import broker"),
        ("ottla.storage.log", "from ottla.wire.fetch import FetchRequest"),
        ("ottla.storage.log", "from ..broker.node import Node"),
        ("ottla.storage.log", "def late():\n    import ottla.broker.node"),
        ("ottla.handlers.fetch", "from ottla.server import Server"),
        ("ottla.errors", "import ottla.config"),
        ("ottla.console.pages", "from ottla.connect import rest"),
        ("ottla.streams.app", "from ottla.storage.log import Log"),
        ("pyspark_ottla.reader", "from ottla.replication.partition import Partition"),
    ],
)
def test_an_import_that_breaks_the_layers_is_noticed(name: str, text: str) -> None:
    assert report(layers.layer_findings(Module(name, text)))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ottla.storage.log", "from ottla.storage.files import Disk\nfrom ottla import batch\nimport ottla.errors"),
        ("ottla.broker.broker", "from ottla.handlers import fetch\nfrom ottla.server import Server"),
        ("ottla.cli.broker_process", "from ottla import __version__\nfrom ottla.broker.broker import Broker"),
        ("ottla.wire.fetch.responses", "from ottla.storage.files import FileSlice"),
        ("pyspark_ottla.reader", "from ottla.wire.fetch import FetchRequest"),
    ],
)
def test_an_import_downwards_is_let_through(name: str, text: str) -> None:
    assert not report(layers.layer_findings(Module(name, text)))


def test_handlers_do_not_import_handlers() -> None:
    # What two handlers share belongs to a room below them, or to a helper module beside them.
    keep_over_the_source(layers.handler_findings)


@pytest.mark.parametrize(
    "text", ["from ottla.handlers import fetch", "from .fetch import handle", "from ottla.handlers.fetch import handle"]
)
def test_a_handler_that_imports_a_handler_is_noticed(text: str) -> None:
    assert report(layers.handler_findings(Module("ottla.handlers.produce", text)))
    assert not report(layers.handler_findings(Module("ottla.handlers", text, is_package=True)))


def test_a_handler_may_import_a_helper() -> None:
    text = "from ottla.handlers.topic_names import resolve"
    assert not report(layers.handler_findings(Module("ottla.handlers.produce", text)))


@pytest.mark.parametrize("ban", BANS, ids=ban_names())
def test_the_source_keeps_the_ban(ban: Ban) -> None:
    keep_over_the_source(ban.findings)


@pytest.mark.parametrize("ban", BANS, ids=ban_names())
def test_the_ban_catches_what_is_wrong(ban: Ban) -> None:
    # Each wrong snippet is caught in a place the ban covers, and let through where an exception is written down.
    assert ban.wrong
    for text in ban.wrong:
        assert list(ban.findings(Module(f"{ban.where[0]}.somewhere", text))), text
        for allowed in ban.allowed:
            assert not list(ban.findings(Module(allowed, text))), text
    for text in ban.right:
        assert not report(ban.findings(Module(f"{ban.where[0]}.somewhere", text))), text


@pytest.mark.parametrize("ban", BANS, ids=ban_names())
def test_no_exception_is_kept_that_nobody_needs(ban: Ban) -> None:
    # An exception for a module that exists and does not use it would hide the day somebody starts to.
    for allowed in ban.allowed:
        inside = [module for module in modules() if within(module.name, allowed)]
        needed = any(True for module in inside for _ in ban.findings_without_exceptions(module))
        if inside and not needed:
            pytest.fail(f"{allowed} does not need its exception from {ban.name!r}", pytrace=False)


def test_no_door_is_kept_that_nobody_uses() -> None:
    for importer, imported in layers.DOORS:
        inside = [module for module in modules() if within(module.name, importer)]
        used = any(within(target, imported) for module in inside for _, target in imports(module))
        if inside and not used:
            pytest.fail(f"{importer} does not import {imported}: close the door", pytrace=False)


def test_files_and_functions_are_short() -> None:
    keep_over_the_source(shape.length_findings)


def test_a_long_file_and_a_long_function_are_noticed() -> None:
    body = "    x = 1\n" * shape.FUNCTION_LINES_MAX
    assert report(shape.length_findings(Module("ottla.broker.node", f"def f():\n{body}")))
    assert not report(shape.length_findings(Module("ottla.broker.node", f"def f():\n{body[len('    x = 1') + 1 :]}")))
    long = "x = 1\n" * (shape.FILE_LINES_MAX + 1)
    assert report(shape.length_findings(Module("ottla.broker.node", long)))
    assert not report(shape.length_findings(Module("ottla.wire.messages.fetch", long)))


def test_names_could_be_headings() -> None:
    keep_over_the_source(shape.name_findings)


def test_an_empty_name_is_noticed() -> None:
    assert report(shape.name_findings(Module("ottla.storage.utils", "")))
    assert report(shape.name_findings(Module("ottla.storage.log", "class LogManager: ...")))


def test_modules_say_what_they_own() -> None:
    keep_over_the_source(shape.docstring_findings)


def test_a_module_without_docstring_is_noticed() -> None:
    assert report(shape.docstring_findings(Module("ottla.broker.node", "x = 1\n")))
    assert not report(shape.docstring_findings(Module("ottla.broker.node", "")))


def test_nothing_unfinished_and_no_private_address_is_in_the_project() -> None:
    # Every tracked file, whatever its kind: no marks of unfinished work, no package registry, no path of one machine.
    findings: list[Finding] = []
    for path in project_files():
        findings += shape.text_findings(str(path.relative_to(ROOT)), path.read_bytes())
    keep(findings)


@pytest.mark.parametrize(
    "text",
    [
        "# TO" + "DO: later",
        "x = 1  # FIX" + "ME",
        "https://pypi" + ".org/x",
        "--index" + "-url x",
        "see /home" + "/anna/x",
        'path = "/root' + '/x"',
        "cd /Users" + "/anna",
        "/work" + "/main/src",
    ],
)
def test_unfinished_work_and_private_addresses_are_noticed(text: str) -> None:
    assert report(shape.text_findings("x", text.encode()))


@pytest.mark.parametrize("text", ["data/home/x", "~/work/x", "a mastodon", "https://example.com/work/x", "/tmp/x"])
def test_ordinary_text_is_let_through(text: str) -> None:
    assert not report(shape.text_findings("x", text.encode()))
