"""The tutorials, as somebody goes through them: files are written, commands are run, and they print what the page says.

A command that runs on is started, and the page goes on when it has printed what the page says, among other lines. A
command that only looks is repeated until it shows what the page says, as a reader would. A command with `…` in it is
one that a running command has printed. Names of files become whole paths, so that `pkill -f` ends only what this test
has started.
"""

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.cli.ports import pick_port
from tests.clients.command_server import CommandServer
from tests.clients.test_command_line import CommandLine
from tests.needs import require_program
from tests.pages import ROOT, list_blocks
from tests.patience import PATIENCE_S
from tests.unit.client.shelf import Shelf, served

TUTORIALS = ROOT / "docs" / "tutorials"
COMMAND = re.compile(r"^\$ ((?:.*\n)(?:> .*\n)*)((?:(?!\$ ).*\n)*)", re.MULTILINE)
RUNNING_ON = ("ottla up", "ottla cluster up", "ottla connect up", "ottla stream run", "python pipeline.py")
LOOKS = (
    *("ottla consume", "ottla group describe", "ottla cluster status", "ottla cluster brokers"),
    *("ottla stream query", "ottla connect status", "python sql.py copy.db"),
)
SPACES = re.compile(" +")


def make_pattern(expected: str) -> str:
    """`…` stands for any text, also of several lines. The width of columns does not count."""
    return "(?s:.*)".join(re.escape(piece) for piece in SPACES.sub(" ", expected).split("…"))


def fits(printed: str, expected: str) -> bool:
    return re.fullmatch(make_pattern(expected), SPACES.sub(" ", printed)) is not None


def pick_ports() -> list[int]:
    """Three free ports in a row."""
    while True:
        first = pick_port()
        try:
            for port in (first + 1, first + 2):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return [first, first + 1, first + 2]


class Reader:
    """Somebody who goes through a tutorial in an empty directory."""

    def __init__(self, directory: Path, commands: CommandServer, registry: str) -> None:
        brokers, worker = pick_ports(), pick_port()
        self._addresses = {f":{9092 + number}": f":{port}" for number, port in enumerate(brokers)}
        self._addresses |= {":8083": f":{worker}", "http://localhost:8081": registry}
        self._options = {
            "ottla up": f" --port {brokers[0]} --data {directory}/data",
            "ottla cluster up": f" --port {brokers[0]}",
            "ottla connect up": f" --port {worker}",
        }
        self._line = CommandLine(f"127.0.0.1:{brokers[0]}", directory, commands)
        self.environment = self._line.environment
        self.environment["OTTLA_CONNECT"] = f"http://127.0.0.1:{worker}"
        self.environment["PATH"] = f"{directory}:{Path(sys.executable).parent}:{self.environment['PATH']}"
        self._directory = directory
        self._names = ["shop-cluster"]
        self._running: list[tuple[subprocess.Popen[bytes], Path]] = []
        self.commands_done = 0

    def go_through(self, page: str) -> None:
        for text, address in self._addresses.items():
            page = page.replace(text, address)
        for block in list_blocks(page):
            if block.file:
                (self._directory / block.file).write_text(block.text)
                self._names.append(block.file)
            elif block.language == "console":
                for command, expected in COMMAND.findall(block.text):
                    self._follow(command.replace("\n> ", "\n").rstrip("\n"), expected)
                    self.commands_done += 1

    def _follow(self, command: str, expected: str) -> None:
        if command.startswith("export "):
            name, value = command.removeprefix("export ").split("=", 1)
            self.environment[name] = value
            return
        start = next((each for each in RUNNING_ON if command.startswith(each)), None)
        patience_s = PATIENCE_S if command.startswith(LOOKS) else 0
        if "…" in command:
            command = self._find_printed(command)
        elif start is not None:
            command += self._options.get(start, "")
        for name in self._names:
            command = re.sub(rf"(?<![\w/.-]){re.escape(name)}", f"{self._directory}/{name}", command)
        if start is not None:
            self._start(command, expected)
            return
        deadline = time.monotonic() + patience_s
        while not fits(printed := self._line.shell(command), expected):
            assert time.monotonic() < deadline, f"{command}\nprints\n{printed}\n{self._tell_running()}"
            time.sleep(0.2)

    def _start(self, command: str, expected: str) -> None:
        program, rest = command.split(" ", 1)
        command = f"exec {sys.executable} {'-m ottla ' if program == 'ottla' else ''}{rest}"
        output = self._directory / f"output-{len(self._running)}.txt"
        with output.open("wb") as file:
            child = subprocess.Popen(
                ["bash", "-c", command], cwd=self._directory, env=self.environment, stdout=file, stderr=file
            )
        self._running.append((child, output))
        pattern = re.compile("(?m)^" + make_pattern(expected))
        deadline = time.monotonic() + PATIENCE_S
        while not pattern.search(SPACES.sub(" ", output.read_text())):
            assert child.poll() is None, f"{command}\nhas ended\n{self._tell_running()}"
            assert time.monotonic() < deadline, f"{command}\n{self._tell_running()}"
            time.sleep(0.05)

    def _find_printed(self, command: str) -> str:
        pattern = re.compile(make_pattern(command).replace("(?s:.*)", ".*"))
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for _, output in self._running:
                for line in output.read_text().splitlines():
                    if pattern.fullmatch(line.strip()):
                        return line.strip()
            time.sleep(0.05)
        raise AssertionError(f"nobody has printed {command}\n{self._tell_running()}")

    def _tell_running(self) -> str:
        return "\n".join(f"{output.name}:\n{output.read_text()}" for _, output in self._running)

    def stop(self) -> None:
        for child, _ in reversed(self._running):
            if child.poll() is None:
                child.send_signal(signal.SIGINT)
                child.wait(PATIENCE_S)


@contextmanager
def reading(directory: Path, commands: CommandServer) -> Iterator[Reader]:
    with served(Shelf()) as registry:
        reader = Reader(directory, commands, registry)
        try:
            yield reader
        finally:
            reader.stop()


@pytest.mark.parametrize("name", ["avro", "cluster", "connector", "pipeline", "streams", "testing"])
def test_a_tutorial_does_what_it_says(name: str, tmp_path: Path, commands: CommandServer) -> None:
    require_program("bash")
    require_program("pkill")
    page = (TUTORIALS / f"{name}.md").read_text()
    with reading(tmp_path, commands) as reader:
        reader.go_through(page)
        assert reader.commands_done > 1


def test_every_tutorial_is_gone_through() -> None:
    (mark,) = test_a_tutorial_does_what_it_says.pytestmark  # type: ignore[attr-defined]
    assert mark.args[1] == sorted(page.stem for page in TUTORIALS.glob("*.md"))
