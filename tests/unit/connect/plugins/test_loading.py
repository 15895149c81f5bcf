"""Connectors of users are found in the files of plugin.path and in installed packages."""

import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

from ottla.connect.errors import BadConfig
from ottla.connect.plugins.installed import InstalledPlugins

PROGRAM = """
from ottla.connect.connector import Source
from ottla.connect.settings.definition import Settings
import beside_it

class Clock(Source):
    version = "3.1"
    settings = Settings()
    def plan(self, offsets): return []
    def read(self, part, offset): yield from ()

class Half(Source):
    settings = Settings()
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    (tmp_path / "clock.py").write_text(PROGRAM)
    (tmp_path / "beside_it.py").write_text("")
    return tmp_path


def test_every_whole_connector_of_a_directory_is_installed(directory: Path) -> None:
    plugins = InstalledPlugins({"plugin.path": f"{directory}"})
    listed = plugins.list_plugins(connectors_only=True)
    assert {"class": "Clock", "type": "source", "version": "3.1"} in listed
    assert not any(each["class"] == "Half" for each in listed)
    assert plugins.find_class({"connector.class": "Clock"}).__name__ == "Clock"


def test_its_class_travels_to_other_processes_whole(directory: Path) -> None:
    found = InstalledPlugins({"plugin.path": f"{directory}/clock.py"}).find_class({"connector.class": "Clock"})
    sent = cloudpickle.dumps(found)  # type: ignore[no-untyped-call]
    assert cloudpickle.loads(sent).version == "3.1"


def test_a_class_of_an_installed_package_has_the_name_of_its_module() -> None:
    plugins = InstalledPlugins({})
    name = "tests.unit.connect.rest.herders:Lines"
    assert plugins.find_type({"connector.class": name}) == "source"
    for wrong in ("tests.unit.connect.rest.herders:Nope", "json:loads", "no.such.module:X", "a b:c", ":"):
        assert plugins.find_type({"connector.class": wrong}) == "unknown"


@pytest.mark.parametrize(("program", "reason"), [("def", "SyntaxError"), ("1/0", "ZeroDivisionError")])
def test_a_file_that_cannot_be_run_is_named(tmp_path: Path, program: str, reason: str) -> None:
    (tmp_path / "broken.py").write_text(program)
    with pytest.raises(BadConfig, match=rf"broken\.py: {reason}"):
        InstalledPlugins({"plugin.path": str(tmp_path / "broken.py")})


def test_a_path_that_does_not_exist_is_named() -> None:
    with pytest.raises(BadConfig, match="/does/not/exist does not exist"):
        InstalledPlugins({"plugin.path": "/does/not/exist"})
