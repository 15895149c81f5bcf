"""The wheel `ottla-kafka-tools`: every tool is a command by both of its names, and the command runs that tool."""

import runpy
import sys
import tomllib
from pathlib import Path

import pytest

from ottla.cli.kafka import TOOLS

PACKAGE = Path(__file__).parents[4] / "packages" / "kafka-tools"


def test_every_tool_has_its_commands() -> None:
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    wanted = {f"kafka-{tool}{end}" for tool in TOOLS for end in ("", ".sh")}
    assert project["scripts"] == dict.fromkeys(wanted, "ottla_kafka_tools:main")
    assert project["dependencies"] == ["ottla"]


@pytest.mark.parametrize("name", ["kafka-topics", "kafka-topics.sh"])
def test_a_command_is_the_tool_of_its_name(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = runpy.run_path(str(PACKAGE / "src" / "ottla_kafka_tools" / "__init__.py"))
    monkeypatch.setattr(sys, "argv", [f"/usr/local/bin/{name}", "--help"])
    with pytest.raises(SystemExit) as ended:
        program["main"]()
    assert ended.value.code == 0
    assert "usage: ottla kafka topics" in capsys.readouterr().out
