"""Progress bars: what a line says, when it is drawn, and that nobody but a person at a terminal ever sees one."""

import io
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla.testing
from ottla.cli import main, progress
from ottla.cli.input_progress import measure_files
from ottla.cli.progress import CLEAR_LINE, ProgressLine, describe_progress, format_duration
from ottla.testing import LocalBroker


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def watch(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal as standard error, on which bars are drawn at once and always.

    It is no fixture: pytest sets standard error itself between fixtures and tests.
    """
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "SHOWN_AFTER_S", 0.0)
    monkeypatch.setattr(progress, "REFRESH_S", 0.0)
    drawn = Terminal()
    monkeypatch.setattr(sys, "stderr", drawn)
    return drawn


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with ottla.testing.broker() as running:
        running.create_topic("orders")
        yield running


def list_lines(drawn: Terminal) -> list[str]:
    """Everything that was drawn, one after the other. The line is empty at the end."""
    *lines, last = drawn.getvalue().split(CLEAR_LINE)[1:]
    assert last == ""
    return lines


@pytest.mark.parametrize(
    ("done", "total", "elapsed_s", "expected"),
    [
        (0, 100, 0.0, "copy  [------------------------]   0%  a note"),
        (25, 100, 10.0, "copy  [######------------------]  25%  a note  0:30 left"),
        (100, 100, 10.0, "copy  [########################] 100%  a note  0:00 left"),
        (130, 100, 10.0, "copy  [########################] 100%  a note  0:00 left"),
        (7, None, 61.0, "copy  a note  1:01 so far"),
        (7, 0, 3_700.0, "copy  a note  1:01:40 so far"),
    ],
)
def test_the_line(done: float, total: float | None, elapsed_s: float, expected: str) -> None:
    assert describe_progress("copy", done, total, elapsed_s, "a note") == expected


def test_durations() -> None:
    assert [format_duration(seconds) for seconds in (0, 59.4, 60, 3599.6)] == ["0:00", "0:59", "1:00", "1:00:00"]


def test_a_bar_is_drawn_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watch(monkeypatch)
    with ProgressLine("copy", 4) as bar:
        for done in range(3):
            bar.show(done)
    assert [line[7:31].count("#") for line in list_lines(terminal)] == [0, 6, 12]


def test_a_failure_removes_the_bar_too(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watch(monkeypatch)
    with pytest.raises(KeyError), ProgressLine("copy", 4) as bar:
        bar.show(1)
        raise KeyError
    assert len(list_lines(terminal)) == 1


def test_quick_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watch(monkeypatch)
    monkeypatch.setattr(progress, "SHOWN_AFTER_S", 1e9)
    with ProgressLine("copy", 4) as bar:
        bar.show(1)
    assert terminal.getvalue() == ""


def test_a_line_is_not_longer_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watch(monkeypatch)
    with ProgressLine("copy", 4) as bar:
        bar.show(1, "x" * 500)
        bar.say("y" * 500)
    assert [len(line) for line in list_lines(terminal)] == [progress.COLUMNS - 1] * 2


def test_no_bar_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watch(monkeypatch)
    piped = io.StringIO()
    monkeypatch.setattr(sys, "stderr", piped)
    with ProgressLine("copy", 4) as bar:
        bar.show(1)
        bar.say("note")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stderr", terminal)
    with ProgressLine("copy", 4) as bar:
        bar.show(1)
    assert (piped.getvalue(), terminal.getvalue()) == ("", "")


def test_a_terminal_that_is_gone_stops_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watch(monkeypatch)

    def fail(text: str) -> int:
        raise OSError("gone")

    monkeypatch.setattr(terminal, "write", fail)
    with ProgressLine("copy", 4) as bar:
        bar.show(1)


def test_produce_and_consume_between_files(
    broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bar from a file to the topic and back; the last line of each says how much there was."""
    terminal = watch(monkeypatch)
    files = [tmp_path / "first", tmp_path / "second"]
    for file in files:
        file.write_text("".join(f"line {number}\n" for number in range(1_000)))
    assert measure_files([str(file) for file in files]) == 2 * files[0].stat().st_size
    where = ["-b", broker.bootstrap]
    assert main(["produce", "orders", *map(str, files), "-X", "enable.idempotence=false", *where]) == 0
    drawn = list_lines(terminal)
    assert len(drawn) == 2_000 // 256
    assert drawn[-1].startswith("produce  [")
    assert "1792 records" in drawn[-1]
    shares = [int(line.split("%")[0].split()[-1]) for line in drawn]
    assert shares == sorted(shares)
    assert shares[-1] > 80
    terminal.seek(0)
    terminal.truncate()
    with open(tmp_path / "copy", "w") as copy:
        monkeypatch.setattr(sys, "stdout", copy)
        assert main(["consume", "orders", *where]) == 0
    assert (tmp_path / "copy").read_bytes() == b"".join(file.read_bytes() for file in files)
    assert "100%  2000 records" in list_lines(terminal)[-1]


def test_no_bar_for_records_that_go_through_a_pipe(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watch(monkeypatch)
    reader, writer = os.pipe()
    with os.fdopen(reader), open(writer, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert main(["consume", "orders", "--last", "3", "-b", broker.bootstrap]) == 0
    assert terminal.getvalue() == ""
    assert measure_files(["/dev/null"]) is None
    assert measure_files(["/nowhere/at/all"]) is None


def test_the_doctor_says_what_it_is_doing(
    broker: LocalBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = watch(monkeypatch)
    main(["doctor", "--data", str(tmp_path / "data"), "-b", broker.bootstrap])
    lines = [line for line in list_lines(terminal) if line]
    assert lines[0] == "looking at this machine ..."
    assert f"connecting to {broker.bootstrap} ..." in lines
    assert lines[-1] == f"looking at the cluster at {broker.bootstrap} ..."


def test_log_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watch(monkeypatch)
    with ottla.testing.broker() as fresh:
        fresh.create_topic("orders", partitions=3)
        shutil.copytree(fresh.directory, tmp_path / "copy")
    assert main(["log", "verify", str(tmp_path / "copy")]) == 0
    assert any(line.startswith("verify") for line in list_lines(terminal))
    assert "3 partitions" in capsys.readouterr().out
