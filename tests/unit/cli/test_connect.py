"""`ottla connect`: asks a worker's REST API, and says what is wrong in one line."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli import main
from ottla.cli.connect import add_arguments
from ottla.cli.connect.running import read_worker_properties
from ottla.cli.ports import pick_port
from tests.unit.connect.rest.conftest import RestClient, serve

SOURCE = "name=src\nconnector.class=FileStreamSource\ntopic=lines\n"


@pytest.fixture(scope="module")
def worker() -> Iterator[RestClient]:
    with serve({}) as client:
        yield client


class Terminal:
    def __init__(self, worker: RestClient, capsys: pytest.CaptureFixture[str]) -> None:
        self._url = f"http://127.0.0.1:{worker.port}"
        self._capsys = capsys

    def run(self, *words: str, status: int = 0) -> str:
        """What a command prints, on either stream."""
        assert main(["connect", words[0], "--url", self._url, *words[1:]]) == status
        printed = self._capsys.readouterr()
        return printed.err if status else printed.out


@pytest.fixture
def terminal(worker: RestClient, capsys: pytest.CaptureFixture[str]) -> Terminal:
    worker.herder.clear()
    return Terminal(worker, capsys)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "src.properties"
    path.write_text(SOURCE)
    return str(path)


def test_a_connector_is_created_changed_and_shown(terminal: Terminal, worker: RestClient, file: str) -> None:
    assert terminal.run("create", file) == "created src\n"
    assert terminal.run("create", file, "--set", "topic=others") == "changed src\n"
    assert worker.herder.configs["src"]["topic"] == "others"
    assert terminal.run("list").splitlines() == [
        "CONNECTOR  TYPE    STATE    TASKS  WORKER          CLASS",
        "src        source  running  1/1    127.0.0.1:8083  FileStreamSource",
    ]
    worker.herder.traces["src"] = "the file is away\nat line 1"
    assert terminal.run("status", "src").splitlines() == [
        "SOURCE     STATE    WORKER          CAUSE",
        "connector  running  127.0.0.1:8083  the file is away",
        "task 0     running  127.0.0.1:8083  -",
    ]
    assert json.loads(terminal.run("status", "src", "--format", "json"))["name"] == "src"


def test_json_may_name_the_state_to_begin_with(terminal: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    config = {"connector.class": "FileStreamSource", "topic": "t"}
    path.write_text(json.dumps({"name": "c", "config": config, "initial_state": "PAUSED"}))
    terminal.run("create", str(path))
    assert "paused" in terminal.run("list")


def test_states_are_changed(terminal: Terminal, file: str) -> None:
    terminal.run("create", file)
    assert terminal.run("pause", "src") == "paused src\n"
    assert terminal.run("resume", "src") == "resumed src\n"
    assert terminal.run("restart", "src", "--only-failed") == "restarting src\n"
    assert terminal.run("stop", "src") == "stopped src\n"
    assert terminal.run("delete", "src") == "deleted src\n"
    assert terminal.run("delete", "src", status=1) == "ottla: Connector src not found\n"


def test_offsets_are_shown_set_and_reset(terminal: Terminal, file: str, tmp_path: Path) -> None:
    terminal.run("create", file)
    terminal.run("stop", "src")
    offsets = tmp_path / "offsets.json"
    offsets.write_text('{"offsets": [{"partition": {"filename": "f"}, "offset": {"position": 7}}]}')
    assert "altered successfully" in terminal.run("offsets", "src", "--from", str(offsets))
    assert terminal.run("offsets", "src").splitlines()[1].split() == ['{"filename":"f"}', '{"position":7}']
    assert "reset successfully" in terminal.run("offsets", "src", "--reset")
    offsets.write_text("{")
    assert "not JSON" in terminal.run("offsets", "src", "--from", str(offsets), status=2)


def test_a_configuration_is_checked(
    terminal: Terminal, file: str, worker: RestClient, capsys: pytest.CaptureFixture[str]
) -> None:
    assert terminal.run("validate", file) == "src: the configuration is right\n"
    url = f"http://127.0.0.1:{worker.port}"
    assert main(["connect", "validate", "--url", url, file, "--set", "tasks.max=0"]) == 1
    assert "Value must be at least 1" in capsys.readouterr().out
    assert terminal.run("create", file, "--set", "tasks.max=0", status=1).startswith(
        "ottla: Connector configuration is invalid and contains the following 1 error(s): Invalid value 0"
    )


def test_plugins_are_listed_and_described(terminal: Terminal) -> None:
    assert "FileStreamSourceConnector" in terminal.run("plugins")
    assert "JsonConverter" in terminal.run("plugins", "--all")
    assert "batch.size" in terminal.run("plugins", "FileStreamSource")
    assert terminal.run("plugins", "Nope", status=1) == "ottla: Unknown plugin Nope.\n"


def test_a_worker_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{pick_port()}"
    assert main(["connect", "list", "--url", url]) == 1
    assert capsys.readouterr().err == (
        f"ottla: cannot reach {url}: Connection refused. Does a worker run there? (ottla connect up)\n"
    )
    assert main(["connect", "list", "--url", "ftp://x"]) == 2


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("listeners=ftp://x:1", "listeners=ftp://x:1: write http://HOST:PORT or https://HOST:PORT"),
        ("config.providers=a", "config.providers names a, but there is no config.providers.a.class"),
        ("plugin.path=/does/not/exist", "plugin.path: /does/not/exist does not exist"),
    ],
)
def test_a_worker_with_a_wrong_property_does_not_start(
    setting: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["connect", "up", "--set", setting]) == 1
    assert capsys.readouterr().err == f"ottla: {message}\n"


def test_options_of_a_worker_come_after_its_file(tmp_path: Path) -> None:
    file = tmp_path / "worker.properties"
    file.write_text("bootstrap.servers=far:1\ngroup.id=etl\nlisteners=http://127.0.0.1:1\n")
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    words = [
        "up",
        "--config",
        str(file),
        "-b",
        "near:2",
        "--port",
        "3",
        "--master",
        "local[1]",
        "--set",
        "a=b",
        "c.json",
    ]
    options = parser.parse_args(words)
    found = read_worker_properties(options)
    assert options.connectors == ["c.json"]
    assert (found["bootstrap.servers"], found["group.id"], found["a"]) == ("near:2", "etl", "b")
    assert (found["listeners"], found["spark.master"]) == ("http://127.0.0.1:3", "local[1]")
