"""The set-up in docs/security.md: its commands, run as they stand, print what the page says."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ottla.cli.ports import pick_port
from tests.clients.command_server import CommandServer
from tests.clients.test_command_line import CommandLine, examples, fits
from tests.needs import require_program
from tests.patience import PATIENCE_S

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
PORT = "9093"


@contextmanager
def started(ottla: CommandLine, command: str) -> Iterator[None]:
    """A command that runs on in the background, when it has printed its first line."""
    child = subprocess.Popen(
        ["bash", "-c", f"exec {command.removesuffix('&')}"],
        cwd=ottla.directory,
        env=ottla.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        try:
            assert child.stdout is not None
            assert "ready on" in child.stdout.readline()
            yield
        finally:
            child.terminate()
            child.wait(PATIENCE_S)


def test_the_set_up_of_the_page_works(tmp_path: Path, commands: CommandServer) -> None:
    require_program("bash")
    port = str(pick_port())
    ottla = CommandLine("", tmp_path, commands)
    ottla.environment = {key: value for key, value in ottla.environment.items() if key != "OTTLA_BOOTSTRAP"}
    ottla.environment["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    steps = [(command.replace(PORT, port), expected) for command, expected in examples(PAGE)]
    start = next(index for index, (command, _) in enumerate(steps) if command.endswith("&"))
    run_steps(ottla, steps[:start])
    assert os.stat(tmp_path / "tls" / "broker.pem").st_mode & 0o077 == 0
    with started(ottla, steps[start][0]):
        run_steps(ottla, steps[start + 1 :])
    for secret in ("first-secret", "shop-secret"):  # only in the files that the user has written
        data = subprocess.run(["grep", "-rl", secret, str(tmp_path / "data")], capture_output=True, text=True)
        assert data.stdout == ""


def run_steps(ottla: CommandLine, steps: list[tuple[str, list[str]]]) -> None:
    for command, expected in steps:
        printed = re.sub(r"^%.*\n", "", ottla.shell(command), flags=re.MULTILINE).splitlines()
        assert len(printed) == len(expected), f"{command}\n{printed}"
        for line, wanted in zip(printed, expected, strict=True):
            assert fits(line, wanted), f"{command}\n{line}\n{wanted}"
