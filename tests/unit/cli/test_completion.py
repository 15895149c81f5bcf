"""Completion scripts: bash is asked what it would offer; for the others, every command and option is in the script."""

import shlex
import subprocess
from pathlib import Path

import pytest

from ottla.cli import COMMANDS, command_parser, main
from ottla.cli.completion import SCRIPTS, commands_of
from tests.needs import require_program
from tests.patience import PATIENCE_S

ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_ottla
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script as a file, checked for its syntax."""
    require_program("bash")
    script = tmp_path_factory.mktemp("completion") / "ottla.bash"
    script.write_text(SCRIPTS["bash"](list(commands_of(command_parser(COMMANDS)))))
    subprocess.run(["bash", "-n", script], check=True)
    return script


def offered(script: Path, *words: str) -> list[str]:
    """The completions that bash offers for the last word."""
    done = subprocess.run(
        ["bash", "-c", ASK, "ask", script, *words], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ottla", ""], [*COMMANDS]),
        (["ottla", "co"], ["consume", "connect", "config", "console", "completion"]),
        (["ottla", "topic", ""], ["create", "list", "describe", "alter", "trim", "delete"]),
        (["ottla", "topic", "create", "--pa"], ["--partitions"]),
        (["ottla", "-b", "x", "topic", "d"], ["describe", "delete"]),
        (["ottla", "produce", "orders", "--acks", ""], ["0", "1", "all"]),
        (["ottla", "produce", "orders", "-z", "g"], ["gzip"]),
        (["ottla", "produce", "orders", "--key", ""], []),
        (["ottla", "completion", ""], ["bash", "zsh", "fish"]),
    ],
)
def test_bash_offers_matching_words(bash: Path, words: list[str], expected: list[str]) -> None:
    assert offered(bash, *words) == expected


def test_every_command_is_in_the_tree() -> None:
    paths = [command.path for command in commands_of(command_parser(COMMANDS))]
    assert paths[0] == "ottla"
    assert {path.split()[1] for path in paths[1:]} == set(COMMANDS)
    assert "ottla log dump" in paths


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_argument_and_option_is_in_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for command in commands_of(command_parser(COMMANDS)):
        assert command.path in script
        for option in command.options:
            longest = max(option.names, key=len)
            if shell == "fish":
                longest = f"-l {longest[2:]} " if longest.startswith("--") else f"-s {longest[1:]} "
            assert longest in script


def test_no_help_text_breaks_out_of_its_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    # Each line for fish is one command, whose words are quoted as in every other shell.
    main(["completion", "fish"])
    for line in capsys.readouterr().out.splitlines():
        if line.startswith("complete "):
            words = shlex.split(line)
            assert words[-2] == "-d" or "-a" in words


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_shell_itself_accepts_the_script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require_program(shell)
    main(["completion", shell])
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    done = subprocess.run([shell, "-n", script], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")
