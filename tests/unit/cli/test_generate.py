"""`ottla generate`: what it prints is what deploy/ has, names metrics that exist, and is refused in one line."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli import main
from ottla.cli.generate.alerts import EXPECTED_ERRORS, Thresholds, build_alerts
from ottla.cli.generate.board import WIDTH, build_rows
from ottla.cli.generate.yaml_text import Data, format_yaml
from ottla.errors import ErrorCode
from ottla.observability.catalogue import FAMILIES
from ottla.observability.metrics import HISTOGRAM, Family
from tests.needs import require_program
from tools.write_deploy import build_deploy

ACTIONS = ("systemd", "compose", "prometheus", "alerts", "grafana")
SCRAPED = ("up", "job", "instance")
"""What Prometheus itself adds."""

KNOWN: dict[str, Family] = {
    f"{family.name}{suffix}": family
    for family in FAMILIES
    for suffix in (("_bucket", "_sum", "_count") if family.kind == HISTOGRAM else ("",))
}


def list_expressions() -> Iterator[str]:
    yield from (alert.expression for alert in build_alerts(Thresholds()))
    for row in build_rows():
        yield from (query.expression for panel in row.panels for query in panel.queries)


@pytest.mark.parametrize("expression", list(list_expressions()))
def test_expressions_name_metrics_and_labels_that_exist(expression: str) -> None:
    # Every series that is asked for is one that a broker declares, and every label one that the series has.
    names = re.findall(r"\b(?:kafka|ottla|process)_\w+", expression)
    assert names or "up{" in expression
    assert set(names) <= set(KNOWN)
    labels = {"le", *SCRAPED, *(label for name in names for label in KNOWN[name].labels)}
    grouped = [label for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in group.split(", ")]
    matched = re.findall(r'(\w+)(?:=|=~|!=|!~)"', expression)
    assert set(grouped) | set(matched) <= labels


def test_errors_that_are_expected_are_errors_of_kafka() -> None:
    assert set(EXPECTED_ERRORS) <= {code.name for code in ErrorCode}


def test_the_folder_has_what_the_command_prints() -> None:
    for path, text in build_deploy().items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: run tools/write_deploy.py"


def test_the_page_lists_the_alerts() -> None:
    page = (Path(__file__).parents[3] / "docs" / "monitoring.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(Ottla\w+)` \| (\w+) \| (\w+) \|", page, re.MULTILINE)
    assert listed == [(alert.name, alert.severity, alert.lasting) for alert in build_alerts(Thresholds())]


def test_panels_do_not_overlap() -> None:
    board = json.loads(next(text for path, text in build_deploy().items() if path.suffix == ".json"))
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        where = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(where["x"], where["x"] + where["w"])
            for y in range(where["y"], where["y"] + where["h"])
        }
        assert not taken & cells and where["x"] + where["w"] <= WIDTH, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


@pytest.mark.parametrize("action", ACTIONS)
def test_files_are_printed_or_written_and_not_replaced(
    action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", action]) == 0
    printed = capsys.readouterr().out
    assert main(["generate", action, "--output", f"{tmp_path}/new/"]) == 0
    written = [line.removeprefix("wrote ") for line in capsys.readouterr().out.splitlines()]
    assert Path(written[0]).read_text() == printed
    Path(written[-1]).write_text("mine")
    assert main(["generate", action, "-o", f"{tmp_path}/new"]) == 2
    assert "exists already" in capsys.readouterr().err and Path(written[-1]).read_text() == "mine"
    assert main(["generate", action, "-o", written[0], "--force"]) == 0
    assert Path(written[0]).read_text() == printed


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["docker"],
        ["compose", "--brokers", "0"],
        ["compose", "--brokers", "6"],
        ["compose", "--image", "a b"],
        ["systemd", "--user", "a\nb"],
        ["systemd", "--config", "relative"],
        ["prometheus", "--target", "localhost"],
        ["prometheus", "--target", "localhost:70000"],
        ["prometheus", "--interval", "soon"],
        ["prometheus", "--rules", "a\nb"],
        ["alerts", "--job", 'a"b'],
        ["alerts", "--lag-seconds", "-1"],
        ["grafana", "--output", "/proc/none/board.json"],
    ],
)
def test_what_cannot_be_is_refused_in_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(["generate", *arguments])
    except SystemExit as end:
        status = int(str(end.code))
    captured = capsys.readouterr()
    assert status in (1, 2) and not captured.out
    assert captured.err.startswith("ottla") and captured.err.count("\n") <= 2 and "Traceback" not in captured.err


def test_options_are_in_the_files(capsys: pytest.CaptureFixture[str]) -> None:
    main(["generate", "prometheus", "--target", "a:1", "--target", "[::1]:2", "--job", "mine"])
    assert "- 'a:1'\n          - '[::1]:2'\n" in capsys.readouterr().out
    main(["generate", "alerts", "--job", "mine", "--lag-seconds", "77"])
    text = capsys.readouterr().out
    assert 'up{job="mine"} == 0' in text and "> 77 and on" in text
    main(["generate", "compose", "--brokers", "1"])
    text = capsys.readouterr().out
    assert "default.replication.factor=1" in text and "broker2" not in text and "dockerfile_inline: |" in text


def test_yaml_keeps_text_as_it_is() -> None:
    data: Data = {"a": "it's", "b": "no", "c": [{"d": 1, "e": ["x y", "1s"]}, {}], "f": "1\n2\n", "g": True}
    expected = "a: 'it''s'\nb: 'no'\nc:\n  - d: 1\n    e:\n      - x y\n      - '1s'\n  - {}\nf: |\n  1\n  2\ng: true\n"
    assert format_yaml(data) == expected


def test_the_unit_is_one_that_systemd_understands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import subprocess

    analyze = require_program("systemd-analyze")
    program = require_program("true")  # it must exist, and what it does is not looked at
    main(["generate", "systemd", "--program", program, "--output", f"{tmp_path}/ottla.service"])
    result = subprocess.run(
        [analyze, "verify", "--man=no", f"{tmp_path}/ottla.service"], capture_output=True, text=True, check=False
    )
    about_ours = [line for line in result.stderr.splitlines() if "ottla" in line]
    assert not about_ours and result.returncode == 0, result.stderr
