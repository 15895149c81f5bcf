"""The table of handlers: it lists every module, and imports one when a request needs it."""

import subprocess
import sys
from pkgutil import iter_modules

import pytest

from ottla import handlers
from ottla.broker.handler_table import TELEMETRY, VERSIONS, HandlerTable, advertise
from ottla.handlers import list_groups
from ottla.wire import fetch, frames, produce

START = """
import sys
from ottla.broker.handler_table import HandlerTable
import ottla.broker.broker
table = HandlerTable()
before = [name for name in sys.modules if name.startswith("ottla.handlers.")]
table[18]
print(*before, "|", *[name for name in sys.modules if name.startswith("ottla.handlers.")])
"""


def test_every_module_of_an_api_is_in_the_table() -> None:
    found = {module.name for module in iter_modules(handlers.__path__) if frames.is_api(module.name)}
    assert found == set(VERSIONS)
    assert [handler.api.folder for handler in HandlerTable().values()] == list(VERSIONS)


def test_handlers_answer_versions_that_the_messages_have() -> None:
    """Produce and Fetch, which are read without a schema, answer those of their own codecs."""
    for name, versions in VERSIONS.items():
        known = frames.find_api_by_folder(name).versions
        assert known[0] <= versions[0] <= versions[-1] <= known[-1], name
    assert (VERSIONS["produce"], VERSIONS["fetch"]) == (produce.VERSIONS, fetch.VERSIONS)


def test_a_handler_that_declares_no_rights_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(list_groups, "REQUIRES")
    with pytest.raises(TypeError, match="does not declare in REQUIRES"):
        HandlerTable()[frames.find_api_by_folder("list_groups").key]


def test_telemetry_is_advertised_only_if_somebody_sees_it() -> None:
    silent, watched = advertise(telemetry=False), advertise(telemetry=True)
    assert {frames.api(key).name for key in set(watched) - set(silent)} == set(TELEMETRY)
    assert set(watched) == set(HandlerTable())


def test_a_module_is_imported_when_its_handler_is_asked_for() -> None:
    """A broker starts without the handlers, and so without their messages."""
    run = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, check=True)
    before, _, after = run.stdout.partition("|")
    assert before.split() == []
    assert "ottla.handlers.api_versions" in after.split()
    assert "ottla.handlers.create_topics" not in after.split()
